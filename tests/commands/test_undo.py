"""What `undo` and `move` ask for, and what they make of the answers."""

import copy
import json
from urllib.parse import urlsplit

import pytest
from click.testing import CliRunner

from tests.commands.apiserver import serving
from tests.commands.calling import call
from tests.flow.movable_jobs import UNNAMED
from tests.flow.moves import pending, plain, reconsidering, with_spec
from tests.reviews import light_job
from tests.servers import Server
from webhook.commands.undo import TRIES, command
from webhook.model.policy.fallback_policy import Mode

DECISION = "kueue-fallback.dev/decision"
MOVE_TO = "kueue-fallback.dev/move-to"
OPTION = "kueue-fallback.dev/option"
POLICY = "kueue-fallback.dev/policy"
LEFT = "kueue-fallback.dev/undone"
REASON = "kueue-fallback.dev/reason"
TOLD = (
    "kueue-fallback: undone: in gpu-lq as submitted, and decided no more "
    "(kueue-fallback.dev/policy: none)"
)
PATH = "/apis/batch/v1/namespaces/team/jobs/light"
WISH = {"resourceVersion": "7", "annotations": {MOVE_TO: "none"}}
UNPIN = """\
It is left alone from now on. To let policies decide it again, if they adopt pending Jobs:
  kubectl annotate job light -n team kueue-fallback.dev/policy-
"""


class Cluster:
    """An API server that holds one Job, with the webhook behind it or without."""

    def __init__(self, server, job, *, webhook=True, conflicts=0):
        self.server, self.webhook, self.conflicts = server, webhook, conflicts
        self.job, self.asked = job, []

    def __call__(self, method, path, body):
        self.asked.append((method, path, body))
        if self.job is None or urlsplit(path).path != PATH:
            return 404, [], {"message": "not found"}
        if method == "GET":
            return 200, [], self.job
        if self.conflicts:
            self.conflicts -= 1
            return 409, [], {"message": "the object has been modified"}
        after, warnings = merged(self.job, body["metadata"]), []
        if self.webhook:
            after, warnings = self.server.update(self.job, after)
        if "dryRun" not in path:
            self.job = after
        return 200, [("Warning", f"299 - {json.dumps(text)}") for text in warnings], after

    @property
    def patched(self):
        return [body["metadata"] for method, _, body in self.asked if method == "PATCH"]


def merged(job, metadata):
    found = copy.deepcopy(job)
    for field in ("annotations", "labels"):
        texts = {**found["metadata"].get(field, {}), **metadata.get(field, {})}
        found["metadata"][field] = {k: v for k, v in texts.items() if v is not None}
    return found


@pytest.fixture
def server():
    return Server(with_spec(reconsidering(), options=UNNAMED))


def stored(server, **spec):
    job = pending(server.create(light_job())[0])
    job["metadata"]["resourceVersion"] = "7"
    return {**job, "spec": {**job["spec"], **spec}}


@pytest.fixture
def undo(tmp_path):
    def run(cluster, *words):
        with serving(cluster, tmp_path, namespace="team") as kubeconfig:
            return CliRunner().invoke(command, [*words, "--kubeconfig", kubeconfig])

    return run


def test_a_pending_job_goes_back_and_is_told_how_to_unpin_it(server, undo):
    cluster = Cluster(server, stored(server))

    result = undo(cluster, "light")

    assert cluster.patched == [WISH]
    assert plain(cluster.job["spec"]) == plain(pending(light_job())["spec"])
    annotations = cluster.job["metadata"]["annotations"]
    assert (annotations[POLICY], annotations[REASON]) == ("none", TOLD)
    assert annotations[LEFT] == "light-gpu"
    text = "Job team/light is as it was submitted, in LocalQueue gpu-lq.\n"
    assert (result.exit_code, result.stdout) == (0, text + UNPIN)
    assert result.stderr == f"Warning: {TOLD}\n"


def test_a_dry_run_changes_nothing(server, undo):
    before = stored(server)
    cluster = Cluster(server, before)

    result = undo(cluster, "light", "--dry-run")

    assert cluster.asked[-1][1] == f"{PATH}?dryRun=All"
    assert cluster.job == before
    text = "Job team/light would be as it was submitted, in LocalQueue gpu-lq.\n"
    assert (result.exit_code, result.stdout) == (0, text)


def test_a_decision_that_left_no_label_is_undone_too(undo):
    server = Server(with_spec(reconsidering(), mode=Mode.ADVISE))
    cluster = Cluster(server, stored(server))

    result = undo(cluster, "light")

    assert cluster.patched == [{**WISH, "labels": {OPTION: "none"}}]
    assert (OPTION in cluster.job["metadata"]["labels"], result.exit_code) == (False, 0)


@pytest.mark.parametrize(("conflicts", "code"), [(TRIES - 1, 0), (TRIES, 1)])
def test_a_job_that_changed_meanwhile_is_read_again(server, undo, conflicts, code):
    cluster = Cluster(server, stored(server), conflicts=conflicts)

    result = undo(cluster, "light")

    methods = [method for method, *_ in cluster.asked]
    assert methods == ["GET", "PATCH"] * min(conflicts + 1, TRIES)
    assert result.exit_code == code
    assert ("keeps changing" in result.stderr) == bool(code)


@pytest.mark.parametrize("added", [{}, {OPTION: None}])
def test_without_the_webhook_the_job_is_left_as_it_was(server, undo, added):
    before = stored(server)
    if added:
        del before["metadata"]["labels"][OPTION]
    cluster = Cluster(server, before, webhook=False)

    result = undo(cluster, "light")

    labels = {"labels": added} if added else {}
    assert cluster.patched[1:] == [{"annotations": {MOVE_TO: None}, **labels}]
    assert cluster.job == before
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == (
        "The webhook did not answer, so Job team/light is unchanged.\n"
        "`kubectl fallback probe` says whether the API server calls it.\n"
    )


def test_a_wish_that_cannot_be_taken_off_again_is_named(server, undo):
    cluster = Cluster(server, stored(server), webhook=False)

    def answer(method, path, body):
        if cluster.patched:
            return 500, [], {"message": "no leader"}
        return cluster(method, path, body)

    result = undo(answer, "light")

    assert result.exit_code == 1
    assert result.stderr.startswith(f"Its annotation {MOVE_TO} could not be removed again: 500")


def test_what_the_webhook_refuses_is_said_in_its_words(server, undo):
    before = stored(server)
    before["metadata"]["annotations"][DECISION] = "{}"
    cluster = Cluster(server, before)

    result = undo(cluster, "light")

    assert (cluster.job, result.exit_code) == (before, 1)
    assert result.stderr == (
        "Warning: kueue-fallback: not undone: its decision cannot be read\n"
        "Job team/light is unchanged.\n"
    )


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["job/a b/c", "-n", "other"], "There is no Job other/a b/c.\n"),
        (["job/lihgt"], "There is no Job team/lihgt (there is light).\n"),
    ],
)
def test_a_job_that_is_not_there_is_missing_beside_the_nearest(server, undo, words, text):
    cluster = Cluster(server, stored(server))

    def answer(method, path, body):
        if urlsplit(path).path == PATH.rpartition("/")[0]:
            return 200, [], {"metadata": {}, "items": [cluster.job]}
        return cluster(method, path, body)

    result = undo(answer, *words)

    assert (result.exit_code, result.stderr, cluster.patched) == (1, text, [])


def test_a_job_without_a_decision_is_not_touched(server, undo):
    cluster = Cluster(server, pending(light_job()))

    result = undo(cluster, "light")

    assert (cluster.patched, result.exit_code) == ([], 1)
    assert result.stderr == (
        "Job team/light carries no decision: there is nothing to undo.\n"
        "To have it left alone anyway:\n"
        "  kubectl annotate job light -n team kueue-fallback.dev/policy=none\n"
    )


def test_what_has_started_is_not_touched(server, undo):
    cluster = Cluster(server, stored(server, suspend=False))

    result = undo(cluster, "light")

    assert (cluster.patched, result.exit_code) == ([], 1)
    assert result.stderr == (
        "Job team/light is not undone: it is no longer suspended; "
        "what has started cannot be undone in place.\n"
        "It can be deleted and created as it was submitted, at the end of its queue, whereby what "
        "it has done is lost:\n"
        "  kubectl fallback undo light -n team --recreate\n"
    )


WAY_OUT = """\
It can be deleted and created as it was submitted, at the end of its queue:
  kubectl fallback undo light -n team --recreate
"""
IMMUTABLE = "spec.template: field is immutable"
TEMPLATE = {"field": "spec.template", "reason": "FieldValueInvalid"}
CAUSES = {422: [TEMPLATE], 400: [], 403: []}
OLDER = "its resources would change, which Kubernetes allows from 1.36 on only"


@pytest.mark.parametrize(
    ("status", "code", "text"),
    [
        (422, 1, f"Job team/light is unchanged: {OLDER}: {IMMUTABLE} (422)\n{WAY_OUT}"),
        (400, 1, f"Job team/light is unchanged: {IMMUTABLE} (400)\n{WAY_OUT}"),
        (403, 1, f"{IMMUTABLE}\n"),
    ],
)
def test_what_the_api_server_refuses_is_said_in_its_words(server, undo, status, code, text):
    cluster = Cluster(server, stored(server))

    def answer(method, path, body):
        if method == "PATCH":
            return status, [], {"message": IMMUTABLE, "details": {"causes": CAUSES[status]}}
        return cluster(method, path, body)

    result = undo(answer, "light")

    assert (result.exit_code, result.stderr) == (code, text)


@pytest.fixture
def move(tmp_path):
    def run(cluster, *words):
        with serving(cluster, tmp_path, namespace="team") as kubeconfig:
            return call("move", *words, "--kubeconfig", kubeconfig)

    return run


def test_a_pending_job_is_moved_to_an_option(server, move):
    cluster = Cluster(server, stored(server))

    result = move(cluster, "light", "--to", "gpu")

    assert cluster.patched == [{"resourceVersion": "7", "annotations": {MOVE_TO: "gpu"}}]
    assert cluster.job["metadata"]["labels"][OPTION] == "gpu"
    assert (result.exit_code, result.stdout) == (
        0,
        "Job team/light is in LocalQueue gpu-lq (gpu).\n",
    )


def test_a_move_by_a_dry_run_changes_nothing(server, move):
    before = stored(server)
    cluster = Cluster(server, before)

    result = move(cluster, "light", "--to", "gpu", "--dry-run")

    assert cluster.job == before
    assert result.stdout == "Job team/light would be in LocalQueue gpu-lq (gpu).\n"


def test_an_option_that_is_not_there_is_refused_with_the_webhooks_reason(server, move):
    result = move(Cluster(server, stored(server)), "light", "--to", "tpu")

    assert result.exit_code == 1
    assert result.stderr.startswith("Warning: kueue-fallback: not moved to tpu: ")
    assert result.stderr.endswith("Job team/light is unchanged.\n")


def test_a_move_that_nobody_answers_is_taken_off_again(server, move):
    cluster = Cluster(server, stored(server), webhook=False)

    result = move(cluster, "light", "--to", "gpu")

    assert MOVE_TO not in cluster.job["metadata"]["annotations"]
    assert (result.exit_code, result.stderr) == (
        1,
        "The webhook did not answer, so Job team/light is unchanged.\n",
    )


NO_OPTION = "Job team/light carries no decision: there is no option to move it to.\n"


@pytest.mark.parametrize(
    ("job", "text"),
    [
        (merged(pending(light_job()), {"annotations": {}}), NO_OPTION),
        (None, "There is no Job team/light.\n"),
    ],
    ids=["without a decision", "not there"],
)
def test_what_cannot_be_moved_is_not_asked_for(server, move, job, text):
    cluster = Cluster(server, job)

    result = move(cluster, "light", "--to", "gpu")

    assert (result.exit_code, result.stderr, cluster.patched) == (1, text, [])
