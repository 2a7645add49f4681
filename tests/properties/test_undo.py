"""For every Job and all adaptations: undone, also after moves, it is what was submitted."""

import json
from copy import deepcopy

from hypothesis import assume, given
from hypothesis import strategies as st

from tests.flow.moves import decision, pending, plain
from tests.properties.jobs import adaptations, jobs
from tests.properties.moved_jobs import (
    KIND,
    created,
    moved,
    patched,
    several,
    submitted,
    undo,
    world,
)
from webhook.admission import patch
from webhook.decide.match import OPT_OUT, POLICY
from webhook.flow import update
from webhook.model.decision import Declined, Undone
from webhook.model.job import (
    ENV_PREFIX,
    OPTION_LABEL,
    QUEUE_LABEL,
    REASON,
    UNDONE,
    UNDONE_FROM,
)
from webhook.model.marks import MARKS
from webhook.model.policy.fallback_policy import Adaptation
from webhook.model.reasons import Obstacle

NOW = "2026-11-21T06:00:00Z"
PINNED = "decided no more (kueue-fallback.dev/policy: none)"
SAME = st.just(Adaptation())
VARIABLE = Adaptation.model_validate(
    {
        "env": {"RUN_ENV": "on-cpu"},
        "containers": ["main"],
        "resources": {"requests": {"ephemeral-storage": "1Gi"}},
    }
)
MOVES = st.sampled_from([(), ("cpu",), ("cpu", "gpu"), ("cpu", "gpu", "cpu")])


def pinned(job, stored=None):
    """Return the Job as submitted and pinned; it tells whose decision moved the *stored* one."""
    found = deepcopy(job)
    annotations = found["metadata"].setdefault("annotations", {})
    annotations[POLICY] = OPT_OUT
    decided = decision(stored) if stored is not None else {}
    if decided:
        where = f"in {queue_of(job)} " if queue_of(job) else ""
        annotations[REASON] = f"kueue-fallback: undone: {where}as submitted, and {PINNED}"
    if decided and (decided.get("moves") or queue_of(stored) != queue_of(job)):
        annotations[UNDONE] = decided["policy"]
        annotations[UNDONE_FROM] = f"{NOW} cpu-cq"
    return found


def queue_of(job):
    return job["metadata"].get("labels", {}).get(QUEUE_LABEL)


def resolved(job):
    """Write variables that are read from our annotations as pods see them, and take these off."""
    found = deepcopy(job)
    template = found["spec"]["template"]
    annotations = template.get("metadata", {}).get("annotations", {})
    for container in (*template["spec"]["containers"], *template["spec"].get("initContainers", ())):
        for entry in container.get("env", ()):
            path = entry.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath", "")
            if ENV_PREFIX in path:
                del entry["valueFrom"]
                entry["value"] = annotations[f"{ENV_PREFIX}{entry['name']}"]
            elif "valueFrom" not in entry:
                entry.setdefault("value", "")
    for key in [key for key in annotations if key.startswith(ENV_PREFIX)]:
        del annotations[key]
    found["metadata"]["labels"].pop(OPTION_LABEL, None)
    return plain(found)


def unmarked(job):
    found = deepcopy(job)
    for texts in found["spec"]["template"].get("metadata", {}).values():
        for key in MARKS.intersection(texts):
            del texts[key]
    return found


@several
@given(jobs(), SAME | adaptations(), adaptations(), MOVES, st.sampled_from(["gpu", "cpu"]))
def test_undone_it_is_what_was_submitted_and_pinned(source, first, second, moves, taken):
    found, job = world(first, second, taken), submitted(source)
    stored = created(job, found)
    for option in moves if taken == "gpu" else ():
        stored = moved(stored, option, found)

    asked, outcome = undo(stored, NOW)
    after = patched(asked, outcome)

    if isinstance(outcome, Declined):
        assert plain(after) == plain(stored)
        return
    if not KIND.changes_template(KIND.edits(KIND.read(stored), KIND.read(after))):
        assert after["spec"] == stored["spec"]
        after = unmarked(after)
    assert resolved(after) == resolved(pinned(job, stored))


def with_variable(source, value):
    found = deepcopy(source)
    pod = found["spec"]["template"]["spec"]
    for container in (*pod["containers"], *pod.get("initContainers", ())):
        others = [entry for entry in container.get("env", ()) if entry["name"] != "RUN_ENV"]
        container["env"] = [*others, {"name": "RUN_ENV", "value": value}]
    return found


@several
@given(jobs(), st.sampled_from(["gpu", "", "a$(b)"]), st.sampled_from(["gpu", "cpu"]))
def test_pods_see_variables_as_they_were_submitted(source, value, taken):
    found = world(Adaptation(), VARIABLE, taken)
    job = submitted(with_variable(source, value))
    stored = created(job, found)
    if taken == "gpu" and "$" not in value:
        stored = moved(stored, "cpu", found)

    asked, outcome = undo(stored, NOW)

    # What the kubelet would replace is in no annotation, so that the option's value is fixed.
    fixed = taken == "cpu" and "$" in value
    assert getattr(outcome, "obstacle", None) == (Obstacle.IMMUTABLE_ENV if fixed else None)
    if not fixed and "$" not in value:
        after = patched(asked, outcome)
        assert resolved(after) == resolved(pinned(job, stored))
        assert after["metadata"]["labels"][OPTION_LABEL] == "none"


@several
@given(jobs(), SAME | adaptations(), adaptations(), MOVES)
def test_the_manifest_applied_after_an_undo_changes_nothing(source, first, second, moves):
    found, job = world(first, second), submitted(source)
    stored = created(job, found)
    for option in moves:
        stored = moved(stored, option, found)
    asked, outcome = undo(stored, NOW)
    after = plain(patched(asked, outcome))
    assume(isinstance(outcome, Undone))

    again = merged(after, job)
    edits, warnings = update.restored(after, again, KIND)
    patch.operations(edits, again, KIND.allowed)

    assert (plain(again)["spec"], warnings) == (after["spec"], ())
    # Where the webhook is not asked, there is nothing to restore.
    assert not edits or after["metadata"]["labels"][OPTION_LABEL] == "none"


def merged(stored, manifest):
    """Write submitted values beside what is read from annotations, as ``kubectl apply`` does."""
    found = deepcopy(stored)
    for now, then in zip(containers(found), containers(manifest), strict=True):
        values = {entry["name"]: entry for entry in then.get("env", ())}
        for entry in now.get("env", ()):
            if ENV_PREFIX in json.dumps(entry):
                entry["value"] = values[entry["name"]].get("value", "")
                if not entry["value"]:
                    del entry["value"]  # the API server sends no empty value
    return found


def containers(job):
    pods = job["spec"]["template"]["spec"]
    return [*pods["containers"], *pods.get("initContainers", ())]


@several
@given(jobs())
def test_a_job_without_a_decision_is_pinned_and_nothing_else(source):
    job = pending(source)

    assert patched(*undo(job, NOW)) == pinned(job)
