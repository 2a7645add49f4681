"""For every text at every place where somebody may write one: readers read on, and state goes out.

The API server looks at types alone, so a text stays a text and a number a number here.
"""

import copy
import json
import pickle
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.controller import stepping
from tests.controller.hostile import DECIDED, job
from tests.controller.journals import WORLD
from tests.controller.objects import Objects
from tests.model.policies import VALID
from tests.state.feeds import RESOURCES
from tests.state.objects import RESERVED, cluster_queue, condition, local_queue, named, workload
from webhook.api import resources as kinds
from webhook.api.watch import WatchUpdate
from webhook.console import console
from webhook.controller import followed_watches, records
from webhook.controller.job_events import JobEvents
from webhook.controller.records import Keeper
from webhook.hindsight.journal_keeper import Journal
from webhook.jobs import JOB
from webhook.learn.run_records import ClassRecord, config_map
from webhook.model.job import DECISION, UNDONE, UNDONE_FROM
from webhook.reconsider import pending_jobs
from webhook.state.feed import Feed
from webhook.state.pipe import apply_update
from webhook.state.readers import READERS, read_by_kind
from webhook.state.snapshot import Snapshot

JOBS, PENDING = followed_watches.followed(JOB), pending_jobs.followed(JOB)
MARKS = "kueue-fallback.dev/"
MOMENT = "2026-11-21T06:00:10Z"
UNEXPECTED = re.compile(r"[A-Za-z]+ at [\w.]+:\d+")
DIGITS = "9" * 5000
NASTY = [
    "",
    DIGITS,
    f"-{DIGITS}m",
    f"0.{DIGITS}",
    "1e99",
    "1" * 64,
    f"x ~y {DIGITS}",
    "ab ~cd 99999999999",
    f"ab ~cd {(1 << 32) - 1}",
    "@gpu-cq ~a 1",
    "x" * 2_000,
    "9999-12-31T23:59:59.999999-14:00",
    "0001-01-01T00:00:00+14:00",
    "2106-02-07T06:28:15Z",
    "[" * 2_000,
    '{"a":' * 700 + "1" + "}" * 700,
    json.dumps({**DECIDED, "policy": "\ud800"}),
    json.dumps({**DECIDED, "options": [{"name": "a", "startsIn": 10**400}]}),
    json.dumps({**DECIDED, "time": "0001-01-01T00:00:00", "moves": 10**19}),
    "job:team/x",
    "٣",
    "a/b/c\n\0",
]
NASTY_NUMBERS = [-(1 << 63), (1 << 63) - 1, -1, 0, 1 << 32]
TEXTS = st.text(max_size=40) | st.sampled_from([*NASTY, "x" * 100_000, "[" * 100_000])
NUMBERS = st.integers(-(1 << 63), (1 << 63) - 1) | st.sampled_from(NASTY_NUMBERS)


def ended():
    conditions = (RESERVED, condition("Admitted"), condition("Finished", reason="Succeeded"))
    dated = tuple({**each, "lastTransitionTime": MOMENT} for each in conditions)
    found = whole(conditions=dated, admitted_to="gpu-cq", assigned=1)
    # One that took over from another slice has run for longer than it says.
    del found["metadata"]["annotations"]["kueue.x-k8s.io/workload-slice-replacement-for"]
    return found


def whole(**rest):
    """A Workload with something at each place that is read."""
    found = workload(decision="d-1", guest=("policy", "cpu"), priority=1, **rest)
    found["metadata"] |= {"uid": "w-1", "labels": {"kueue.x-k8s.io/multikueue-origin": "x"}}
    found["metadata"]["annotations"] = {
        "kueue.x-k8s.io/workload-slice-replacement-for": "team/other",
        "kueue.x-k8s.io/admission-gated-by": "x",
    }
    template = found["spec"]["podSets"][0]["template"]
    template["metadata"]["annotations"] |= {
        f"{MARKS}class": "ab ~cd 1",
        "kueue.x-k8s.io/podset-required-topology": "rack",
    }
    template["spec"] |= {"nodeSelector": {"a": "b"}, "overhead": {"cpu": "1"}}
    template["spec"]["containers"][0] |= {"command": ["sh"], "args": ["-c", "x"]}
    found["spec"]["maximumExecutionTimeSeconds"] = 60
    found["status"] |= {
        "requeueState": {"requeueAt": MOMENT, "count": 1},
        "reclaimablePods": [{"name": "main", "count": 1}],
        "clusterName": "worker",
    }
    return found


def whole_job():
    found = job(
        **{
            DECISION: json.dumps({**DECIDED, "moves": 1}),
            UNDONE: "p",
            UNDONE_FROM: f"{MOMENT} a,b",
            f"{MARKS}deadline": "1h",
        }
    )
    found["status"] = {"startTime": MOMENT, "ready": 1}
    return found


QUANTITIES = {"cpu": "1", "memory": "1Gi"}
LIMITS = {"type": "Container", "default": QUANTITIES, "max": QUANTITIES}
CLUSTER = {
    kinds.CLUSTER_QUEUES: cluster_queue(),
    kinds.LOCAL_QUEUES: local_queue(),
    kinds.COHORTS: named("Cohort", "all", spec={"parentName": "top"}),
    kinds.FLAVORS: named("ResourceFlavor", "a100", spec={"nodeLabels": {"a": "b"}}),
    kinds.NAMESPACES: {"metadata": {"name": "team", "labels": {"a": "b"}}},
    kinds.LIMIT_RANGES: {
        "metadata": {"name": "limits", "namespace": "team"},
        "spec": {"limits": [LIMITS]},
    },
    kinds.RUNTIME_CLASSES: named("RuntimeClass", "kata", overhead={"podFixed": QUANTITIES}),
    kinds.PRIORITY_CLASSES: named("WorkloadPriorityClass", "high", value=7),
    kinds.POD_PRIORITIES: named("PriorityClass", "high", value=7),
    kinds.DEVICE_CLASSES: named(
        "DeviceClass", "gpu", spec={"extendedResourceName": "nvidia.com/gpu"}
    ),
    kinds.POLICIES: VALID,
    kinds.RUN_TIMES: config_map(0, {"ab": ClassRecord(name="x")}),
}
"""One object of each kind that a user or an admin writes."""
HOLDING = whole(conditions=(RESERVED,), admitted_to="gpu-cq", assigned=1)
WORKLOADS = {"pending": whole(), "holding": HOLDING, "over": ended()}


def leaves(value, path=()):
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from leaves(value[key], (*path, key))
    elif isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool)):
        yield path


def written(source, path, value):
    found = copy.deepcopy(source)
    node = found
    for part in path[:-1]:
        node = node[part]
    node[path[-1]] = value
    return found


@st.composite
def hostile(draw, sources):
    """Write something into a few places of one of them."""
    name = draw(st.sampled_from(sorted(sources)))
    source = sources[name]
    for path in draw(st.lists(st.sampled_from(list(leaves(source))), min_size=1, max_size=3)):
        node = source
        for part in path:
            node = node[part]
        source = written(source, path, draw(TEXTS if isinstance(node, str) else NUMBERS))
    return name, source


def everywhere(source):
    """Write each of what is nasty at each place, one at a time."""
    for path in leaves(source):
        node = source
        for part in path:
            node = node[part]
        for value in NASTY if isinstance(node, str) else NASTY_NUMBERS:
            yield written(source, path, value)


def told(entry):
    """Nobody has forgotten that this may be there: its reader says itself what is wrong."""
    assert not UNEXPECTED.search(entry.problem), entry.problem
    return entry


def synced(*changed):
    """A feed that has listed one object of each kind, and then these."""
    feed = Feed(RESOURCES, now=0.0)
    for resource in RESOURCES:
        sources = [CLUSTER[resource.kind]] if resource.kind in CLUSTER else []
        entries = tuple(read_by_kind(resource.kind, source) for source in sources)
        feed.take(WatchUpdate(kind=resource.kind, at=1.0, entries=entries))
    for kind, entry in changed:
        feed.take(WatchUpdate(kind=kind, at=2.0, event=("ADDED", entry)))
    return feed


def assert_publishes(feed):
    for at in (3.0, 4.0):
        update = feed.update(at, 1_800_000_000.0)
        assert update.synced
        assert pickle.dumps(update)
        assert apply_update(Snapshot(), update).as_of > 0.0
    assert not [
        line for line in feed.hear(WatchUpdate(kind="x", at=5.0)) if UNEXPECTED.search(line)
    ]


@pytest.mark.parametrize("kind", CLUSTER)
def test_what_is_nasty_anywhere_in_an_object_is_nothing_that_its_reader_has_not_thought_of(kind):
    entries = [told(read_by_kind(kind, source)) for source in everywhere(CLUSTER[kind])]

    assert len(entries) > len(NASTY)
    assert_publishes(synced(*((kind, entry) for entry in entries)))


@pytest.mark.parametrize("stage", WORKLOADS)
def test_what_is_nasty_anywhere_in_a_workload_is_counted_or_passed_over(stage):
    entries = []
    for number, source in enumerate(everywhere(WORKLOADS[stage])):
        told(records.read_run("runs", source))
        entry = told(read_by_kind(kinds.WORKLOADS, source))
        entries.append(entry._replace(key=("team", f"w-{number}")))

    assert len(entries) > 100
    assert_publishes(synced(*((kinds.WORKLOADS, entry) for entry in entries)))


@given(hostile(WORKLOADS))
def test_a_workload_with_anything_in_it_is_read_or_said_to_be_unreadable(given):
    _, source = given

    entry = told(read_by_kind(kinds.WORKLOADS, source))
    over = told(records.read_run("runs", source))
    feed = synced((kinds.WORKLOADS, entry))

    assert_publishes(feed)
    server = Objects()
    keeper = Keeper(server, "ours", is_leader=lambda: True)
    journal = Journal(server, "ours", is_leader=lambda: True, unix=lambda: 2_000_000_000.0)
    message = WatchUpdate(kind="runs", at=0.0, entries=(over,))
    keeper.take(message)
    journal.take_over(message)
    assert keeper.step(0.0).errors == ()
    assert journal.step(WORLD, 0.0).errors == ()


@given(hostile(CLUSTER))
def test_any_other_object_with_anything_in_it_is_read_or_said_to_be_unreadable(given):
    kind, source = given

    entry = told(read_by_kind(kind, source))

    assert kind in READERS
    assert_publishes(
        synced((kind, entry), (kinds.WORKLOADS, read_by_kind(kinds.WORKLOADS, whole())))
    )


@given(hostile({"job": whole_job()}))
def test_a_job_with_anything_in_it_is_followed_or_said_to_be_unreadable(given):
    _, source = given
    server = Objects()
    events = JobEvents(server, is_leader=lambda: True, unix=lambda: 0.0)
    journal = Journal(server, "ours", is_leader=lambda: True, unix=lambda: 0.0)

    seen = told(JOBS.read(JOBS.kind, source))
    told(PENDING.read(PENDING.kind, source))
    told(console.NewestJobs().read("jobs", source))

    message = WatchUpdate(kind="jobs", at=0.0, event=("ADDED", seen))
    assert (events.take(message), journal.take_jobs(message)) == ((), ())
    assert events.step(stepping.at()) == ()
