"""For all policies of namespaces' own: none reaches beyond its namespace."""

from hypothesis import given
from hypothesis import strategies as st

from tests import builders
from tests.reviews import light_job
from tests.servers import paper_snapshot
from webhook.decide.applicant import Moment
from webhook.flow import create
from webhook.jobs import JOB
from webhook.model.decision import Decided
from webhook.model.policy.fallback_policy import in_order
from webhook.model.queues import LocalQueue
from webhook.state.counted_arrivals import occupancy_of
from webhook.state.snapshot import updated

NAMESPACES = ("team", "other", "kube-system")
QUEUES = ("gpu-lq", "cpu-lq", "theirs-lq")
MOMENT = Moment(now=100.0, unix=1e9, time="2001-09-09T01:46:40Z", uid="a1b2c3d4-0000")


def policies():
    options = st.lists(st.sampled_from(QUEUES), min_size=1, max_size=3, unique=True)
    return st.builds(
        lambda namespace, name, queues, priority, mode: builders.team_policy(
            *({"queue": queue, "adaptation": {"accelerator": "Remove"}} for queue in queues),
            name=name,
            namespace=namespace,
            priority=priority,
            mode=mode,
            strategy=strategy(queues),
        ),
        st.sampled_from(NAMESPACES),
        st.sampled_from("abc"),
        options,
        st.integers(-1, 1),
        st.sampled_from(("Observe", "Advise", "Enforce")),
    )


def strategy(queues):
    """Prefer the last queue, as long as it takes anything."""
    rule = {"option": queues[-1], "orPendingBelow": 100}
    return {"type": "Threshold", "threshold": [rule]}


def considered(namespace, found):
    """Decide a Job where each namespace has queues of the same names, and one of its own."""
    snapshot = paper_snapshot()
    queues = {
        (where, name): LocalQueue(namespace=where, name=name, cluster_queue=f"{name[:3]}-cq")
        for where in NAMESPACES
        for name in ("gpu-lq", "cpu-lq")
    }
    theirs = LocalQueue(namespace="other", name="theirs-lq", cluster_queue="cpu-cq")
    snapshot = updated(
        snapshot,
        local_queues={**queues, ("other", "theirs-lq"): theirs},
        policies=in_order(found),
        namespaces={name: {} for name in NAMESPACES},
    )
    job = light_job()
    job["metadata"]["namespace"] = namespace
    return create.consider(job, JOB, occupancy_of(snapshot), MOMENT, create.Rules())


@given(st.sampled_from(NAMESPACES), st.lists(policies(), max_size=6))
def test_a_job_is_decided_as_if_other_namespaces_had_no_policies(namespace, found):
    unique = {policy.name: policy for policy in found}.values()

    outcome = considered(namespace, unique)

    own = [policy for policy in unique if policy.namespace == namespace]
    assert outcome == considered(namespace, own)
    if isinstance(outcome, Decided):
        decision = outcome.decision
        taken = [option.queue for option in decision.options if option.option == decision.option]
        assert decision.policy.startswith(f"{namespace}/")
        assert namespace == "other" or "theirs-lq" not in taken
        written = {edit.path for edit in outcome.edits}
        assert not [
            path for path in written if {"image", "command", "env", "tolerations"} & {*path}
        ]
