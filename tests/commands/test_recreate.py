"""`undo --recreate`: the Job is deleted and created as submitted, and is never lost."""

import copy
import re
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml
from click.testing import CliRunner

from tests.builders import GPU_OPTION, policy
from tests.commands.apiserver import serving
from tests.commands.cluster import KUEUE_VERSIONS
from tests.flow.moves import pending, plain, reconsidering, with_spec
from tests.reviews import light_job
from tests.servers import Server
from webhook.commands import undo as undoing
from webhook.commands.undo import command
from webhook.model.job import UNDONE

POLICY = "kueue-fallback.dev/policy"
REASON = "kueue-fallback.dev/reason"
QUEUE = "kueue.x-k8s.io/queue-name"
JOBS = "/apis/batch/v1/namespaces/team/jobs"
JOB = f"{JOBS}/light"
WORKLOADS = "/apis/kueue.x-k8s.io/v1beta2/namespaces/team/workloads"
UID = "11111111-2222"
TOLD = {
    POLICY: "none",
    UNDONE: "light-gpu",
    REASON: "kueue-fallback: undone: deleted and created anew as submitted; "
    "decided no more (kueue-fallback.dev/policy: none)",
}
OTHER_IMAGE = policy(
    GPU_OPTION,
    {
        "name": "cpu",
        "queue": "cpu-lq",
        "adaptation": {"accelerator": "Remove", "image": "sd-cpu", "env": {"RUN_ENV": "cpu"}},
    },
).spec.options
OWNER = {"apiVersion": "batch/v1", "kind": "CronJob", "name": "c", "uid": "u", "controller": True}


class ApiServer:
    """Holds one Job; `refuses` maps a method to answers that come first, None: as always."""

    def __init__(self, job, **refuses):
        self.job, self.asked = job, []
        self.refuses = {method: list(answers) for method, answers in refuses.items()}

    def __call__(self, method, url, body):
        parts = urlsplit(url)
        dry = "dryRun" in parts.query
        self.asked.append((f"dry {method}" if dry else method, body))
        waiting = self.refuses.get(self.asked[-1][0], [])
        if waiting and (answer := waiting.pop(0)) is not None:
            if callable(answer):
                answer = answer(self)
            return answer[0], [], {"message": answer[1]}
        if method == "DELETE":
            return self.delete(body)
        if method == "POST":
            return self.create(body, dry=dry)
        if self.job is None or parts.path != JOB:
            return 404, [], {"message": "not found"}
        return 200, [], self.job

    def delete(self, options):
        conditions, metadata = options["preconditions"], self.job["metadata"]
        if conditions != {name: metadata[name] for name in conditions}:
            return 409, [], {"message": "the object has been modified"}
        self.job = None
        return 200, [], {}

    def create(self, body, *, dry):
        if not dry and self.job is not None:
            return 409, [], {"message": "already exists"}
        created = copy.deepcopy(body)
        created["metadata"] |= {"uid": "new", "resourceVersion": "9"}
        if not dry:
            self.job = created
        return 201, [], created

    @property
    def methods(self):
        return [method for method, _ in self.asked]


@pytest.fixture
def undo(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(undoing, "_POLL_SECONDS", 0.0)

    def run(cluster, *words, answers=None, yes=True):
        given = ["light", "--recreate", *(["--yes"] if yes else []), *words]
        with serving(cluster, tmp_path, namespace="team") as kubeconfig:
            return CliRunner().invoke(command, [*given, "--kubeconfig", kubeconfig], input=answers)

    return run


def left_behind(tmp_path):
    return sorted(tmp_path.glob("light-*.yaml"))


def submitted(**metadata):
    job = light_job(annotations={"note": "mine"})
    job["metadata"] |= {"generateName": "li", "ownerReferences": [OWNER], **metadata}
    return job


def stored(job=None, **spec):
    """The Job as the cluster has it, decided to run another image elsewhere."""
    server = Server(with_spec(reconsidering(), options=OTHER_IMAGE))
    found = pending(server.create(job or submitted())[0])
    found["metadata"] |= {
        "uid": UID,
        "resourceVersion": "7",
        "generation": 1,
        "managedFields": [{"manager": "kubectl"}],
    }
    found["spec"] |= {
        "selector": {"matchLabels": {"batch.kubernetes.io/controller-uid": UID}},
        **spec,
    }
    names = ("controller-uid", "batch.kubernetes.io/controller-uid", "job-name")
    found["spec"]["template"]["metadata"]["labels"] |= dict.fromkeys(names, UID)
    return found


def as_submitted(job=None):
    found = copy.deepcopy(job or submitted())
    found["metadata"]["annotations"] |= TOLD
    found["spec"]["suspend"] = True
    return plain(found)


def test_it_is_deleted_and_created_as_submitted(undo, tmp_path):
    cluster = ApiServer(stored())

    result = undo(cluster)

    assert cluster.methods == ["GET", "dry POST", "DELETE", "POST"]
    (_, tried), (_, deleted), (_, created) = cluster.asked[1:]
    assert plain(created) == as_submitted()
    assert tried["metadata"] == {
        key: value for key, value in created["metadata"].items() if key != "name"
    }
    assert deleted["preconditions"] == {"uid": UID, "resourceVersion": "7"}
    assert deleted["propagationPolicy"] == "Background"
    assert (result.exit_code, left_behind(tmp_path)) == (0, [])
    assert result.stdout.startswith("Job team/light is as it was submitted, in LocalQueue gpu-lq.")


def test_it_asks_first(undo):
    cluster = ApiServer(before := stored())

    result = undo(cluster, answers="n\n", yes=False)

    assert (cluster.methods, cluster.job) == (["GET", "dry POST"], before)
    assert result.exit_code == 1
    assert result.stderr == (
        "Job team/light will be deleted, and created anew as it was submitted, in LocalQueue "
        "gpu-lq.\nIt gets another UID, and goes to the end of its queue.\n"
        "Delete and create it? [y/N]: n\nJob team/light is unchanged.\n"
    )


def test_a_dry_run_prints_the_manifest(undo):
    cluster = ApiServer(before := stored())

    result = undo(cluster, "--dry-run", yes=False)

    assert (cluster.methods, cluster.job) == (["GET", "dry POST"], before)
    assert plain(yaml.safe_load(result.stdout)) == as_submitted()
    text = "Job team/light would be as it was submitted, in LocalQueue gpu-lq.\n"
    assert (result.exit_code, result.stderr) == (0, text)


def test_what_the_api_server_would_not_create_is_not_deleted(undo, tmp_path):
    for status in (403, 422):
        cluster = ApiServer(before := stored(), **{"dry POST": [(status, "too big")]})

        result = undo(cluster)

        assert (cluster.methods, cluster.job) == (["GET", "dry POST"], before)
        assert (result.exit_code, left_behind(tmp_path)) == (1, [])
        assert "the API server would not create it: too big" in result.stderr


def with_suspend(job, *, suspended):
    job["spec"]["suspend"] = suspended


def with_uid(job):
    job["metadata"]["uid"] = "other"


def with_note(job):
    job["metadata"]["annotations"]["note"] = "another"


@pytest.mark.parametrize(
    "change", [with_note, with_uid, lambda job: with_suspend(job, suspended=False)]
)
def test_what_changes_meanwhile_is_not_deleted(undo, tmp_path, change):
    def changing(cluster):
        cluster.job["metadata"]["resourceVersion"] = "8"
        change(cluster.job)
        return 409, "modified"

    cluster = ApiServer(stored(), DELETE=[changing])

    result = undo(cluster)

    assert (cluster.job["metadata"]["name"], left_behind(tmp_path)) == ("light", [])
    assert cluster.methods.count("POST") == 0
    text = "Job team/light is not undone: it has changed meanwhile. Try again.\n"
    assert (result.exit_code, result.stderr) == (1, text)


@pytest.mark.parametrize("status", [403, 404])
def test_what_may_not_be_deleted_is_as_it_was(undo, tmp_path, status):
    cluster = ApiServer(stored(), DELETE=[(status, "no")])

    result = undo(cluster)

    assert (result.exit_code, left_behind(tmp_path)) == (1, [])
    assert result.stderr.startswith("Job team/light is not undone: no")


@pytest.mark.parametrize("method", ["DELETE", "POST"])
def test_what_fails_halfway_leaves_the_manifest_and_says_how_to_create_it(undo, tmp_path, method):
    cluster = ApiServer(stored(), **{method: [(500, "no leader")]})

    result = undo(cluster)

    (file,) = left_behind(tmp_path)
    assert plain(yaml.safe_load(file.read_text())) == as_submitted()
    assert result.exit_code == 1
    assert result.stderr == (
        "500 no leader\n"
        f"Job team/light may not exist any more. Its manifest is in {file}.\n"
        f"To create it:\n  kubectl create -f {file}\n"
    )


def test_it_waits_until_the_old_one_is_gone(undo):
    cluster = ApiServer(stored(), POST=[(409, "is being deleted"), (409, "is being deleted")])

    assert undo(cluster).exit_code == 0
    assert cluster.methods[3:] == ["POST", "GET", "POST", "GET", "POST"]


def test_a_job_that_another_has_created_meanwhile_is_left_alone(undo, tmp_path):
    def taken(cluster):
        cluster.job = {"metadata": {"uid": "of another"}}
        return 409, "already exists"

    cluster = ApiServer(stored(), POST=[taken])

    result = undo(cluster)

    assert cluster.job["metadata"]["uid"] == "of another"
    assert (result.exit_code, len(left_behind(tmp_path))) == (1, 1)
    assert "already exists" in result.stderr


def running(**status):
    """The Job after Kueue has started it, with what Kueue then adds, and the Workload of it."""
    job = stored()
    workload = {
        "metadata": {"name": "job-light", "namespace": "team"},
        "spec": {"podSets": [{"template": copy.deepcopy(job["spec"]["template"])}]},
    }
    job["spec"]["suspend"] = False
    job["spec"]["template"]["spec"]["nodeSelector"] = {"pool": "cpu"}
    began = datetime.now(UTC) - timedelta(minutes=40)
    job["status"] = {"active": 1, "startTime": began.strftime("%Y-%m-%dT%H:%M:%SZ"), **status}
    return job, workload


class WithWorkload(ApiServer):
    def __init__(self, job, workload, **refuses):
        super().__init__(job, **refuses)
        self.workload, self.read = workload, []

    def __call__(self, method, url, body):
        path = urlsplit(url).path
        if path == "/apis/kueue.x-k8s.io":
            return 200, [], KUEUE_VERSIONS
        if path == WORKLOADS:
            self.read.append(parse_qs(urlsplit(url).query)["labelSelector"])
            if self.workload is None:
                return 403, [], {"message": "you cannot list workloads"}
            return 200, [], {"metadata": {}, "items": [self.workload]}
        return super().__call__(method, url, body)


def test_what_runs_is_created_anew_after_it_is_said_what_is_lost(undo):
    cluster = WithWorkload(*running())

    result = undo(cluster, answers="y\n", yes=False)

    assert cluster.read == [[f"kueue.x-k8s.io/job-uid={UID}"]]
    assert plain(cluster.asked[-1][1]) == as_submitted()
    assert re.match("It has run for 40m.*: what it has done until now is lost.\n", result.stderr)
    assert result.exit_code == 0


def test_what_changes_in_its_status_alone_meanwhile_is_created_anew(undo, tmp_path):
    def counted(cluster):
        version = int(cluster.job["metadata"]["resourceVersion"])
        cluster.job["metadata"]["resourceVersion"] = str(version + 1)
        cluster.job["status"]["ready"] = version
        return 409, "modified"

    cluster = WithWorkload(*running(), DELETE=[counted, counted])

    result = undo(cluster)

    assert (result.exit_code, left_behind(tmp_path)) == (0, []), result.stderr
    assert plain(cluster.asked[-1][1]) == as_submitted()


def test_what_runs_stays_where_its_owner_says_no(undo):
    job, workload = running()
    cluster = WithWorkload(job, workload)

    assert undo(cluster, answers="n\n", yes=False).exit_code == 1
    assert cluster.job is job


def test_what_runs_stays_where_nothing_tells_what_kueue_added(undo):
    job, _ = running()
    cluster = WithWorkload(job, None)

    result = undo(cluster)

    assert (cluster.job, result.exit_code) == (job, 1)
    assert (
        "its Workload alone, and that\ncannot be read: you cannot list workloads" in result.stderr
    )
    assert "submitted again with the annotation kueue-fallback.dev/policy: none" in result.stderr


def test_what_has_ended_or_is_being_stopped_is_never_deleted(undo):
    ended = [{"type": "Complete", "status": "True"}]
    for change in (
        {"spec": {"suspend": False}, "status": {"conditions": ended}},
        {"status": {"active": 1}},
    ):
        job = stored()
        for field, values in change.items():
            job.setdefault(field, {}).update(values)
        cluster = ApiServer(job)

        result = undo(cluster)

        assert (cluster.methods, result.exit_code) == (["GET"], 1)
        assert result.stderr.startswith("Job team/light is not undone: it ")


def test_a_finalizer_that_would_hold_it_is_named(undo):
    cluster = ApiServer(stored(submitted(finalizers=["example.com/keep"])))

    result = undo(cluster)

    text = "Job team/light is not undone: its deletion would wait for example.com/keep.\n"
    assert (cluster.methods, result.stderr) == (["GET"], text)


def test_a_job_without_a_decision_is_not_deleted(undo):
    cluster = ApiServer(pending(light_job()))

    assert undo(cluster).exit_code == 1
    assert cluster.methods == ["GET"]


def test_a_decision_that_cannot_be_read_deletes_nothing(undo):
    job = stored()
    job["metadata"]["annotations"]["kueue-fallback.dev/decision"] = "{}"
    cluster = ApiServer(job)

    result = undo(cluster)

    assert (cluster.methods, result.exit_code) == (["GET"], 1)
    assert result.stderr == "Job team/light is not undone: something in it cannot be read.\n"


def test_what_kueue_said_of_other_clusters_is_left_to_kueue(undo):
    cluster = ApiServer(stored(managedBy="kueue.x-k8s.io/multikueue"))

    assert undo(cluster).exit_code == 0
    assert "managedBy" not in cluster.job["spec"]


def test_a_job_that_named_no_queue_is_not_left_suspended(undo):
    job = stored()
    decision = job["metadata"]["annotations"]["kueue-fallback.dev/decision"]
    queue = '"/metadata/labels/kueue.x-k8s.io~1queue-name":'
    decision = decision.replace(f'{queue}"gpu-lq"', f"{queue}null")
    job["metadata"]["annotations"]["kueue-fallback.dev/decision"] = decision
    cluster = ApiServer(job)

    result = undo(cluster, answers="y\n", yes=False)

    assert QUEUE not in cluster.job["metadata"]["labels"]
    assert "suspend" not in cluster.job["spec"]
    assert "It names no queue, so it starts as soon as it is created.\n" in result.stderr


def test_the_file_is_not_for_others_to_read(undo, tmp_path):
    cluster = ApiServer(stored(), POST=[(500, "no leader")])

    undo(cluster)

    (file,) = left_behind(tmp_path)
    assert Path(file).stat().st_mode & 0o077 == 0
