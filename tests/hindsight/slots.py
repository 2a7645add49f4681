"""Entries of the journal, and decisions as they have them."""

from webhook.decide.decision_record import from_object
from webhook.hindsight.journal import JournalEntry


def entry(key):
    where = {"uid": key, "namespace": "team", "name": key, "queue": "gpu-lq"}
    return JournalEntry(key=key, created=0.0, submitted=f"{{{key}}}", ran="{}", **where)


def decided(**given):
    """Return a decision with fields as its JSON has them."""
    return from_object({"version": 1, "policy": "light", "mode": "Enforce", **given})


def expecting(cost, **given):
    """Return one that expected it to cost so much where it was submitted."""
    options = [{"name": "first", "queue": "gpu-lq", "cost": cost}]
    return decided(**given, **{"from": {"queue": "gpu-lq"}, "options": options})
