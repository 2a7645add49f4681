"""`kubectl fallback check --sample`: every option is tried on the cluster, past the webhook."""

import json
from pathlib import Path

import pytest
import yaml

from tests import kinds
from tests.commands.calling import call_on
from tests.commands.cluster import Cluster
from webhook.commands import deciding
from webhook.commands.check_sample import as_submitted

SNAPSHOT = json.loads(Path("examples/snapshot.json").read_text(encoding="utf-8"))["items"]
POLICY, JOB = "examples/policy.yaml", "examples/light-job.yaml"
JOBS = "/apis/batch/v1/namespaces/research/jobs"
PODS = "/api/v1/namespaces/research/pods"
VALID = f"{POLICY}:3: FallbackPolicy light-gpu is valid\n"
NOTE = (
    f"{POLICY}:21: spec.options[1].adaptation.env.RUN_ENV: undo needs --recreate "
    "for Jobs that do not set RUN_ENV to one value in all their containers\n"
)
NO_RIGHT = 'pods is forbidden: User "u" cannot create resource "pods" in API group ""'
TOO_BIG = 'pods "light-x" is forbidden: maximum cpu usage per Container is 2, but limit is 4'


class Creating:
    """Answers creates by path, and remembers what was to be created."""

    def __init__(self, **answers):
        self.answers, self.bodies = answers, []

    def __call__(self, path, query, body):
        assert query == {"dryRun": "All"}
        self.bodies.append((path, body))
        answer = self.answers.get("pods" if path == PODS else "jobs")
        refused = answer and answer(body)
        return (*refused[:1], [], {"message": refused[1]}) if refused else (201, [], body)

    def of(self, path):
        return [body for where, body in self.bodies if where == path]


@pytest.fixture
def check(tmp_path):
    def run(creating, *words, forbidden=(), policy=POLICY, **texts):
        cluster = Cluster(*SNAPSHOT, created=creating, forbidden=forbidden, **texts)
        given = ("check", "-f", policy, "--sample", JOB, *words)
        return call_on(cluster, tmp_path, *given, namespace="other")

    return run


def is_cpu(body):
    (container,) = body["spec"].get("template", body)["spec"]["containers"]
    return "nvidia.com/gpu" not in container["resources"].get("limits", {})


def test_each_option_is_tried_as_admission_would_make_it(check):
    creating = Creating()

    result = check(creating)

    assert (result.exit_code, result.output) == (
        0,
        VALID
        + NOTE
        + "light-gpu: option gpu (gpu-lq): accepted\n"
        + "light-gpu: option cpu (cpu-lq): accepted\n",
    )
    jobs = creating.of(JOBS)
    assert [job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] for job in jobs] == [
        "gpu-lq",
        "cpu-lq",
    ]
    assert {job["metadata"]["annotations"]["kueue-fallback.dev/policy"] for job in jobs} == {"none"}
    assert [is_cpu(job) for job in jobs] == [False, True]
    (_, pod) = creating.of(PODS)
    assert pod["metadata"]["annotations"]["kueue-fallback.dev/env.RUN_ENV"] == "cpu"
    assert pod["metadata"]["labels"]["kueue-fallback.dev/option"] == "cpu"


def test_what_the_api_server_refuses_is_said_in_its_words(check):
    creating = Creating(
        jobs=lambda body: None if is_cpu(body) else (422, "spec.template: wrong"),
        pods=lambda body: (403, TOO_BIG),
    )

    result = check(creating, "-o", "json")

    assert result.exit_code == 1
    assert json.loads(result.output)["sample"] == [
        {
            "policy": "light-gpu",
            "option": "gpu",
            "queue": "gpu-lq",
            "accepted": False,
            "refusals": ["spec.template: wrong (422)"],
            "notes": [],
        },
        {
            "policy": "light-gpu",
            "option": "cpu",
            "queue": "cpu-lq",
            "accepted": False,
            "refusals": [f"its pods: {TOO_BIG}"],
            "notes": [],
        },
    ]


def test_who_may_not_create_pods_is_told_that_none_was_tried(check):
    result = check(Creating(pods=lambda body: (403, NO_RIGHT)))

    assert result.exit_code == 0
    assert result.output.count(f"  its pods were not tried: {NO_RIGHT}\n") == 2


def test_who_may_not_create_jobs_cannot_try(check):
    text = NO_RIGHT.replace("pods", "jobs")

    result = check(Creating(jobs=lambda body: (403, text)))

    assert (result.exit_code, result.stderr) == (1, f"{text}\n")


def with_adaptation(tmp_path, **adaptation):
    policy = yaml.safe_load(Path(POLICY).read_text(encoding="utf-8"))
    policy["spec"]["options"][1]["adaptation"] |= adaptation
    path = tmp_path / "policy.yaml"
    path.write_text(yaml.safe_dump(policy))
    return str(path)


def undo_notes(result):
    return [line.strip() for line in result.stdout.splitlines() if line.startswith("  undo")]


def test_where_this_job_could_be_undone_in_place_nothing_is_said(check):
    assert undo_notes(check(Creating())) == []


@pytest.mark.parametrize(
    ("adaptation", "why"),
    [
        ({"image": "sd-cpu"}, "the image would change"),
        ({"env": {"MODE": "cpu"}}, "an environment variable would change"),
        ({"runtimeClassName": "gvisor"}, "the runtime class would change"),
    ],
)
def test_what_cannot_be_undone_in_place_is_said_of_this_job(check, tmp_path, adaptation, why):
    result = check(Creating(), policy=with_adaptation(tmp_path, **adaptation))

    creation = "which Kubernetes allows at creation only"
    assert undo_notes(result) == [f"undo needs --recreate: {why}, {creation}"]


def test_an_older_kubernetes_takes_resources_at_creation_only(check):
    older = {"/version": (200, [], {"major": "1", "minor": "35"})}

    result = check(Creating(), texts=older)

    why = "its resources would change, which Kubernetes allows from 1.36 on only"
    assert undo_notes(result) == [f"undo needs --recreate: {why}"]


def test_what_kueue_gives_to_other_clusters_is_said(check):
    def answer(path, query, body):
        if path == JOBS:
            body = {**body, "spec": {**body["spec"], "managedBy": "kueue.x-k8s.io/multikueue"}}
        return 201, [], body

    result = check(answer)

    why = "another controller or cluster runs it (managedBy, MultiKueue)"
    assert undo_notes(result) == [f"undo needs --recreate: {why}"] * 2


def test_a_queue_that_is_not_there_is_refused_with_the_nearest(check, tmp_path):
    path = tmp_path / "policy.yaml"
    path.write_text(Path(POLICY).read_text(encoding="utf-8").replace("queue: cpu-lq", "queue: cpu"))

    result = check(Creating(), policy=str(path))

    assert result.exit_code == 1
    assert result.output.endswith(
        "light-gpu: option cpu (cpu): refused: "
        "LocalQueue cpu not found in namespace research (there is cpu-lq)\n"
    )


@pytest.mark.parametrize(
    ("target", "forbidden", "verdict"),
    [
        ("cpu-cq", (), "option cpu (cpu-lq): accepted"),
        ("none", (), "no LocalQueue of namespace research for ClusterQueue none"),
        ("cpu-cq", ("*/localqueues",), "points to it cannot be seen"),
    ],
)
def test_an_option_may_name_a_cluster_queue(check, tmp_path, target, forbidden, verdict):
    policy = yaml.safe_load(Path(POLICY).read_text(encoding="utf-8"))
    option = policy["spec"]["options"][1]
    del option["queue"]
    option["clusterQueue"] = target
    path = tmp_path / "policy.yaml"
    path.write_text(yaml.safe_dump(policy))

    result = check(Creating(), policy=str(path), forbidden=forbidden)

    assert verdict in result.output


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (("name: diffusion", "name: 7"), "job.yaml:19: spec.template.spec.containers[0].name: "),
        (("kind: Job", "kind: CronJob"), "job.yaml:10: spec.jobTemplate: expected an object"),
        (("  template:", " template: ["), "job.yaml:13: not YAML: "),
    ],
)
def test_a_sample_that_cannot_be_read_is_named_with_its_line(check, tmp_path, changed, message):
    path = tmp_path / "job.yaml"
    path.write_text(Path(JOB).read_text(encoding="utf-8").replace(*changed, 1))

    result = check(Creating(), "--sample", str(path))

    assert result.exit_code == 2
    assert message in result.stderr


def test_a_job_of_the_cluster_is_tried_as_it_was_submitted():
    submitted = yaml.safe_load(Path(JOB).read_text(encoding="utf-8"))
    view = deciding.view_of_file("examples/snapshot.json", ())
    job = deciding.patched(submitted, deciding.consider_manifest(submitted, view))
    assert is_cpu(job)
    job["metadata"] |= {"name": "light-x", "uid": "1", "resourceVersion": "7"}
    job["spec"]["selector"] = {"matchLabels": {"batch.kubernetes.io/controller-uid": "1"}}
    labels = job["spec"]["template"]["metadata"]["labels"]
    labels |= {"controller-uid": "1", "batch.kubernetes.io/job-name": "light-x"}
    job["status"] = {"ready": 0}

    assert as_submitted(job) == submitted


def sample_of(tmp_path, kind):
    source = kinds.made(kind)
    source["metadata"]["namespace"] = "research"
    path = tmp_path / "sample.yaml"
    path.write_text(yaml.safe_dump(source))
    return str(path)


def for_kinds(tmp_path, *named):
    policy = yaml.safe_load(Path(POLICY).read_text(encoding="utf-8"))
    policy["spec"]["match"] |= {"kinds": list(named)}
    path = tmp_path / "policy.yaml"
    path.write_text(yaml.safe_dump(policy))
    return str(path)


def test_a_sample_of_another_kind_is_tried_with_a_pod_of_each_of_its_pod_sets(check, tmp_path):
    creating, policy = Creating(), for_kinds(tmp_path, "RayJob")

    result = check(creating, "--sample", sample_of(tmp_path, "RayJob"), policy=policy)

    assert result.exit_code == 0, result.output
    rays = creating.of("/apis/ray.io/v1/namespaces/research/rayjobs")
    assert [each["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] for each in rays] == [
        "gpu-lq",
        "cpu-lq",
    ]
    # Of each option the head's pod and a worker's; what submits it is made by its controller.
    images = [pod["spec"]["containers"][0]["image"] for pod in creating.of(PODS)]
    assert images == ["small", "stable-diffusion"] * 2
    assert {pod["spec"]["restartPolicy"] for pod in creating.of(PODS)} == {"Never"}
