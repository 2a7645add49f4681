"""What a process does with each of its rights, done once: by its own code, with its own token.

Each use returns the complaint that the process would log, or nothing.
"""

import itertools
import time
from datetime import UTC, datetime, timedelta
from functools import partial

from click.testing import CliRunner

from certs.client import Client as CertsClient
from certs.keeper import Keeper
from certs.plan import Lifetimes
from certs.store import Store
from tests.builders import job
from tests.chart import helm
from tests.controller.journals import ENDED, WORLD, past
from tests.learn.runs import DAY, ended
from tests.state.objects import workload
from webhook.api.client import Client
from webhook.api.kubernetes_api import ClusterError, NotServed
from webhook.api.lease import Elector
from webhook.api.resources import SAVINGS, ReadObject
from webhook.api.watch import Follower, WatchUpdate
from webhook.commands import probe, release
from webhook.console.access import AccessQuery, Reviews, Unanswered, Unknown, Viewer
from webhook.console.console import lease_in, savings_in
from webhook.controller import (
    controller,
    followed_watches,
    mover,
    policy_status,
    records,
    status_keeper,
)
from webhook.controller import records as run_times
from webhook.controller.controller_metrics import ControllerMetrics
from webhook.controller.savings_publisher import SavingsPublisher
from webhook.cost.rates import compile_tariff
from webhook.hindsight.entries import FinishedRun
from webhook.hindsight.journal_keeper import Journal
from webhook.hindsight.savings_record import SavingsRecord, packed
from webhook.jobs import KINDS
from webhook.learn.estimates import RunTimeLearner
from webhook.learn.run_records import FAILURES_THAT_TELL
from webhook.model.costs.tariff import read_tariff
from webhook.model.job import Pending, Requester
from webhook.model.policy.fallback_policy import read_policy
from webhook.model.queues import Arrival
from webhook.reconsider.plan import Move, MoveCandidate, Rank, Way
from webhook.state import cluster_watches
from webhook.state.feed import Feed
from webhook.state.run_records_reader import RunRecordsReader
from webhook.state.signing_keys import KeyKeeper
from webhook.state.snapshot import Snapshot, updated
from webhook.state.watched import signing_keys, watched
from webhook.state.workload import read_workload

KUEUE_NAMESPACE = "kueue-system"
CLASS = "a-class"
METADATA = {kind.plural: followed_watches.followed(kind) for kind in KINDS.values()}
WORKER = "gpu-worker"
GONE = workload("gone", job="gone")
WORKLOAD = read_workload(GONE)
PENDING_JOB = Pending(
    uid="gone", version="1", created=0.0, job=job(name="gone"), queue="gpu-lq", option="gpu"
)
MOVE = Move(
    candidate=MoveCandidate(
        key=PENDING_JOB.key,
        rank=Rank("light-gpu", "team", 0),
        option="gpu",
        runs=20.0,
        kind="",
        order=0,
        ways=(),
    ),
    way=Way(
        arrival=Arrival(
            key="", namespace="team", local_queue="cpu-lq", needs=(), priority=0, option="cpu"
        ),
        cluster_queue="cpu-cq",
        runs=70.0,
    ),
    gain=10.0,
    before=100.0,
    after=70.0,
)


def is_allowed(plane, account, role, right):
    """Ask the API server whether it would let the account do it; its view lags a moment behind."""
    resource, _, subresource = right["resources"][0].partition("/")
    asked = {
        "verb": right["verbs"][0],
        "group": right["apiGroups"][0],
        "resource": resource,
        "subresource": subresource,
        "namespace": role["metadata"].get("namespace", ""),
        "name": right.get("resourceNames", [""])[0],
    }
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": f"system:serviceaccount:{helm.NAMESPACE}:{account}",
            "resourceAttributes": asked,
        },
    }
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    return plane.client.send("POST", path, review).json()["status"]["allowed"]


def following(right, kubeconfig, namespace):
    """List and watch one resource, as observer and controller do."""
    resource = _followed(right, namespace)
    client = Client(kubeconfig, metadata_only=resource in METADATA.values())
    messages = []
    follower = Follower(
        resource,
        client,
        messages.append,
        clock=time.monotonic,
        sleep=lambda _: None,
        uniform=lambda low, _: low,
    )
    follower.step()
    errors = [message.error for message in messages if message.error]
    if errors and resource.required:
        feed = Feed((resource,), time.monotonic())
        for message in messages:
            feed.take(message)
        assert feed.not_ready() == f"not synced yet: {resource.kind}"
    return " ".join(errors)


def _followed(right, namespace):
    # Of Kueue's Deployment alone the whole object is watched.
    if right["resources"][0] in METADATA and "resourceNames" not in right:
        # Controller and console watch the same with the same client, for their own ends.
        return METADATA[right["resources"][0]]
    if right["resources"] == ["leases"]:
        return lease_in(namespace)
    # Of several objects that one right is for, the first is followed.
    name = right.get("resourceNames", right["resources"])[0]
    if name == SAVINGS:
        return savings_in(namespace)
    resources = (
        *watched(namespace=namespace, kueue_namespace=KUEUE_NAMESPACE),
        signing_keys(namespace),
    )
    return next(resource for resource in resources if resource.kind == name)


def writing_status(_, kubeconfig, namespace):
    """Judge all policies, as the controller does; one has no status yet."""
    client = Client(kubeconfig)
    try:
        found = policy_status.reconcile_policies(
            client,
            Snapshot(),
            partial(policy_status.condition_of, own_namespace=namespace),
            clock=_now_as_text,
            is_leader=_always,
        )
    except ClusterError as error:
        return str(error)
    return " ".join(message for _, message in found.failed)


TARIFF = {
    "apiVersion": "kueue-fallback.dev/v1alpha1",
    "kind": "Tariff",
    "metadata": {"name": "rights"},
    "spec": {"electricity": [{"price": "0.3"}]},
}
PROFILE = {
    "apiVersion": "kueue-fallback.dev/v1alpha1",
    "kind": "AcceleratorProfile",
    "metadata": {"name": "rights"},
    "spec": {"flavors": ["gpu"]},
}


def writing_costs(_, kubeconfig, __):
    """Judge all profiles and tariffs, as the controller does; none has a status yet."""
    client, unix = Client(kubeconfig), time.time()
    (stored,) = client.get("/apis/kueue-fallback.dev/v1alpha1/tariffs")["items"]
    compiled = compile_tariff(read_tariff(stored), now=unix, zone=UTC)
    report = status_keeper.reconcile_costs(
        client,
        updated(Snapshot(), tariffs=(compiled,)),
        unix=unix,
        time=_now_as_text(),
        is_leader=_always,
    )
    return " ".join(message for _, message in report.failed)


def reading_records(_, kubeconfig, namespace):
    """Read the records of runs, as the observer does."""
    messages = []
    reader = RunRecordsReader(
        namespace,
        Client(kubeconfig),
        messages.append,
        clock=time.monotonic,
        sleep=lambda _: None,
        uniform=lambda low, _: low,
    )
    reader.step()
    return " ".join(message.error for message in messages)


def reading_kubeconfigs(_, kubeconfig, namespace):
    """Look for how to reach a worker cluster, as the observer does."""
    told = []
    reader = cluster_watches.KubeconfigReader(
        namespace, Client(kubeconfig), lambda: (WORKER,), told.append, wait=lambda: None
    )
    reader.step()
    problems = [each.problem for found in told for each in found]
    return " ".join(each for each in problems if "cannot" in each)


def keeping_records(_, kubeconfig, namespace):
    """Write down a run, as the controller does."""
    keeper = run_times.Keeper(Client(kubeconfig), namespace, is_leader=_always)
    entry = ReadObject(("team", "a"), FinishedRun(ended(CLASS), None))
    keeper.take(WatchUpdate(kind="workloads", at=0.0, entries=(entry,)))
    return " ".join(keeper.step(0.0).errors)


def keeping_keys(_, kubeconfig, namespace):
    """Make the keys that decisions are signed with, as the controller does."""
    keeper = KeyKeeper(Client(kubeconfig), namespace, is_leader=_always, unix=time.time)
    return " ".join(line for line in keeper.step(1.0) if "made key" not in line)


def keeping_journal(_, kubeconfig, namespace):
    """Write down a Job that is over, as the controller does."""
    clock = itertools.count(ENDED, 10)
    kept = Journal(
        Client(kubeconfig), namespace, is_leader=_always, unix=lambda: float(next(clock))
    )
    over = ReadObject(("team", "a"), FinishedRun(None, past(key="rights", finished=ENDED)))
    kept.take_over(WatchUpdate(kind="workloads", at=0.0, entries=(over,)))
    return " ".join(kept.step(WORLD, 0.0).errors)


def publishing(_, kubeconfig, namespace):
    """Look back at the journal and publish what was saved, as the controller does."""
    publisher = SavingsPublisher(
        Client(kubeconfig),
        namespace,
        is_leader=_always,
        failures=None,
        look_back=None,
        journal_version=None,
    )
    try:
        publisher.write(packed(SavingsRecord(as_of=float(ENDED))))
    except ClusterError as error:
        return str(error)
    return ""


def leading(_, kubeconfig, namespace):
    """Strive for the Lease once, as the controller does."""
    elector = Elector(
        Client(kubeconfig),
        namespace,
        identity="rights",
        clock=time.monotonic,
        stamp=controller.stamp,
    )
    elector.step()
    return elector.trouble


def telling(_, kubeconfig, __, *, policy):
    """Tell of a class that keeps failing, as the controller does."""
    found = read_policy(policy)
    first, second, *_ = (option.name for option in found.spec.options)
    place = {"policy": found.name, "generation": found.generation}
    runs = RunTimeLearner()
    runs.add(ended(CLASS, DAY, option=first, **place))
    for number in range(FAILURES_THAT_TELL):
        runs.add(ended(CLASS, DAY + number, option=second, uid=number, succeeded=False, **place))
    teller = records.Teller(Client(kubeconfig), is_leader=_always, metrics=ControllerMetrics())
    lines = teller.step(runs.records, runs.take_changed(), (found,), DAY + 60.0)
    return " ".join(line for line in lines if "no Event" in line)


def asking_who(_, kubeconfig, __):
    """Find out who sends a token, as an exposed console does."""
    try:
        Reviews(Client(kubeconfig).post).rights_of("Bearer nobodys", "127.0.0.1")
    except Unknown:
        return ""
    except Unanswered as error:
        return str(error)
    raise AssertionError("a made-up token is somebody's")


def asking_what(_, kubeconfig, __):
    """Find out what somebody may see, as an exposed console does."""
    asked = AccessQuery("get", "kueue.x-k8s.io", "clusterqueues")
    try:
        nobody = Viewer(requester=Requester(name="nobody"))
        assert not Reviews(Client(kubeconfig).post).allows(nobody, asked)
    except Unanswered as error:
        return str(error)
    return ""


def moving(_, kubeconfig, namespace):
    """Ask for the move of a Job that is gone, as the controller does."""
    return _complaint(lambda: mover.ask(Client(kubeconfig), PENDING_JOB, MOVE))


def repairing(_, kubeconfig, namespace):
    """Take quota back from a Workload that is gone, as the controller does."""
    wanted = {"spec": {"active": False}}
    return _complaint(lambda: mover.to_workload(Client(kubeconfig), WORKLOAD, wanted))


def _complaint(act):
    try:
        act()
    except NotServed:
        return ""
    except ClusterError as error:
        return str(error)
    return ""


def keeping_certificates(_, kubeconfig, namespace, *, release):
    """Look after the authority, as the observer does."""
    secret = f"{release}-ca"
    keeper = Keeper(
        Store(
            CertsClient(kubeconfig),
            namespace=namespace,
            name=secret,
            configuration=release,
        ),
        names=[f"{release}.{namespace}.svc"],
        lifetimes=Lifetimes(
            ca=timedelta(days=1), leaf=timedelta(hours=1), settle=timedelta(seconds=1)
        ),
        now=lambda: datetime.now(UTC),
        # Every look at the clock is long after the last: what was mended has settled.
        monotonic=itertools.count(step=10.0).__next__,
    )
    keeper.step()
    return keeper.step().notice


def probing(_, kubeconfig, __):
    result = CliRunner().invoke(probe.command, ["--wait", "0", "--kubeconfig", kubeconfig])
    # Nobody answers here: that is no complaint about rights.
    return "" if result.stderr.startswith("The webhook did not answer within") else result.stderr


def listing_unfinished(_, kubeconfig, __):
    """List what is unfinished, and release what is held, as the hook before an uninstall does."""
    arguments = ["--release", "--kubeconfig", kubeconfig]
    return CliRunner().invoke(release.unfinished, arguments).stderr


def _always():
    return True


def _now_as_text():
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
