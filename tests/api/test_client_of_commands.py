"""What commands need of the client besides: warnings, and the namespace that is meant."""

import pytest

from tests.commands.apiserver import serving
from webhook.api.client import Client, default_namespace


def test_a_patch_returns_the_warnings_that_come_with_it(tmp_path):
    asked = []

    def answer(*call):
        asked.append(call)
        return 200, [("Warning", '299 - "one"'), ("Warning", '299 - "a \\"second\\""')], {"n": 1}

    with serving(answer, tmp_path) as kubeconfig:
        found = Client(kubeconfig).patch_with_warnings("/a", {"b": None}, {"dryRun": "All"})

    assert found == ({"n": 1}, ("one", 'a "second"'))
    assert asked == [("PATCH", "/a?dryRun=All", {"b": None})]


@pytest.mark.parametrize(
    ("context", "namespace"), [({"namespace": "team"}, "team"), ({}, "default")]
)
def test_the_namespace_is_that_of_the_current_context(tmp_path, context, namespace):
    with serving(lambda *_: (200, [], {}), tmp_path, **context) as kubeconfig:
        assert default_namespace(kubeconfig) == namespace


@pytest.mark.parametrize("text", ["{", "{}", "kind: Config"])
def test_without_a_context_it_is_the_one_of_that_name(tmp_path, text):
    path = tmp_path / "kubeconfig"
    path.write_text(text)

    assert default_namespace(str(path)) == "default"
    assert default_namespace(str(tmp_path / "none")) == "default"
