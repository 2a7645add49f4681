"""What an option takes off pods, and Kueue gives back for its flavor's nodes, stays as Kueue wants.

Jobs of every kind wait, start, and wait again. None has a controller here: only Kueue, the webhook
and kubectl write them.
"""

import json

import pytest

from hack import paper
from hack.controlplane import ControlPlane, Options
from hack.install import PATIENT, Installation
from hack.job_definitions import definitions
from hack.waiting import WaitedInVainError, wait_for
from tests.e2e.decisions import decision_of, queue_of
from tests.e2e.job_specs import RUNTIME, SERVING, SPECS, made, training_runtime
from tests.e2e.moving import hold, wish
from tests.e2e.plane import has_condition, wait_until_reserved, workload_of
from webhook.jobs import BY_NAME, KINDS

NAMESPACE = "given-back"
NAMES = paper.names_with("given-back", namespace=NAMESPACE)
SELECTOR = {"nvidia.com/gpu.present": "true"}
TOLERATION = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
ON_THE_WAY = ("Pod", *SERVING)
"""What is queued by its pods: Kueue writes to them once, and no wait comes after a start."""
LIVES = ("Job", *(kind for kind in SPECS if kind not in ON_THE_WAY))
BY_SERVER = frozenset({"JobSet"})
"""Of these kubectl's own apply is refused after the creation, as tests/e2e/test_kinds.py says."""
REPLACED = frozenset({"AppWrapper"})
"""Of these kubectl replaces the list of components, with what Kueue has written there."""
AMPLE = {"cpu": "1000", "memory": "4000Gi"}
NONE = {"cpu": "0", "memory": "0"}


@pytest.fixture(scope="module")
def plane(tmp_path_factory):
    frameworks = [kind.framework for kind in KINDS.values()]
    gates = {kind.gate: True for kind in KINDS.values() if kind.gate}
    options = Options(
        kueue_config={"integrations": {"frameworks": frameworks}, "featureGates": gates},
        definitions=definitions(),
    )
    with ControlPlane(tmp_path_factory.mktemp("given-back"), options=options) as started:
        yield started


@pytest.fixture(scope="module")
def client(plane):
    """The plane's client, with queues whose CPU flavor has just what the option takes off."""
    named = ",".join(kind.kind for kind in KINDS.values())
    with Installation(plane, chart_values=[*PATIENT, f"kinds={{{named}}}"]):
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        plane.client.apply_all([namespace, *paper.queues(NAMES), training_runtime()])
        flavor = paper.resource_flavor(NAMES.cpu_flavor, node_labels=SELECTOR)
        flavor["spec"]["tolerations"] = [TOLERATION]
        plane.client.apply_all([flavor, policy()])
        set_quota(plane.client, AMPLE)
        # They hold all GPUs for hours, so that a Job that is moved there waits.
        holding = [paper.heavy_job(f"holds-{number}", NAMES, faster=0.002) for number in range(4)]
        for job in plane.client.create_all(holding):
            wait_until_reserved(plane.client, job)
        wait_for(lambda: is_decided(plane.client), "the webhook decides by the policy")
        yield plane.client


def set_quota(client, quota):
    """Set the quota of the CPU queue; what runs there goes on with less."""
    name, flavor = NAMES.cpu_cluster_queue, NAMES.cpu_flavor
    client.apply(paper.cluster_queue(name, flavor=flavor, quota=quota))


def policy():
    found = paper.policy(NAMES)
    found["spec"]["match"]["kinds"] = sorted(kind.kind for kind in KINDS.values())
    found["spec"]["strategy"]["threshold"] = [
        {"option": option, "orPendingBelow": 1000} for option in ("cpu", "gpu")
    ]
    return found


def is_decided(client):
    return decision_of(client.create(manifest("Job", name="probe"), dry_run=True))


def manifest(kind, name=""):
    if kind == "Job":
        found = paper.light_job(name or "job", NAMES)
        found["spec"]["template"]["spec"]["nodeSelector"] = dict(SELECTOR)
    else:
        found = made(kind, NAMES, labels=paper.LIGHT)
    tolerate(found["spec"])
    return found


def tolerate(part):
    """Let all pods that name the nodes tolerate their taint, too."""
    if isinstance(part, dict):
        if "nodeSelector" in part:
            part["tolerations"] = [dict(TOLERATION)]
        part = list(part.values())
    if isinstance(part, list):
        for each in part:
            tolerate(each)


@pytest.fixture(scope="module")
def manifests(tmp_path_factory):
    folder = tmp_path_factory.mktemp("manifests")
    for kind in LIVES:
        target = folder / ("server" if kind in BY_SERVER else "client")
        target.mkdir(exist_ok=True)
        (target / f"{kind}.json").write_text(json.dumps(manifest(kind)))
    return folder


def apply(plane, folder):
    for where, by_server in (("client", ()), ("server", ("--server-side", "--field-manager=me"))):
        applied = plane.kubectl("apply", *by_server, "-f", str(folder / where))
        assert applied.returncode == 0, applied.stderr


def now(client, kind):
    return client.get(BY_NAME[kind].api_version, kind, kind.lower(), namespace=NAMESPACE)


def pods_of(source):
    """Return, pod set by pod set, which nodes its pods ask for and which taints they tolerate."""
    kind = BY_NAME[source["kind"]]
    job = kind.read(kind.completed(source, {("", RUNTIME): training_runtime()}))
    templates = [pod_set.template for pod_set in job.pod_sets]
    given = [info for part in source["spec"].get("components", ()) for info in infos_of(part)]
    given = given or [{}] * len(templates)
    return [
        shown(
            {**each.node_selector, **info.get("nodeSelector", {})},
            [*each.tolerations, *info.get("tolerations", ())],
        )
        for each, info in zip(templates, given, strict=True)
    ]


def infos_of(component):
    """Return what Kueue writes for an AppWrapper's pods, beside their templates."""
    return component.get("podSetInfos", ())


def shown(selector, tolerations):
    return dict(selector), sorted({json.dumps(dict(each), sort_keys=True) for each in tolerations})


def wanted_pods(client, workload):
    """Return what Kueue wants of a Job's pods: what it has read, and its flavors' once it runs."""
    assigned = (workload["status"].get("admission") or {}).get("podSetAssignments", ())
    flavors = {each["name"]: set(each.get("flavors", {}).values()) for each in assigned}
    found = []
    for pod_set in workload["spec"]["podSets"]:
        pods = pod_set["template"]["spec"]
        selector, tolerations = dict(pods.get("nodeSelector", {})), pods.get("tolerations", [])
        for name in flavors.get(pod_set["name"], ()):
            given = client.get(paper.KUEUE, "ResourceFlavor", name)["spec"]
            selector |= given.get("nodeLabels", {})
            tolerations = [*tolerations, *given.get("tolerations", ())]
        found.append(shown(selector, tolerations))
    return found


def difference(client, kind, *, runs, queue):
    """Say what of a Job is not as Kueue wants it while it runs or waits in a queue; None: all is.

    While Kueue has not caught up yet, that is said, too.
    """
    job = now(client, kind)
    workload = workload_of(client, job)
    if workload is None or "status" not in workload:
        return "no Workload yet"
    states = {
        "queue": (queue_of(job), queue),
        "queue of its Workload": (workload["spec"]["queueName"], queue),
        "runs": (not BY_NAME[kind].is_suspended(job), runs),
        "has quota": (has_condition(workload, "QuotaReserved"), runs),
        "pods": (pods_of(job), wanted_pods(client, workload)),
    }
    return {what: pair for what, pair in states.items() if pair[0] != pair[1]} or None


def check(client, what, kinds=LIVES, **state):
    """Wait until all Jobs are as Kueue wants them, and say which are not."""

    def differences():
        found = {kind: difference(client, kind, **state) for kind in kinds}
        return {kind: each for kind, each in found.items() if each}

    try:
        wait_for(lambda: not differences(), what)
    except WaitedInVainError:
        assert (what, differences()) == (what, {})


@pytest.mark.timeout(1800)
def test_the_pods_are_at_each_moment_what_kueue_wants(plane, client, manifests):
    cpu, gpu = NAMES.cpu_queue, NAMES.gpu_queue
    apply(plane, manifests)
    check(client, "started", runs=True, queue=cpu)

    apply(plane, manifests)
    kept = [kind for kind in LIVES if kind not in REPLACED]
    check(client, "applied again while they run", kept, runs=True, queue=cpu)

    set_quota(client, NONE)
    hold(client, NAMES.cpu_cluster_queue, "HoldAndDrain")
    check(client, "suspended again", runs=False, queue=cpu)
    hold(client, NAMES.cpu_cluster_queue, "None")
    apply(plane, manifests)
    check(client, "applied again while they wait", runs=False, queue=cpu)

    refused = refusals(client, LIVES, "gpu")
    moved = [kind for kind in LIVES if kind not in refused]
    check(client, "moved", moved, runs=False, queue=gpu)
    set_quota(client, AMPLE)
    stayed = [kind for kind in LIVES if kind in refused]
    check(client, "started again", stayed, runs=True, queue=cpu)
    print({"moved": moved, "refused": refused})
    assert {"Job", "RayJob"} <= {*moved}

    half = len(moved) // 2
    assert refusals(client, moved[:half], "cpu") == {}
    check(client, "moved back and started", moved[:half], runs=True, queue=cpu)
    assert refusals(client, moved[half:], "none") == {}
    check(client, "undone", moved[half:], runs=False, queue=gpu)
    for kind in moved[half:]:
        assert pods_of(now(client, kind)) == pods_of(manifest(kind))


def refusals(client, kinds, option):
    """Ask for moves, once their Workloads may be queued again; return why some were refused."""

    def asked(kind):
        job, warnings = wish(client, now(client, kind), option)
        return None if "waits to be queued again" in warnings else (job, warnings)

    found = {kind: wait_for(lambda kind=kind: asked(kind), "it is queued again") for kind in kinds}
    return {
        kind: warnings
        for kind, (job, warnings) in found.items()
        if option != (decision_of(job) or {"option": "none"})["option"]
    }
