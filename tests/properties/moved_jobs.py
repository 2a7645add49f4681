"""Jobs created, moved and patched, as hypothesis draws them."""

from copy import deepcopy
from dataclasses import replace

from hypothesis import HealthCheck, assume, settings

from tests import builders
from tests.conftest import THOROUGH
from tests.flow.moves import asking, pending, plain
from tests.properties.decisions import ANY_SLICES, PLENTY
from tests.servers import paper_snapshot
from webhook.admission import patch
from webhook.decide.applicant import Moment
from webhook.flow import create, update
from webhook.jobs import KINDS
from webhook.model.decision import Decided, Declined, Moved
from webhook.model.job import QUEUE_LABEL
from webhook.model.policy.fallback_policy import FallbackPolicy, Option, Reconsider
from webhook.state.counted_arrivals import occupancy_of
from webhook.state.snapshot import Snapshot, updated

KIND = KINDS["batch", "v1", "Job"]


MOMENT = Moment(now=100.0, unix=1e9, time="2001-09-09T01:46:40Z", uid="a1b2c3d4-0000")


several = settings(max_examples=THOROUGH // 5, suppress_health_check=[HealthCheck.filter_too_much])
"""Each example decides a Job and moves it several times: as much as five of other properties.
Half of all moves are refused, and the first that are drawn are nearly all of these."""


LATER = replace(MOMENT, unix=1e9 + 60, time="2001-09-09T01:47:40Z")


def world(first, second, taken="gpu"):
    """Two queues with quota for whatever is asked; a policy whose rule takes one option."""
    snapshot = paper_snapshot()
    options = (
        Option(name="gpu", queue="gpu-lq", adaptation=first),
        Option(name="cpu", queue="cpu-lq", adaptation=second),
    )
    spec = snapshot.fallback.policies[0].spec
    changes = {
        "options": options if taken == "gpu" else options[::-1],
        "reconsider": Reconsider(),
        "slices": ANY_SLICES,
        "match": spec.match.model_copy(update={"job_selector": None, "queues": None}),
        "strategy": builders.policy(
            threshold=[{"option": taken, "orPendingBelow": 1000}]
        ).spec.strategy,
    }
    quota = {
        f"{name}-cq": builders.cluster_queue(f"{name}-cq", {"x": PLENTY}) for name in ("gpu", "cpu")
    }
    return occupancy_of(
        updated(
            snapshot,
            policies=(FallbackPolicy(name="any", spec=spec.model_copy(update=changes)),),
            cluster_queues=quota,
            flavors=builders.snapshot(*quota.values()).setup.flavors,
            held={},
            kueue=replace(snapshot.setup.kueue, ignore_undeclared=True),
        )
    )


def created(source, found):
    outcome = create.consider(source, KIND, found, MOMENT, create.Rules())
    assume(isinstance(outcome, Decided) and outcome.decision.option is not None)
    return patched(source, outcome)


def moved(stored, option, found):
    asked = asking(stored, option)
    outcome = update.respond(stored, asked, KIND, found, LATER, create.Rules())
    after = patched(asked, outcome)
    if isinstance(outcome, Declined):
        assert plain(after) == plain(stored)
    assume(isinstance(outcome, Moved))
    return after


def undo(stored, time):
    """Ask for an undo where nothing is known of the cluster; return the asking Job and outcome."""
    asked, nothing = asking(stored, "none"), occupancy_of(Snapshot())
    moment = replace(LATER, now=0.0, time=time)
    return asked, update.respond(stored, asked, KIND, nothing, moment, create.Rules())


def patched(source, outcome):
    result = deepcopy(source)
    patch.operations(outcome.edits, result, KIND.allowed)
    return result


def submitted(source):
    labels = {**source["metadata"].get("labels", {}), QUEUE_LABEL: "gpu-lq"}
    return pending({**source, "metadata": {**source["metadata"], "labels": labels}})
