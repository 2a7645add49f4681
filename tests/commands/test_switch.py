"""`kubectl fallback off` and `on`: where the ConfigMap says that nothing is decided."""

import pytest

from tests.commands.calling import call_on

NAME = "kueue-fallback-off"
PATH = "/api/v1/namespaces/{}/configmaps"
AFTER = "new Jobs are left as they are submitted; on again: kubectl fallback on\n"
CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"


class Release:
    """An API server with the ConfigMap of one release, or without."""

    def __init__(self, data=None, *, namespace="kueue-fallback", conflicts=0, may_list=True):
        self.data, self.namespace, self.conflicts = data, namespace, conflicts
        self.may_list, self.asked = may_list, []

    def __call__(self, method, url, body):
        if url.startswith(CONFIGURATIONS):
            return self.configurations()
        self.asked.append(method)
        path = PATH.format(self.namespace)
        if url not in (path, f"{path}/{NAME}"):
            return 404, [], {"message": "not found"}
        if method != "GET" and self.conflicts:
            self.conflicts -= 1
            return 409, [], {"message": "changed"}
        if method == "DELETE":
            self.data = None
        elif method in ("POST", "PUT"):
            self.data = body["data"]
        elif self.data is None:
            return 404, [], {"message": "not found"}
        metadata = {"name": NAME, "namespace": self.namespace, "resourceVersion": "1"}
        return 200, [], {"metadata": metadata, "data": self.data}

    def configurations(self):
        if not self.may_list:
            return 403, [], {"message": "you cannot list webhooks"}
        config = {"service": {"namespace": self.namespace}}
        hooks = [{"name": "create.kueue-fallback.dev", "clientConfig": config}]
        return 200, [], {"metadata": {}, "items": [{"webhooks": hooks}]}


@pytest.fixture
def run(tmp_path):
    def ran(release, *words):
        return call_on(release, tmp_path, *words)

    return ran


@pytest.mark.parametrize(
    ("before", "words", "after", "said"),
    [
        (None, ["off"], {}, "Off: "),
        (None, ["off", "-n", "b", "-n", "a"], {"namespaces": "a,b"}, "Off in a, b: "),
        ({"namespaces": "a"}, ["off", "-n", "b"], {"namespaces": "a,b"}, "Off in a, b: "),
        ({"namespaces": "a"}, ["off"], {}, "Off: "),
        ({}, ["off", "-n", "a"], {}, "Off: "),
    ],
)
def test_off_adds_to_what_is_off(run, before, words, after, said):
    release = Release(before)

    result = run(release, *words)

    assert (result.exit_code, result.output) == (0, said + AFTER)
    assert release.data == after


@pytest.mark.parametrize(
    ("before", "words", "after", "said"),
    [
        (None, ["on"], None, "Decisions were not off.\n"),
        ({}, ["on"], None, "On: new Jobs are decided.\n"),
        ({"namespaces": "a"}, ["on"], None, "On: new Jobs are decided.\n"),
        ({"namespaces": "a"}, ["on", "-n", "a"], None, "On: new Jobs are decided.\n"),
        ({"namespaces": "a"}, ["on", "-n", "b"], {"namespaces": "a"}, "Decisions were not off.\n"),
        (
            {"namespaces": "a b, c"},
            ["on", "-n", "b"],
            {"namespaces": "a,c"},
            "On in b: new Jobs are decided; still off in a, c.\n",
        ),
    ],
)
def test_on_takes_it_back(run, before, words, after, said):
    release = Release(before)

    result = run(release, *words)

    assert (result.exit_code, result.output) == (0, said)
    assert release.data == after


def test_one_namespace_cannot_be_taken_out_of_everywhere(run):
    release = Release({})

    result = run(release, "on", "-n", "a")

    assert (result.exit_code, release.data) == (1, {})
    assert result.stderr.startswith(
        "Decisions are off everywhere, so a alone cannot be switched on."
    )


def test_what_is_off_is_never_on_in_between(run):
    release = Release({"namespaces": "a"})

    run(release, "off", "-n", "b")

    assert release.asked == ["GET", "PUT"]


@pytest.mark.parametrize(
    ("words", "may_list", "found"),
    [((), True, True), ((), False, False), (("--release-namespace", "ours"), False, True)],
)
def test_the_release_is_found_where_reviews_are_sent_to(run, words, may_list, found):
    release = Release(namespace="ours", may_list=may_list)

    result = run(release, "off", *words)

    assert (result.exit_code, release.data) == ((0, {}) if found else (1, None))


@pytest.mark.parametrize(("conflicts", "code"), [(2, 0), (3, 1)])
def test_a_change_by_somebody_else_is_seen(run, conflicts, code):
    release = Release(conflicts=conflicts)

    result = run(release, "off")

    assert (result.exit_code, release.data) == (code, None if code else {})
