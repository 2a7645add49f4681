"""What of a decision on a Job is relied on, wherever it is read."""

import ast
import json
from dataclasses import replace
from math import inf
from pathlib import Path

import pytest

import webhook
from tests.builders import job
from tests.decide.decisions import annotation, decision
from tests.flow.moves import KIND
from webhook.decide import decision_record
from webhook.flow import decided_job
from webhook.model.fields import FieldError
from webhook.model.job import DECISION
from webhook.model.reasons import Obstacle
from webhook.model.signatures import SigningKey, SigningKeys, signed_record

KEYS = SigningKeys(keys=(SigningKey(id="a", made=100, secret=b"s"),), signing="a", since=100)
LABEL = "/metadata/labels/kueue.x-k8s.io~1queue-name"
MADE = replace(decision(), id=decided_job.new_id(job(name="a"), "0a1b"))
RECORD = annotation(MADE, {LABEL: "gpu-lq"})
ANOTHERS = annotation(decision(), {LABEL: "gpu-lq"})
SIGNED = signed_record(RECORD, "team", KEYS)
ELSEWHERE = signed_record(RECORD, "other", KEYS)
NEWER = json.dumps({"version": decision_record.VERSION + 1})


def carrying(text):
    metadata = {"name": "a", "namespace": "team", "annotations": {}}
    if text is not None:
        metadata["annotations"] = {DECISION: text}
    metadata["labels"] = {"kueue.x-k8s.io/queue-name": "cpu-lq"}
    containers = [{"name": "main", "image": "busybox"}]
    return {"metadata": metadata, "spec": {"template": {"spec": {"containers": containers}}}}


@pytest.mark.parametrize(
    ("text", "created", "is_believed", "doubt"),
    [
        (None, 200.0, False, None),
        (SIGNED, 200.0, True, None),
        (RECORD, 50.0, True, None),
        (RECORD, 200.0, False, Obstacle.FOREIGN_DECISION),
        (ELSEWHERE, 200.0, False, Obstacle.FOREIGN_DECISION),
        ("{", 200.0, False, Obstacle.FOREIGN_DECISION),
        ("{", 50.0, False, Obstacle.UNREADABLE),
        (NEWER, 200.0, False, Obstacle.NEWER_DECISION),
        (signed_record(ANOTHERS, "team", KEYS), 200.0, False, Obstacle.FOREIGN_DECISION),
        (signed_record(ANOTHERS, "team", KEYS), inf, True, None),
    ],
    ids=[
        "none",
        "signed",
        "before signatures",
        "unsigned",
        "copied",
        "forged",
        "damaged",
        "newer",
        "of another Job",
        "in a manifest of another Job",
    ],
)
def test_only_a_decision_of_our_own_is_relied_on_and_undone(text, created, is_believed, doubt):
    found = decided_job.read_decided_job(carrying(text), KIND, KEYS, created=created)

    case = found.recovered()
    assert ((found.believed is not None), found.doubt) == (is_believed, doubt)
    assert (case.recorded, case.current.queue) == (found.believed, "cpu-lq")
    assert case.submitted.queue == ("gpu-lq" if is_believed else "cpu-lq")
    assert (DECISION in case.submitted.annotations) == (text is not None and not is_believed)


def test_a_job_that_is_being_created_has_no_creation_time_to_claim():
    found = decided_job.read_decided_job(carrying(RECORD), KIND, KEYS)

    assert (found.believed, found.doubt) == (None, Obstacle.FOREIGN_DECISION)


def test_what_may_not_be_put_back_leaves_the_job_as_it_came():
    text = annotation(decision(), {"/spec/template/spec/serviceAccountName": "root"})

    found = decided_job.read_decided_job(carrying(text), KIND)

    with pytest.raises(FieldError, match="may not be restored"):
        found.recovered()
    assert found.recovered_if_possible() == found.as_it_came()


def test_nobody_else_puts_back_what_was_submitted():
    root = Path(webhook.__file__).parent
    users = [
        path.relative_to(root).as_posix()
        for path in sorted(root.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom)
        and node.module == "webhook.admission.patch"
        and any(name.name == "undone" for name in node.names)
    ]

    assert users == ["flow/decided_job.py"]
