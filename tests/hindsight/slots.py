"""Entries of the journal."""

from webhook.hindsight.journal import JournalEntry


def entry(key):
    where = {"uid": key, "namespace": "team", "name": key, "queue": "gpu-lq"}
    return JournalEntry(key=key, created=0.0, submitted=f"{{{key}}}", ran="{}", **where)
