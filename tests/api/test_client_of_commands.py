"""What commands need of the client besides: warnings, and the namespace that is meant."""

import pytest

from tests.commands.apiserver import serving
from webhook.api.client import Client
from webhook.api.cluster_access import ClusterAccess
from webhook.api.connection import default_namespace


def test_a_patch_returns_the_warnings_that_come_with_it(tmp_path):
    asked = []

    def answer(*call):
        asked.append(call)
        return 200, [("Warning", '299 - "one"'), ("Warning", '299 - "a \\"second\\""')], {"n": 1}

    with serving(answer, tmp_path) as kubeconfig:
        found = Client(kubeconfig).ask("PATCH", "/a", {"b": None}, {"dryRun": "All"})

    assert found == ({"n": 1}, ("one", 'a "second"'))
    assert asked == [("PATCH", "/a?dryRun=All", {"b": None})]


@pytest.mark.parametrize(
    ("context", "namespace"), [({"namespace": "team"}, "team"), ({}, "default")]
)
def test_the_namespace_is_that_of_the_current_context(tmp_path, context, namespace):
    with serving(lambda *_: (200, [], {}), tmp_path, **context) as kubeconfig:
        assert default_namespace(ClusterAccess(kubeconfig=kubeconfig)) == namespace


@pytest.mark.parametrize("text", ["{", "{}", "kind: Config"])
def test_without_a_context_it_is_the_one_of_that_name(tmp_path, text):
    path = tmp_path / "kubeconfig"
    path.write_text(text)

    assert default_namespace(ClusterAccess(kubeconfig=str(path))) == "default"
    assert default_namespace(ClusterAccess(kubeconfig=str(tmp_path / "none"))) == "default"


def test_each_group_is_impersonated_by_a_header_of_its_own(tmp_path):
    heard = []
    with serving(lambda *_: (200, [], {}), tmp_path, heard=heard) as kubeconfig:
        access = ClusterAccess(kubeconfig=kubeconfig, user="alice", groups=("ml", "a, b"))
        Client(access).get("/a")
        Client(access).post("/a", {})
        Client(access.as_oneself()).get("/a")

    users = [headers.get_all("Impersonate-User") for headers in heard]
    groups = [headers.get_all("Impersonate-Group") for headers in heard]
    assert users == [["alice"], ["alice"], None]
    assert groups == [["ml", "a, b"], ["ml", "a, b"], None]
