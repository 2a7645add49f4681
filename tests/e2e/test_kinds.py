"""Every kind of Job on the real Kueue, with its own controller and all of their webhooks.

One of each kind lives beside those of all others: a test is one step of these lives.
"""

import json
import os
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest
from click.testing import CliRunner

from hack import paper, tools
from hack.controlplane import ControlPlane, Options
from hack.install import NAMESPACE, PATIENT, Installation
from hack.job_controllers import JobControllers
from hack.job_definitions import definitions
from hack.kwok import GPU
from hack.waiting import wait_for
from tests.conftest import FULL
from tests.e2e import played_spark, refusals
from tests.e2e.agreement import make_mixed_case, seeds
from tests.e2e.comparing import compare_all, disagreements
from tests.e2e.decisions import (
    SLOW,
    applied_policy,
    cpu_job,
    decision_of,
    queue_of,
    wait_until_counted,
)
from tests.e2e.job_specs import POD_SETS, PODS, RUNTIME, SERVING, SPECS, made, training_runtime
from tests.e2e.lives import Dashboard, env_of, gpus_of, has_started, let_end, pods_of
from tests.e2e.moving import wish
from tests.e2e.plane import has_condition, wait_until_reserved, workload_of
from webhook.__main__ import main
from webhook.hindsight.journal import FAILED, SUCCEEDED, read_slot
from webhook.jobs import BY_NAME, KINDS
from webhook.kueue.requests import per_pod
from webhook.learn import job_class
from webhook.learn.run_records import read_shard
from webhook.learn.workload_runs import read_mark, read_pod_sets
from webhook.model import quantity
from webhook.model.queues import KueueConfig

RANDOM_TRIALS = 6_000 if FULL else 100
MIXED_CASES = 12
"""About half a minute on two cores; `make verify` compares 300."""
CONTROLLERS = (
    "appwrapper",
    "jobset",
    "kuberay",
    "lws",
    "mpi-operator",
    "spark-operator",
    "spark-webhook",
    "trainer",
    "training-operator",
)
APPLIED_BY_SERVER = frozenset({"JobSet"})
"""Of these kubectl's own apply is refused after the creation, with or without this project: it
takes away from a list what the kind's webhook has filled in there, which may not change."""
ENDLESS_QUOTA = {"cpu": "1000", "memory": "4000Gi"}
LEARNED = [kind for kind in SPECS if BY_NAME[kind].finishes and BY_NAME[kind].carries_marks]
"""Kinds of which run times are learned."""
FINISHING = [kind for kind in SPECS if BY_NAME[kind].finishes]
KUBEFLOW = ("JAXJob", "PaddleJob", "PyTorchJob", "TFJob", "XGBoostJob")
IN_PLACE = (*KUBEFLOW, "MPIJob", "RayCluster", "RayJob")
"""Kinds of which all can be taken back that was changed; others are deleted and created anew."""
ROLLED = ("Deployment",)
"""Kinds that are put back by a rolling update of their pods, also while they serve."""
SAVED = (
    "clusterqueues,localqueues,cohorts,resourceflavors,workloads,jobs,fallbackpolicies,namespaces,"
    "workloadpriorityclasses,priorityclasses"
)
"""What `simulate` reads of a cluster."""
FAILING = ("JobSet", "PyTorchJob", "RayJob")


@pytest.fixture(scope="module")
def plane(tmp_path_factory):
    frameworks = [kind.framework for kind in KINDS.values()]
    gates = {kind.gate: True for kind in KINDS.values() if kind.gate}
    options = Options(
        controllers=("deployment-controller", "replicaset-controller", "statefulset-controller"),
        kueue_config={"integrations": {"frameworks": frameworks}, "featureGates": gates},
        definitions=definitions(),
    )
    with ControlPlane(tmp_path_factory.mktemp("kinds"), options=options) as started:
        yield started


@pytest.fixture(scope="module")
def dashboard(plane):
    with Dashboard(plane.ports.lease()).serving() as played:
        yield played


@pytest.fixture(scope="module")
def compared(plane, tmp_path_factory):
    """The comparison of mixed kinds, which goes on beside the start of the webhook."""
    folder = tmp_path_factory.mktemp("mixed")
    with ThreadPoolExecutor(1) as thread:
        cases = map(make_mixed_case, seeds(MIXED_CASES))
        again = "AGREEMENT_SEEDS={} pytest tests/e2e/test_kinds.py -k mixed"
        yield thread.submit(compare_all, plane.client, cases, folder, again=again)


@pytest.fixture(scope="module")
def controllers(plane, dashboard, compared, tmp_path_factory):
    """All of them; KubeRay asks the dashboards of its clusters by a proxy."""
    # They would let the Jobs run that are compared.
    compared.exception()
    spark = played_spark.install(tmp_path_factory.mktemp("spark"), tools.program("kubectl"))
    environment = {"HTTP_PROXY": dashboard.address, "SPARK_HOME": str(spark)}
    found = JobControllers(plane, environment=environment)
    found.start(*CONTROLLERS)
    plane.client.apply(training_runtime())


@pytest.fixture(scope="module")
def webhook(plane):
    named = ",".join(kind.kind for kind in KINDS.values())
    with Installation(plane, chart_values=[*PATIENT, f"kinds={{{named}}}"]) as installed:
        yield installed


def place(plane, name, *, threshold, cpu_quota=None):
    """Make the paper's queues in a new namespace; return their names and a policy of all kinds."""
    client, names = plane.client, paper.names_with(name, namespace=name)
    client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    client.apply_all(paper.queues(names))
    if cpu_quota:
        flavor, queue = names.cpu_flavor, names.cpu_cluster_queue
        client.apply(paper.cluster_queue(queue, flavor=flavor, quota=cpu_quota))
    policy = paper.policy(names)
    policy["spec"]["match"]["kinds"] = sorted(kind.kind for kind in KINDS.values())
    policy["spec"]["strategy"]["threshold"] = threshold
    return names, policy


@pytest.fixture(scope="module")
def crowded(plane, webhook, controllers):
    """A namespace with a long GPU queue, and a policy for light Jobs of every kind."""
    client = plane.client
    threshold = [
        {"option": "gpu", "orPendingBelow": 10},
        {"option": "cpu", "orPendingBelow": 1000},
    ]
    names, policy = place(plane, "crowded", threshold=threshold, cpu_quota=ENDLESS_QUOTA)
    with applied_policy(client, policy, names):
        # For hours: building a controller may take a while.
        jobs = [paper.heavy_job(f"fill-{number}", names, faster=0.002) for number in range(14)]
        client.create_all(jobs)
        wait_until_counted(client, names, gpu=14)
        yield names


@pytest.fixture(scope="module")
def manifests(tmp_path_factory, crowded):
    """Two folders with a light Job of each kind: those for kubectl's apply, and the server's."""
    folder = tmp_path_factory.mktemp("manifests")
    for kind in SPECS:
        target = folder / ("server" if kind in APPLIED_BY_SERVER else "client")
        target.mkdir(exist_ok=True)
        wanted = made(kind, crowded, labels=paper.LIGHT)
        (target / f"{kind}.json").write_text(json.dumps(wanted))
    return folder


def apply(plane, folder):
    for where, by_server in (("client", ()), ("server", ("--server-side", "--field-manager=me"))):
        applied = plane.kubectl("apply", *by_server, "-f", str(folder / where))
        assert applied.returncode == 0, applied.stderr


@pytest.fixture(scope="module")
def created(plane, crowded, manifests):
    """The light Jobs as they were once created, by their kinds."""
    apply(plane, manifests)
    return {kind: now(plane, crowded, kind) for kind in SPECS}


def now(plane, names, kind):
    version, name = BY_NAME[kind].api_version, kind.lower()
    return plane.client.get(version, kind, name, namespace=names.namespace)


def test_every_kind_is_tried():
    assert {"Job", *SPECS} == {kind.kind for kind in KINDS.values()}


@pytest.mark.timeout(3600)
def test_of_mixed_kinds_what_starts_now_is_what_kueue_gives_quota_at_once(compared, webhook):
    assert [str(item) for item in disagreements(compared.result())] == []


@pytest.mark.parametrize("kind", SPECS)
def test_a_light_one_is_admitted_in_the_free_queue(plane, crowded, created, kind):
    job = created[kind]
    assert (decision_of(job)["option"], queue_of(job)) == ("cpu", crowded.cpu_queue)
    wait_for(lambda: has_condition(queued(plane, job) or {}, "QuotaReserved"), "it has quota")
    workload = queued(plane, job)

    assert [each["name"] for each in workload["spec"]["podSets"]] == POD_SETS[kind]
    assert GPU not in json.dumps(workload["spec"]["podSets"])
    assert workload["status"]["admission"]["clusterQueue"] == crowded.cpu_cluster_queue


def queued(plane, job):
    """Return the Workload of a Job, of a Deployment that of its pod; None: there is none yet."""
    if job["kind"] != "Deployment":
        return workload_of(plane.client, job)
    return next(
        filter(None, (workload_of(plane.client, p) for p in pods_of(plane.client, job))), None
    )


@pytest.mark.parametrize("kind", SPECS)
def test_kueue_counts_its_pods_as_we_do(plane, created, kind):
    workload = queued(plane, created[kind])
    charged = {
        each["name"]: (each["count"], usage_of(each["resourceUsage"]))
        for each in workload["status"]["admission"]["podSetAssignments"]
    }

    job = read(created[kind])

    # Kueue puts an AppWrapper's name before the place of a pod set.
    prefix = f"{job.name}-" if kind == "AppWrapper" else ""
    assert charged == {
        prefix + pod_set.name: (pod_set.count, asked_by(pod_set)) for pod_set in job.pod_sets
    }
    if kind in FINISHING:
        mark = read_mark(read_pod_sets(workload["spec"]), {}, job.namespace, kind)
        assert mark.job_class == job_class.of_job(job)


def read(source):
    kind = BY_NAME[source["kind"]]
    return kind.read(kind.completed(source, {("", RUNTIME): training_runtime()}))


def usage_of(written):
    return {name: quantity.parse(amount, resource=name) for name, amount in written.items()}


def asked_by(pod_set):
    of_one = per_pod(pod_set.counted, limit_ranges=(), overheads={}, kueue=KueueConfig())
    return {name: amount * pod_set.count for name, amount in of_one.items()}


@pytest.mark.parametrize("kind", SPECS)
def test_its_controller_makes_its_pods_as_they_are_for_that_queue(plane, crowded, created, kind):
    pods = wait_for(lambda: started_pods(plane, created[kind]), "its pods run")

    assert gpus_of(pods) == []
    assert set(env_of(pods, "RUN_ENV")) == {"cpu"}
    if kind in SERVING:
        assert {queue_of(pod) for pod in pods} == {crowded.cpu_queue}


def started_pods(plane, job):
    """Return its pods once all of them run."""
    found = pods_of(plane.client, job)
    return found if len(found) == PODS[job["kind"]] and all(map(has_started, found)) else None


@pytest.fixture(scope="module")
def applied_again(plane, crowded, created, manifests):
    """Each before its manifest was applied three times more, and after that."""
    before = {kind: now(plane, crowded, kind) for kind in SPECS}
    for _ in range(3):
        apply(plane, manifests)
    return {kind: (before[kind], now(plane, crowded, kind)) for kind in SPECS}


@pytest.mark.parametrize("kind", SPECS)
def test_applied_three_times_more_it_stays_as_it_was_decided(plane, created, applied_again, kind):
    before, after = applied_again[kind]

    # kubectl replaces lists of such objects as a whole, with what Kueue has filled in there.
    assert containers_of(after) == containers_of(before)
    assert GPU not in json.dumps(after["spec"])
    assert after["metadata"]["labels"] == before["metadata"]["labels"]
    assert decision_of(after)["id"] == decision_of(before)["id"]
    assert len(pods_of(plane.client, after)) == PODS[kind]


@pytest.mark.parametrize("kind", [kind for kind in SPECS if kind not in SERVING])
def test_it_is_explained_by_its_kind_and_name(plane, crowded, created, kind):
    told = asked(plane, "explain", f"{kind.lower()}/{kind.lower()}", "-n", crowded.namespace)

    assert told.startswith(f"{kind} {crowded.namespace}/{kind.lower()}: started.")
    assert decision_of(created[kind])["reason"].partition(";")[0] in told


@pytest.mark.parametrize("kind", [kind for kind in SPECS if kind not in ROLLED])
def test_what_has_started_is_not_undone(plane, crowded, created, kind):
    words = ("undo", f"{kind.lower()}/{kind.lower()}", "-n", crowded.namespace)

    for result in (invoked(plane, *words), invoked(plane, *words, "--recreate", "--yes")):
        assert result.exit_code == 1
        assert f"{kind} {crowded.namespace}/{kind.lower()} is not undone: " in result.output


@pytest.mark.parametrize("kind", FINISHING)
def test_it_ends_and_kueue_sees_it(plane, crowded, created, dashboard, kind):
    client, job = plane.client, created[kind]

    let_end(client, dashboard, job)

    wait_for(lambda: has_condition(workload_of(client, job), "Finished"), "Kueue sees its end")


@pytest.mark.parametrize("kind", SPECS)
def test_a_heavy_one_waits_where_it_was_submitted(plane, crowded, kind):
    wanted = made(kind, crowded, labels=paper.HEAVY, name=f"heavy-{kind.lower()}")

    made_here = plane.client.create(wanted, dry_run=True)

    assert decision_of(made_here) is None
    assert queue_of(made_here) == crowded.gpu_queue
    # What a TrainJob asks for stands in its runtime.
    assert GPU in json.dumps(made_here["spec"]) or kind == "TrainJob"
    assert "resourcesPerNode" not in json.dumps(made_here["spec"])


@pytest.fixture(scope="module")
def failing(plane, webhook, controllers):
    """A namespace whose Jobs go to the CPU queue, unless they allow the other option alone."""
    threshold = [{"option": "cpu", "orPendingBelow": 1000}]
    names, policy = place(plane, "failing", threshold=threshold, cpu_quota=ENDLESS_QUOTA)
    with applied_policy(plane.client, policy, names):
        yield names


@pytest.fixture(scope="module")
def failed(plane, failing, dashboard):
    """Of some kinds one that went well where it was submitted, and three that failed elsewhere."""
    client = plane.client
    found = {kind: client.create_all(well_and_failing(kind, failing)) for kind in FAILING}
    for well, *others in found.values():
        for job in (well, *others):
            wait_for(lambda job=job: started_pods(plane, job), "its pods run")
            let_end(client, dashboard, job, fails=job is not well)
    for job in (job for jobs in found.values() for job in jobs):
        wait_for(lambda job=job: has_condition(workload_of(client, job), "Finished"), "it ends")
    return found


def well_and_failing(kind, names):
    well, *others = (
        made(kind, names, labels=paper.LIGHT, name=f"{name}-{kind.lower()}")
        for name in ("well", "fails-0", "fails-1", "fails-2")
    )
    well["metadata"]["annotations"] = {"kueue-fallback.dev/allow": "gpu"}
    for job in (well, *others):
        # No node here has the label that they ask for with a GPU.
        remove_selectors(job["spec"])
        # By default its operator restarts what fails, for ever.
        for replica in job["spec"].get("pytorchReplicaSpecs", {}).values():
            replica["restartPolicy"] = "Never"
    return [well, *others]


@pytest.mark.parametrize("kind", FAILING)
def test_where_a_class_of_a_kind_keeps_failing_no_more_of_it_is_sent(plane, failing, failed, kind):
    assert [queue_of(job) for job in failed[kind]] == [
        failing.gpu_queue,
        *[failing.cpu_queue] * 3,
    ]
    *_, another = well_and_failing(kind, failing)
    another["metadata"]["name"] = f"probe-{kind.lower()}"

    def refused():
        decision = decision_of(plane.client.create(another, dry_run=True))
        return decision["options"][1].get("rejected", "")

    said = wait_for(refused, "the option is refused to the class")
    assert said == (
        "keepsFailing: Jobs of its class failed 3 times under option cpu and never succeeded; "
        "they do elsewhere"
    )


def remove_selectors(part):
    """Take all node selectors out of a spec."""
    if isinstance(part, dict):
        part.pop("nodeSelector", None)
    for each in part.values() if isinstance(part, dict) else part:
        if isinstance(each, dict | list):
            remove_selectors(each)


@pytest.fixture(scope="module")
def waiting(plane, webhook, controllers):
    """A light Job of each kind that waits in the CPU queue, by its kind; both queues are full."""
    client = plane.client
    names, policy = place(plane, "waiting", threshold=[{"option": "cpu", "orPendingBelow": 1000}])
    of_workers = for_workers_of_mpi_jobs(policy)
    with (
        applied_policy(client, of_workers, names, until_decided=False),
        applied_policy(client, policy, names),
    ):
        held = [cpu_job(f"cpu-{number}", names) for number in range(6)]
        held += [paper.heavy_job(f"gpu-{number}", names, faster=SLOW) for number in range(4)]
        for job in client.create_all(held):
            wait_until_reserved(client, job)
        jobs = [made(kind, names, labels=paper.LIGHT) for kind in SPECS]
        yield names, {job["kind"]: job for job in client.create_all(jobs)}


def for_workers_of_mpi_jobs(policy):
    """Take MPIJobs out of a policy; return one for them, which leaves their launchers alone.

    A launcher is there from the creation on, so that nothing of it may change later.
    """
    found = json.loads(json.dumps(policy))
    policy["spec"]["match"]["kinds"].remove("MPIJob")
    found["metadata"]["name"] += "-mpi"
    found["spec"]["match"]["kinds"] = ["MPIJob"]
    found["spec"]["options"][1]["adaptation"]["podSets"] = ["worker"]
    return found


def test_tail_tells_of_jobs_of_all_kinds(plane, waiting):
    names, found = waiting
    words = ("tail", "-n", names.namespace, "--since", "30m", "-o", "json")

    told = invoked(plane, *words, "--count", str(len(found)), "--for", "60s")

    lines = [json.loads(line) for line in told.output.splitlines()]
    told_of = {line["kind"]: (line["event"], line["name"], line["option"]) for line in lines}
    assert told_of == {kind: ("created", kind.lower(), "cpu") for kind in found}


@pytest.mark.parametrize("kind", IN_PLACE)
def test_one_that_waits_is_moved_there_and_back(plane, waiting, kind):
    names, found = waiting
    job, client = found[kind], plane.client
    wait_for(lambda: queued(plane, job) is not None, "its Workload is there")

    for option, queue in (("gpu", names.gpu_queue), ("cpu", names.cpu_queue)):
        moved, _ = wish(client, job, option)
        assert (decision_of(moved)["option"], queue_of(moved)) == (option, queue)
        followed = wait_for(lambda moved=moved: followed_to(plane, moved), "its Workload follows")
        pods = [each["template"] for each in followed["spec"]["podSets"]]
        assert (GPU in json.dumps(pods)) == (option == "gpu")
        assert set(env_of(pods, "RUN_ENV")) == {option}


def followed_to(plane, job):
    """Return the Workload once it is in the queue of the Job and has its pods."""
    workload = waits_in(plane, job, queue_of(job))
    has_gpus = GPU in json.dumps(job["spec"])
    return workload if workload and (GPU in json.dumps(workload["spec"])) == has_gpus else None


@pytest.mark.parametrize("kind", list(SPECS))
def test_one_that_waits_is_undone_by_its_kind_and_name(plane, waiting, kind):
    names, found = waiting
    job = found[kind]
    assert (decision_of(job)["option"], queue_of(job)) == ("cpu", names.cpu_queue)
    wait_for(lambda: queued(plane, job) is not None, "its Workload is there")
    words = ("undo", f"{kind.lower()}/{kind.lower()}", "-n", names.namespace)

    if kind not in (*IN_PLACE, *ROLLED):
        refused = invoked(plane, *words)
        assert refused.exit_code == 1
        assert "--recreate" in refused.output
        words += ("--recreate", "--yes")
    # Its controller and Kueue write to it meanwhile, on a busy machine for seconds.
    wait_for(lambda: invoked(plane, *words).exit_code == 0, "it is undone")

    after = now(plane, names, kind)
    queued_by = after["spec"]["template"] if kind in ROLLED else after
    assert (decision_of(after), queue_of(queued_by)) == (None, names.gpu_queue)
    assert after["metadata"]["annotations"]["kueue-fallback.dev/policy"] == "none"
    assert (after["metadata"]["uid"] == job["metadata"]["uid"]) == (kind in (*IN_PLACE, *ROLLED))
    assert GPU in json.dumps(after["spec"]) or kind == "TrainJob"
    wait_for(lambda: waits_in(plane, after, names.gpu_queue), "its Workload goes back, too")


def waits_in(plane, job, queue):
    workload = queued(plane, job)
    return workload if workload and workload["spec"]["queueName"] == queue else None


def test_each_run_is_learned_in_a_class_of_its_own(plane, crowded, created):
    wanted = {job_class.of_job(read(submitted(kind, crowded))).key for kind in LEARNED}
    known = {}

    def records():
        for source in config_maps(plane):
            known.update(read_shard(source))
        return known.keys() >= wanted

    wait_for(records, "the runs are on record")

    assert len(wanted) == len(LEARNED)
    assert {tuple(known[key].runs) for key in wanted} == {(crowded.cpu_flavor,)}


def submitted(kind, names):
    return made(kind, names, labels=paper.LIGHT)


def config_maps(plane):
    return plane.client.list("v1", "ConfigMap", namespace=NAMESPACE)


def test_each_is_in_the_journal_as_it_was_submitted_and_as_it_ran(plane, crowded, created):
    found = in_the_journal(plane, crowded, [f"{kind}/{kind}".lower() for kind in LEARNED])

    for kind, entry in zip(LEARNED, found, strict=True):
        assert (entry.kind, entry.option, entry.outcome) == (kind, "cpu", SUCCEEDED)
        assert entry.queue == crowded.cpu_queue
        # A TrainJob is kept without its runtime, and so without pods.
        assert GPU in entry.submitted or kind == "TrainJob"
        assert GPU not in entry.ran


def in_the_journal(plane, names, references):
    """Return the entries of Jobs of a namespace, once all of them are there."""
    found = {}

    def are_there():
        for source in config_maps(plane):
            slot = read_slot(source) if "-journal" in source["metadata"]["name"] else None
            entries = slot.entries.values() if slot else ()
            found.update({e.reference: e for e in entries if e.namespace == names.namespace})
        return found.keys() >= set(references)

    wait_for(are_there, "all are in the journal")
    return [found[reference] for reference in references]


def test_those_that_failed_are_in_the_journal_as_failed(plane, failing, failed):
    references = [
        f"{job['kind'].lower()}/{job['metadata']['name']}"
        for jobs in failed.values()
        for job in jobs
    ]

    found = in_the_journal(plane, failing, references)

    assert [entry.outcome for entry in found] == [SUCCEEDED, *[FAILED] * 3] * len(FAILING)


def test_the_report_has_a_row_of_each_kind(plane, crowded, created):
    words = ("report", "-n", crowded.namespace, "--since", "1h", "-o", "json")

    report = json.loads(asked(plane, *words))

    rows = {row["kind"]: row for row in report["rows"] if row["policy"]}
    assert {kind: (rows[kind]["seen"], rows[kind]["moved"]) for kind in LEARNED} == dict.fromkeys(
        LEARNED, (1, 1)
    )


def test_what_came_is_replayed_from_the_log_of_the_server(
    plane, webhook, crowded, created, tmp_path
):
    log, snapshot = tmp_path / "server.log", tmp_path / "snapshot.json"
    log.write_text(plane.processes.log(webhook.replicas[0].name).read_text())
    snapshot.write_text(plane.kubectl("get", SAVED, "-A", "-o", "json").stdout)
    words = ["simulate", "--decisions", str(log), "--snapshot", str(snapshot), "--run-time", "5m"]

    told = CliRunner().invoke(main, [*words, "-o", "json"])

    assert told.exit_code == 0, told.output
    (replayed,) = (
        each["jobs"]
        for each in json.loads(told.output)["strategies"]
        if each["strategy"] == "Threshold"
    )
    options = {job["name"]: job["option"] for job in replayed}
    assert {kind: options[kind.lower()] for kind in SPECS} == dict.fromkeys(SPECS, "cpu")
    assert [job for job in replayed if job["finish"] < job["start"]] == []


@pytest.mark.parametrize("kind", SPECS)
def test_the_console_shows_it_by_its_kind(webhook, crowded, created, kind):
    where = f"kind={kind}&namespace={crowded.namespace}"

    told = json.loads(fetched(webhook, f"/decisions?{where}"))
    page = fetched(webhook, f"/?{where}")

    (decision,) = told["decisions"]
    reference = f"{kind.lower()}/{kind.lower()}"
    assert (decision["job"], decision["kind"], decision["option"]) == (reference, kind, "cpu")
    assert f"{crowded.namespace}/</span>{reference}</span>" in page


def fetched(webhook, path):
    with urllib.request.urlopen(f"{webhook.endpoints['console']}{path}") as answer:
        return answer.read().decode()


@pytest.fixture(scope="module")
def unbounded(plane, webhook, controllers):
    """A namespace in which every option is taken, whatever it changes."""
    client, names = plane.client, paper.names_with("unbounded", namespace="unbounded")
    client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "unbounded"}})
    client.apply_all(refusals.queues(names))
    client.apply_all(refusals.admission_policy(names.namespace))
    policies = list(refusals.policies(names, names.namespace))
    client.apply_all(policies)

    def without_a_decision():
        found = (refusals.probe(names, adaptation) for adaptation in refusals.ADAPTATIONS)
        return [job for job in found if decision_of(client.create(job, dry_run=True)) is None]

    wait_for(lambda: not without_a_decision(), "the webhook decides by every policy")
    yield names
    for policy in policies:
        client.delete(policy["apiVersion"], policy["kind"], policy["metadata"]["name"])


def test_nothing_that_is_taken_without_us_is_refused_with_us(plane, unbounded):
    seed = int(os.environ.get("REFUSALS_SEED", "20261"))
    again = f"REFUSALS_SEED={seed} pytest tests/e2e/test_kinds.py -k refused_with_us"
    trials = list(refusals.trials(unbounded, RANDOM_TRIALS, seed))

    with ThreadPoolExecutor(max_workers=4) as pool:
        verdicts = list(pool.map(lambda trial: refusals.tried(plane.client, trial), trials))

    assert [verdict.because_of_us for verdict in verdicts if verdict.because_of_us] == [], again
    print(*(f"{each.trial}: {each.option} {each.otherwise}" for each in verdicts), sep="\n")
    # So that it says something: each kind was changed, and each option changed something.
    taken = [verdict.trial for verdict in verdicts if verdict.option == "cpu"]
    assert {trial.job["kind"] for trial in taken} == {"Job", *SPECS}
    assert {trial.adaptation for trial in taken} == set(refusals.ADAPTATIONS) - {
        "huge",
        "missing-class",
    }


def test_once_all_are_deleted_nothing_is_left_in_the_queue(plane, crowded, created):
    client = plane.client
    for job in created.values():
        name = job["metadata"]["name"]
        client.delete(job["apiVersion"], job["kind"], name, namespace=crowded.namespace)

    def left():
        found = client.list(paper.KUEUE, "Workload", namespace=crowded.namespace)
        return [each for each in found if each["spec"].get("queueName") == crowded.cpu_queue]

    wait_for(lambda: not left(), "nothing is left")


def invoked(plane, *words):
    return CliRunner().invoke(main, [*words, "--kubeconfig", str(plane.kubeconfig)])


def asked(plane, *words):
    result = invoked(plane, *words)
    assert result.exit_code == 0, result.output
    return result.output


def containers_of(source):
    return [
        pod_set.template.containers for pod_set in BY_NAME[source["kind"]].read(source).pod_sets
    ]
