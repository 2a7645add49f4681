"""Undone under each policy of the documentation and examples, a Job stays as it was submitted.

In place, or deleted and created anew where `check --sample` has said so; then its manifest is
applied again, by the client and by the server, and compared.
"""

import json

import pytest
import yaml
from click.testing import CliRunner

from hack import paper
from hack.install import ROOT
from hack.kwok import GPU
from hack.waiting import wait_for
from tests.docs.pages import PAGES, blocks
from tests.e2e.decisions import OPTION, decision_of, queue_of
from tests.e2e.plane import container_of, job_of
from webhook.__main__ import main
from webhook.model.policy.fallback_policy import PolicyError, read_policy

RECIPE = "example.com/recipe"
NEEDS = "undo needs --recreate: "
MANY = {"orPendingBelow": 1000}
PINNED = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
KINDS = {
    "sets": {"env": [{"name": "RUN_ENV", "value": "gpu"}]},
    "lacks": {},
}
"""What a container has: a Job that sets the recipes' variable, and one that does not."""
NAMED = ("name", "queue", "clusterQueue", "guests")
"""What of an option the test sets itself, or is a name."""
SPEED = ("slowdown", "startDelay")
TOLD_BY = ("args", "env", "users", "groups")
"""What tells a recipe's own Jobs, which is not what the Jobs of these tests say."""
WAYS = {"client": ("apply",), "server": ("apply", "--server-side")}


def policies():
    """Every policy that somebody may copy, by where it stands."""
    found = {}
    for page in PAGES:
        for line, language, text in blocks(page):
            if language == "yaml" and "kind: FallbackPolicy" in text:
                found[f"{page.stem}-{line}"] = text
    for path in sorted((ROOT / "examples").rglob("*.yaml")):
        if "kind: FallbackPolicy" in path.read_text():
            found[path.stem] = path.read_text()
    every = {
        f"{place}-{number}": policy
        for place, text in found.items()
        for number, policy in enumerate(within(list(yaml.safe_load_all(text))))
        if len(policy["spec"]["options"]) > 1
        and is_valid(policy)
        and is_for_jobs(policy)
        and not gives_other_devices(policy)
    }
    alike = {json.dumps(what_it_does(each)): place for place, each in every.items()}
    return {place: every[place] for place in alike.values()}


def what_it_does(policy):
    """Tell policies that do the same to a Job, whatever their queues' names and speeds.

    A Job may go to the last option alone, and says what there is to say of all of them.
    """
    spec = policy["spec"]
    options = [
        {key: "any" if key in NAMED else value for key, value in option.items() if key not in SPEED}
        for option in spec["options"]
    ]
    return spec.get("strategy", {}).get("type"), sorted(spec["match"].keys() - TOLD_BY), options


def gives_other_devices(policy):
    """Tell a policy of slices, whose Jobs are undone and applied again in test_slices."""
    adaptations = (option.get("adaptation", {}) for option in policy["spec"]["options"])
    return any(each.get("accelerator") == "Replace" for each in adaptations)


def is_for_jobs(policy):
    return "Job" in policy["spec"]["match"].get("kinds", ["Job"])


def is_valid(policy):
    """Tell a policy from one of a scenario, in which parameters stand for values."""
    try:
        read_policy(policy)
    except PolicyError:
        return False
    return True


def within(value):
    if isinstance(value, list):
        return [policy for item in value for policy in within(item)]
    if not isinstance(value, dict):
        return []
    if value.get("kind") == "FallbackPolicy":
        return [value]
    return within(list(value.values()))


def enforced(place, policy, namespace):
    """The policy in force, for the Jobs of its recipe."""
    spec = policy["spec"] | {"mode": "Enforce"}
    labels = {"kubernetes.io/metadata.name": namespace}
    told = {key: value for key, value in spec["match"].items() if key not in TOLD_BY}
    spec["match"] = told | {
        "namespaceSelector": {"matchLabels": labels},
        "jobSelector": {"matchLabels": {RECIPE: place}},
    }
    if spec.get("strategy", {}).get("type") == "Threshold":
        # Full queues too; no Job of these tests ends.
        last = name_of(spec["options"][-1])
        spec["strategy"] = {**spec["strategy"], "threshold": [{"option": last} | MANY]}
    for option in spec["options"]:
        if "clusterQueue" in option:
            option["clusterQueue"] = f"{option['clusterQueue']}-{namespace}"
        if "guests" in option:
            option["guests"]["maxJobs"] = 100
        # There is no such class, and Kueue makes no Workload of a Job that names it.
        option.pop("priorityClass", None)
        # Nor is who runs the tests in one of the groups that an option may be for.
        option.pop("only", None)
    metadata = {"name": f"{place}-{namespace}"}
    return {**policy, "metadata": metadata, "spec": spec}


def queues_of(policy, namespace):
    """The LocalQueue of each option; that of a ClusterQueue is called the same."""
    names = [each.get("queue") or each["clusterQueue"] for each in policy["spec"]["options"]]
    return [name.removesuffix(f"-{namespace}") for name in names]


def cluster_of(queues, namespace):
    """Queues that are full, each with one Job that fills it."""
    quota = {"cpu": "64", "memory": "1000Gi", GPU: "8"}
    for queue in queues:
        name = f"{queue}-{namespace}"
        yield paper.resource_flavor(name)
        yield paper.cluster_queue(name, flavor=name, quota=quota)
        yield paper.local_queue(queue, namespace, cluster_queue=name)


def filler(queue, namespace):
    requests = {"cpu": "64", "memory": "1Gi"}
    container = {"name": "main", "image": "fill", "resources": {"requests": requests}}
    return paper.job(
        f"fill-{queue}",
        namespace,
        labels={paper.QUEUE_LABEL: queue},
        run={"cpu-run": 2000, "gpu-run": 2000},
        container=container,
    )


def submission(name, place, policy, namespace, *, has):
    """A Job that may go to the last option alone."""
    container = {
        "name": "main",
        "image": "stable-diffusion",
        "resources": {"requests": {"cpu": "4", "memory": "6Gi"}, "limits": {GPU: "1"}},
        **has,
    }
    queue = {} if policy["spec"]["match"].get("withoutQueue") else queue_label(policy, namespace)
    job = paper.job(
        name,
        namespace,
        labels={RECIPE: place, **queue},
        run={"cpu-run": 2000, "gpu-run": 2000},
        container=container,
    )
    option = name_of(policy["spec"]["options"][-1])
    job["metadata"]["annotations"] = {"kueue-fallback.dev/allow": option}
    if not has:
        job["spec"]["template"]["spec"]["nodeSelector"] = dict(PINNED)
    return job


def name_of(option):
    return option.get("name") or option["queue"]


def queue_label(policy, namespace):
    return {paper.QUEUE_LABEL: queues_of(policy, namespace)[0]}


@pytest.fixture
def command(plane, namespace):
    def run(*words):
        given = [*words, "-n", namespace, "--kubeconfig", str(plane.kubeconfig)]
        return CliRunner().invoke(main, given)

    return run


@pytest.fixture
def applied(plane, webhook, namespace, tmp_path):
    """Every policy in force, full queues, and Jobs of each that wait in its last option."""
    client = plane.client
    found = {place: enforced(place, each, namespace) for place, each in policies().items()}
    queues = sorted({name for each in found.values() for name in queues_of(each, namespace)})
    items = list(cluster_of(queues, namespace))
    client.apply_all(items)
    client.create_all(filler(queue, namespace) for queue in queues)
    client.apply_all(list(found.values()))
    jobs = {}
    # By the client and by the server in turns: each policy once by either, with another kind.
    for index, (kind, has) in enumerate(KINDS.items()):
        for number, (place, policy) in enumerate(found.items()):
            way = list(WAYS)[(index + number) % len(WAYS)]
            name = f"{kind}-{number}"
            job = submission(name, place, policy, namespace, has=has)
            path = tmp_path / way / f"{name}.yaml"
            path.parent.mkdir(exist_ok=True)
            path.write_text(yaml.safe_dump(job))
            jobs[name] = policy, job, path
    yield jobs
    for item in [*found.values(), *reversed(items)]:
        metadata = item["metadata"]
        where = metadata.get("namespace", "")
        client.delete(item["apiVersion"], item["kind"], metadata["name"], namespace=where)


def test_undone_and_applied_again_every_job_is_as_it_was_submitted(
    plane, namespace, tmp_path, command, applied
):
    client = plane.client
    wait_for(lambda: all_decide(client, applied), "the webhook decides by every policy")
    wait_for(lambda: all_full(client, applied, namespace), "every queue is full")
    for way, words in WAYS.items():
        done = plane.kubectl(*words, "-f", str(tmp_path / way))
        assert done.returncode == 0, done.stderr

    said = {name: says_in_place(command, applied[name]) for name in applied}
    for name in applied:
        undo(client, command, applied[name], in_place=said[name])
    for way in WAYS:
        for words in WAYS.values():
            done = plane.kubectl(*words, "-f", str(tmp_path / way))
            assert done.returncode == 0, f"{way} {words}: {done.stderr}"
        for words in (("diff",), ("diff", "--server-side")):
            differ = (*words, "--concurrency=8", "-f", str(tmp_path / way))
            # Kubernetes' own controllers may still write what they count, between both sides.
            wait_for(
                lambda differ=differ: plane.kubectl(*differ).returncode == 0,
                lambda differ=differ: f"nothing differs: {plane.kubectl(*differ)}",
            )

    for name, (_, submitted, _) in applied.items():
        job = job_of(client, namespace, name)
        assert essence(job) == essence(submitted), name
        assert decision_of(job) is None
    # A Job that sets the variable itself and is pinned to no node needs to be made anew nowhere
    # but where it named no queue.
    anew = {name: applied[name][0] for name, in_place in said.items() if not in_place}
    assert {
        policy["metadata"]["name"].rpartition(f"-{namespace}")[0]
        for name, policy in anew.items()
        if name.startswith("sets")
    } <= {place for place, each in policies().items() if each["spec"]["match"].get("withoutQueue")}
    assert {name.partition("-")[0] for name in anew} == {"sets", "lacks"}


def all_decide(client, applied):
    found = [client.create(probe(job), dry_run=True) for _, job, _ in list(applied.values())]
    return all(each["metadata"]["labels"].get(OPTION) for each in found)


def probe(job):
    return {**job, "metadata": {**job["metadata"], "name": f"probe-{job['metadata']['name']}"}}


def all_full(client, applied, namespace):
    names = {name for policy, _, _ in applied.values() for name in queues_of(policy, namespace)}
    found = [
        client.get(paper.KUEUE, "ClusterQueue", f"{name}-{namespace}").get("status", {})
        for name in names
    ]
    return all(each.get("reservingWorkloads") == 1 for each in found)


def says_in_place(command, case):
    """Ask `check` whether this Job can be undone in place in the policy's last option."""
    policy, _, path = case
    policy_file = path.with_suffix(".policy")
    policy_file.write_text(json.dumps(policy))
    checked = command("check", "-f", str(policy_file), "--sample", str(path), "-o", "json")
    policy_file.unlink()
    assert checked.exit_code == 0, checked.output
    *_, trial = json.loads(checked.stdout)["sample"]
    return not any(note.startswith(NEEDS) for note in trial["notes"])


def undo(client, command, case, *, in_place):
    """Undo a Job that waits elsewhere, in place or anew, as `check` has said."""
    policy, submitted, _ = case
    name, namespace = submitted["metadata"]["name"], submitted["metadata"]["namespace"]
    assert queue_of(job_of(client, namespace, name)) == queues_of(policy, namespace)[-1], name

    result = command("undo", name)
    assert (result.exit_code == 0) == in_place, f"{name}: {result.output}"
    if not in_place:
        assert f"kubectl fallback undo {name} -n {namespace} --recreate" in result.stderr
        result = command("undo", name, "--recreate", "--yes")
        assert result.exit_code == 0, result.output


def essence(job):
    """What pods get, and the queue; variables as pods see them."""
    template = job["spec"]["template"]
    annotations = template["metadata"].get("annotations", {})
    container = container_of(job)
    env = {}
    for entry in container.get("env", ()):
        path = entry.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath", "")
        key = path.removeprefix("metadata.annotations['").removesuffix("']")
        env[entry["name"]] = entry.get("value") or annotations[key]
    resources = container["resources"]
    return {
        "queue": queue_of(job),
        "env": env,
        "image": container["image"],
        "requests": {GPU: "1", **resources["requests"]},
        "limits": resources.get("limits"),
        "nodeSelector": template["spec"].get("nodeSelector"),
    }
