"""`kubectl fallback explain -f` of several manifests, of folders, and of CronJobs."""

import json
from pathlib import Path

import pytest
import yaml

from tests.commands.calling import call, call_on
from tests.commands.cluster import Cluster

LIGHT, HEAVY = Path("examples/light-job.yaml"), Path("examples/heavy-job.yaml")
SNAPSHOT = "examples/snapshot.json"
SENT = "Policy light-gpu (Enforce): sent to cpu-lq (cpu): starts now; gpu-lq has 11 pending"
LEFT = "Left untouched: no policy matches this Job."


def cron_job(name="nightly"):
    """A CronJob that makes the example's light Jobs."""
    job = yaml.safe_load(LIGHT.read_text(encoding="utf-8"))
    labels = job["metadata"]["labels"]
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": name, "namespace": "research"},
        "spec": {
            "schedule": "0 3 * * *",
            "jobTemplate": {"metadata": {"labels": labels}, "spec": job["spec"]},
        },
    }


def explain(*words, given=None):
    return call("explain", *words, given=given)


def told(text):
    """The lines that name a manifest, and what is said of it."""
    return [line for line in text.splitlines() if line.endswith("):") or line in (SENT, LEFT)]


@pytest.fixture
def folder(tmp_path):
    """Three manifests in two files, one of them in a folder below, and what is no manifest."""
    (tmp_path / "below").mkdir()
    (tmp_path / "b.yaml").write_text(HEAVY.read_text(encoding="utf-8"))
    (tmp_path / "a.json").write_text(json.dumps({"kind": "List", "items": [cron_job()]}))
    (tmp_path / "README.md").write_text("[")
    (tmp_path / "below" / "c.yml").write_text(LIGHT.read_text(encoding="utf-8"))
    return tmp_path


CRON = "Job research/nightly-* ({}/a.json:1):"
HEAVIER = "Job research/heavy-* ({}/b.yaml:2):"
BELOW = "Job research/light-* ({}/below/c.yml:2):"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((), [CRON, SENT, HEAVIER, LEFT]),
        (("-R",), [CRON, SENT, HEAVIER, LEFT, BELOW, SENT]),
    ],
)
def test_a_folder_is_explained_file_by_file(folder, words, expected):
    found = explain("-f", folder, "--snapshot", SNAPSHOT, *words)

    assert found.exit_code == 0
    assert told(found.stdout) == [line.format(folder) for line in expected]


def test_several_files_and_documents_are_explained_in_their_order(folder):
    light = LIGHT.read_text(encoding="utf-8")
    both = f"{light}---\nkind: ConfigMap\nmetadata: {{name: any}}\n---\n{light}"

    found = explain("-f", folder / "b.yaml", "-f", "-", "--snapshot", SNAPSHOT, given=both)

    second = light.count("\n") + 6
    assert told(found.stdout) == [
        HEAVIER.format(folder),
        LEFT,
        *("Job research/light-* (stdin:2):", SENT),
        *(f"Job research/light-* (stdin:{second}):", SENT),
    ]


def test_programs_get_several_as_items_and_one_as_it_is(folder):
    many = explain("-f", folder, "--snapshot", SNAPSHOT, "-o", "json")
    one = explain("-f", folder / "a.json", "--snapshot", SNAPSHOT, "-o", "json")

    items = json.loads(many.stdout)["items"]
    assert [item.get("skip") or item["decision"]["option"] for item in items] == ["cpu", "noPolicy"]
    assert items[0] == json.loads(one.stdout)


def test_a_mistake_in_a_cron_job_is_told_with_its_line(tmp_path):
    wrong = cron_job()
    wrong["spec"]["jobTemplate"]["spec"]["parallelism"] = "x"
    path = tmp_path / "cron.yaml"
    text = yaml.safe_dump(wrong)
    path.write_text(text)

    found = explain("-f", path, "--snapshot", SNAPSHOT)

    line = text.splitlines().index("      parallelism: x") + 1
    assert (found.exit_code, found.stderr) == (
        2,
        f"{path}:{line}: spec.parallelism: expected a whole number, got a string\n",
    )


def live(tmp_path, *words):
    items = json.loads(Path(SNAPSHOT).read_text(encoding="utf-8"))["items"]
    labels = {"team": "ml"}
    jobs = [
        {**yaml.safe_load(LIGHT.read_text(encoding="utf-8")), "metadata": metadata}
        for metadata in (
            {"name": "mine", "namespace": "research", "labels": labels},
            {"name": "theirs", "namespace": "research"},
            {"name": "elsewhere", "namespace": "other", "labels": labels},
        )
    ]
    cluster = Cluster(*items, *jobs, cron_job())
    return call_on(cluster, tmp_path, "explain", *words, namespace="research")


@pytest.mark.parametrize("words", [("cronjob/nightly",), ("cj", "nightly")])
def test_a_cron_job_of_the_cluster_is_explained_by_the_job_it_would_make(tmp_path, words):
    found = live(tmp_path, *words)

    assert told(found.stdout) == ["Job research/nightly-* (CronJob research/nightly):", SENT]


def test_what_is_not_there_is_said_and_the_rest_is_shown(tmp_path):
    found = live(tmp_path, "cronjob/nihgtly", "mine")

    assert found.exit_code == 1
    assert found.stderr == "There is no CronJob research/nihgtly (there is nightly).\n"
    assert found.stdout.startswith("Job research/mine: started.\n")


@pytest.mark.parametrize(
    ("words", "jobs"),
    [
        (("-l", "team=ml"), ["research/mine"]),
        (("jobs", "-l", "team=ml"), ["research/mine"]),
        (("-l", "team=ml", "-A"), ["other/elsewhere", "research/mine"]),
    ],
)
def test_jobs_are_chosen_by_their_labels(tmp_path, words, jobs):
    found = live(tmp_path, *words)

    heads = [line for line in found.stdout.splitlines() if line.endswith(": started.")]
    assert sorted(heads) == [f"Job {job}: started." for job in jobs]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("-l", "team=ml", "-f", "job.yaml"), "-l goes without -f."),
        (("-l", "team=ml", "a/b"), "-l goes with a type at most: explain rayjobs -l team=ml."),
        (("-l", "team=ml", "rayjbo"), "rayjbo: no type of Job (there is rayjob)"),
        (("train", "-A"), "-A goes with -l; a name belongs to one namespace."),
    ],
)
def test_what_contradicts_itself_is_refused(tmp_path, words, why):
    found = live(tmp_path, *words)

    assert (found.exit_code, found.stderr.splitlines()[-1]) == (2, f"Error: {why}")


@pytest.mark.parametrize("command", [("undo",), ("queue",), ("move", "--to", "cpu"), ("release",)])
def test_a_cron_job_is_no_job_to_change(tmp_path, command):
    found = call_on(Cluster(cron_job()), tmp_path, *command, "cronjob/nightly")

    text = "cronjob/nightly: a CronJob is no Job; name one of those that it has made"
    assert (found.exit_code, found.stderr.splitlines()[-1]) == (2, f"Error: {text}")


def in_the_cron_job(job):
    made = cron_job()
    made["metadata"]["labels"] = made["spec"]["jobTemplate"].pop("metadata")["labels"]
    return made


def in_its_pods(job):
    job["spec"]["template"]["metadata"] = {"labels": job["metadata"].pop("labels")}
    return job


def in_a_replicated_job(job):
    inner = {"metadata": {"labels": job["metadata"].pop("labels")}, "spec": job["spec"]}
    spec = {"replicatedJobs": [{"name": "w", "template": inner}]}
    return {**job, "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "spec": spec}


@pytest.mark.parametrize(
    ("misplace", "found", "wanted"),
    [
        (in_the_cron_job, "metadata", "spec.jobTemplate.metadata"),
        (in_its_pods, "spec.template.metadata", "metadata"),
        (in_a_replicated_job, "spec.replicatedJobs[0].template.metadata", "metadata"),
    ],
)
def test_a_queue_is_found_where_kueue_does_not_read_it(tmp_path, misplace, found, wanted):
    job = misplace(yaml.safe_load(LIGHT.read_text(encoding="utf-8")))
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(job))

    result = explain("-f", str(path), "--snapshot", SNAPSHOT)

    label = "kueue.x-k8s.io/queue-name"
    where = f"The label {label} is in {found}.labels; Kueue reads it in {wanted}.labels only."
    assert result.stdout.startswith(LEFT)
    assert where in result.stderr
