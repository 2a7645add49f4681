"""Whatever the order of events, the counts are those of a state that lists the outcome afresh."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders import policy
from tests.state.objects import PENDING, condition, local_queue, reserving, workload
from webhook.api import resources as kinds
from webhook.api.resources import ReadObject
from webhook.model.policy.fallback_policy import FallbackPolicy
from webhook.state.state import State

NAMES = st.sampled_from(["w1", "w2", "w3", "w4", "w5"])
QUEUES = st.sampled_from(["gpu-lq", "cpu-lq", "lost-lq"])
SHAPES = st.fixed_dictionaries(
    {
        "queue": QUEUES,
        "cpu": st.sampled_from(["1", "1500m"]),
        "guest": st.sampled_from([("", ""), ("p", "cpu"), ("p", "gpu")]),
        "priority": st.integers(0, 2),
        "annotations": st.sampled_from(
            [
                {},
                {
                    "kueue.x-k8s.io/elastic-job": "true",
                    "kueue.x-k8s.io/workload-slice-replacement-for": "team/w1",
                },
            ]
        ),
    }
)
OWNERS = st.sampled_from(["", "", "p1", "p2"])
ADMITTED = {**condition("Admitted"), "lastTransitionTime": "2026-12-01T08:00:00Z"}
ALSO = st.sampled_from([(), (ADMITTED,)])
CONDITIONS = st.sampled_from([(), (PENDING,), (PENDING, condition("Finished"))])


@st.composite
def workloads(draw):
    name, shape = draw(NAMES), draw(SHAPES)
    if draw(st.booleans()):
        queue, also = draw(st.sampled_from(["gpu-cq", "cpu-cq"])), draw(ALSO)
        return owned(draw(OWNERS), reserving(name, to=queue, also=also, **shape))
    return owned(draw(OWNERS), workload(name, conditions=draw(CONDITIONS), **shape))


def owned(parent, source):
    """Make the Workload a variant of *parent*, if there is one."""
    if parent:
        owner = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "name": parent}
        source["metadata"]["ownerReferences"] = [owner]
    return source


@st.composite
def local_queues(draw):
    stop = draw(st.sampled_from(["None", "Hold"]))
    return local_queue(draw(QUEUES), draw(st.sampled_from(["gpu-cq", "cpu-cq"])), stopPolicy=stop)


def option(name, queue):
    return {
        "name": name,
        **({"queue": queue} if queue.endswith("-lq") else {"clusterQueue": queue}),
    }


@st.composite
def policies(draw):
    """Of the Workloads' marks; those that it has options for may be in queues of others."""
    queues = st.lists(st.sampled_from(["gpu-lq", "cpu-lq", "gpu-cq"]), min_size=1, unique=True)
    names = st.permutations(["cpu", "gpu", "other"])
    options = zip(draw(names), draw(queues), strict=False)
    return policy(*(option(name, queue) for name, queue in options), name="p")


def enter(state, event_type, value):
    state.apply_read(kinds.POLICIES, event_type, ReadObject(("", "p"), value))


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["MODIFIED", "MODIFIED", "DELETED", "snapshot"]),
        st.one_of(workloads(), local_queues(), policies()),
    ),
    max_size=40,
)


@settings(max_examples=150, deadline=None)
@given(EVENTS)
def test_counts_do_not_depend_on_the_way_they_came_about(events):
    state, there = State(), {kinds.WORKLOADS: {}, kinds.LOCAL_QUEUES: {}}
    decides = None

    for event_type, source in events:
        if isinstance(source, FallbackPolicy):
            if event_type != "snapshot":
                enter(state, event_type, source)
                decides = source if event_type == "MODIFIED" else None
            continue
        kind = kinds.WORKLOADS if source["kind"] == "Workload" else kinds.LOCAL_QUEUES
        if event_type == "snapshot":
            state.snapshot(0.0, 0.0)
            continue
        state.apply(kind, event_type, source)
        there[kind].pop(source["metadata"]["name"], None)
        if event_type == "MODIFIED":
            there[kind][source["metadata"]["name"]] = source
    afresh = State()
    if decides is not None:
        enter(afresh, "MODIFIED", decides)
    for kind, objects in there.items():
        afresh.replace(kind, objects.values())

    found, wanted = state.snapshot(1.0, 0.0), afresh.snapshot(1.0, 0.0)
    assert found.workloads == wanted.workloads
    assert found.setup.local_queues == wanted.setup.local_queues
