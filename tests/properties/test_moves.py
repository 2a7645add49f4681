"""For every Job and all adaptations: moved there and back it is what it was."""

import json
from copy import deepcopy

from hypothesis import given

from tests.flow.moves import plain, undone_job
from tests.properties.jobs import adaptations, jobs
from tests.properties.moved_jobs import KIND, created, moved, several, submitted, world
from webhook.admission import patch
from webhook.flow import update
from webhook.model.job import DECISION, OPTION_LABEL


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


@several
@given(jobs(), adaptations(), adaptations())
def test_moved_there_and_back_it_is_what_it_was(source, first, second):
    found, job = world(first, second), submitted(source)
    stored = created(job, found)

    there = moved(stored, "cpu", found)
    back = moved(there, "gpu", found)

    assert essence(there) == essence(created(job, world(first, second, "cpu")))
    assert essence(back) == essence(stored)
    assert plain(undone_job(there)) == plain(undone_job(back)) == plain(job)


@several
@given(jobs(), adaptations(), adaptations())
def test_the_manifest_applied_again_after_a_move_changes_nothing(source, first, second):
    found, job = world(first, second), submitted(source)
    there = plain(moved(created(job, found), "cpu", found))
    again = deepcopy(job)
    annotations = again["metadata"].setdefault("annotations", {})
    annotations[DECISION] = there["metadata"]["annotations"][DECISION]

    edits, warnings = update.restored(there, again, KIND)
    patch.operations(edits, again, KIND.allowed)

    assert (plain(again)["spec"], warnings) == (there["spec"], ())
    assert json.loads(annotations[DECISION])["option"] == "cpu"
