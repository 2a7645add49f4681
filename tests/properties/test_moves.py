"""For every Job and all adaptations: moved there and back it is what it was."""

import json
from copy import deepcopy
from dataclasses import replace

from hypothesis import assume, given, settings

from tests import builders
from tests.flow.moves import asking, pending, plain, undone
from tests.properties.jobs import adaptations, jobs
from tests.properties.test_flow import PLENTY
from tests.servers import paper_snapshot
from webhook.admission import patch
from webhook.flow import create, moving, reapply
from webhook.jobs import KINDS
from webhook.kueue import occupancy
from webhook.model.job import DECISION, OPTION_LABEL, QUEUE_LABEL
from webhook.model.policy.fallback_policy import FallbackPolicy, Option, Reconsider

KIND = KINDS["batch", "v1", "Job"]
MOMENT = create.Moment(now=100.0, unix=1e9, time="2001-09-09T01:46:40Z", uid="a1b2c3d4-0000")
EXAMPLES = 200
"""Each decides a Job and moves it several times: as much as five of other properties."""
LATER = replace(MOMENT, unix=1e9 + 60, time="2001-09-09T01:47:40Z")


def world(first, second, taken="gpu"):
    """Two queues with quota for whatever is asked; a policy whose rule takes one option."""
    snapshot = paper_snapshot()
    options = (
        Option(name="gpu", queue="gpu-lq", adaptation=first),
        Option(name="cpu", queue="cpu-lq", adaptation=second),
    )
    spec = snapshot.policies[0].spec
    changes = {
        "options": options if taken == "gpu" else options[::-1],
        "reconsider": Reconsider(),
        "match": spec.match.model_copy(update={"job_selector": None, "queues": None}),
        "strategy": builders.policy(
            threshold=[{"option": taken, "orPendingBelow": 1000}]
        ).spec.strategy,
    }
    quota = {
        f"{name}-cq": builders.cluster_queue(f"{name}-cq", {"x": PLENTY}) for name in ("gpu", "cpu")
    }
    return occupancy.build(
        replace(
            snapshot,
            policies=(FallbackPolicy(name="any", spec=spec.model_copy(update=changes)),),
            cluster_queues=quota,
            flavors=builders.snapshot(*quota.values()).flavors,
            held={},
            kueue=replace(snapshot.kueue, ignore_undeclared=True),
        )
    )


def created(source, found):
    outcome = create.consider(source, KIND, found, MOMENT, create.Rules())
    assume(outcome.decision is not None and outcome.decision.option is not None)
    return patched(source, outcome)


def moved(stored, option, found):
    asked = asking(stored, option)
    outcome = moving.move(asked, KIND, found, LATER, create.Rules())
    after = patched(asked, outcome)
    if outcome.obstacle is not None:
        assert plain(after) == plain(stored)
    assume(outcome.obstacle is None)
    return after


def patched(source, outcome):
    result = deepcopy(source)
    patch.operations(outcome.edits, result, KIND.allowed)
    return result


def submitted(source):
    labels = {**source["metadata"].get("labels", {}), QUEUE_LABEL: "gpu-lq"}
    return pending({**source, "metadata": {**source["metadata"], "labels": labels}})


def essence(job):
    """All but what tells of the decision, and the pods' label that a move of the queue leaves."""
    found = deepcopy(job)
    found["metadata"]["annotations"] = sorted(found["metadata"]["annotations"])
    del found["spec"]["template"]["metadata"]["labels"][OPTION_LABEL]
    pods = found["spec"]["template"]["spec"]
    for container in (*pods["containers"], *pods.get("initContainers", ())):
        # A move changes no place in the list: two options may name the same in another order.
        container.get("env", []).sort(key=lambda entry: entry["name"])
    return plain(found)


@settings(max_examples=EXAMPLES)
@given(jobs(), adaptations(), adaptations())
def test_moved_there_and_back_it_is_what_it_was(source, first, second):
    found, job = world(first, second), submitted(source)
    stored = created(job, found)

    there = moved(stored, "cpu", found)
    back = moved(there, "gpu", found)

    assert essence(there) == essence(created(job, world(first, second, "cpu")))
    assert essence(back) == essence(stored)
    assert plain(undone(there)) == plain(undone(back)) == plain(job)


@settings(max_examples=EXAMPLES)
@given(jobs(), adaptations(), adaptations())
def test_the_manifest_applied_again_after_a_move_changes_nothing(source, first, second):
    found, job = world(first, second), submitted(source)
    there = plain(moved(created(job, found), "cpu", found))
    again = deepcopy(job)
    annotations = again["metadata"].setdefault("annotations", {})
    annotations[DECISION] = there["metadata"]["annotations"][DECISION]

    edits, warnings = reapply.restored(there, again, KIND)
    patch.operations(edits, again, KIND.allowed)

    assert (plain(again)["spec"], warnings) == (there["spec"], ())
    assert json.loads(annotations[DECISION])["option"] == "cpu"
