"""Moves as the controller asks for them, of Jobs as the API server stores them."""

import copy

from tests.servers import paper_snapshot
from webhook.admission.patch import original_from_json, undone
from webhook.decide import decision_record
from webhook.jobs import KINDS
from webhook.model.job import MOVE_REASON, MOVE_TO
from webhook.model.policy.fallback_policy import Reconsider
from webhook.state.snapshot import updated

KIND = KINDS["batch", "v1", "Job"]


def reconsidering(**state):
    """The paper's queues with a policy whose decisions are not final."""
    return with_spec(paper_snapshot(**state), reconsider=Reconsider())


def with_spec(snapshot, **changes):
    (policy,) = snapshot.fallback.policies
    spec = policy.spec.model_copy(update=changes)
    return updated(snapshot, policies=(policy.model_copy(update={"spec": spec}),))


def pending(job):
    """The Job as stored once Kueue has suspended it."""
    status = {"conditions": [{"type": "Suspended", "status": "True"}]}
    named = {**job["metadata"], "creationTimestamp": "2001-09-09T01:46:40Z"}
    return {**job, "metadata": named, "spec": {**job["spec"], "suspend": True}, "status": status}


def asking(stored, option, reason=None, **annotations):
    """The stored Job with the wish to be moved, and nothing else changed."""
    job = copy.deepcopy(stored)
    found = job["metadata"].setdefault("annotations", {})
    found |= {MOVE_TO: option, **({MOVE_REASON: reason} if reason else {}), **annotations}
    return job


def move(server, stored, option, reason=None, **request):
    return server.update(stored, asking(stored, option, reason), **request)


def decision(job):
    return decision_record.parsed(job["metadata"]["annotations"])


def undone_job(job):
    original = original_from_json(decision(job)["original"])
    return undone(job, original, KIND.allowed)


def plain(value):
    """Leave out what the API server does not store: objects and lists with nothing in them."""
    if isinstance(value, dict):
        kept = {key: plain(item) for key, item in value.items()}
        return {key: item for key, item in kept.items() if item not in ({}, [])}
    return [plain(item) for item in value] if isinstance(value, list) else value
