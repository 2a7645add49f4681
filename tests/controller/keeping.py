"""A keeper of the journal beside an API server."""

from tests.controller.journals import ENDED, NAMESPACE, WORLD, over
from tests.controller.watched_jobs import entry as glimpsed
from webhook.api.watch import WatchUpdate
from webhook.hindsight.journal import read_slot
from webhook.hindsight.journal_keeper import GRACE_SECONDS, WRITE_SECONDS, Journal


class Keeping:
    """A journal, and the clock that it reads."""

    def __init__(self, server, *, is_leader=lambda: True, days=1):
        self.unix = float(ENDED)
        self.journal = Journal(
            server, NAMESPACE, is_leader=is_leader, unix=lambda: self.unix, days=days
        )
        self.looks = 0

    def show(self, *pasts):
        self.journal.take_over(over(*pasts))
        self.unix += GRACE_SECONDS

    def show_job(self, source, event="ADDED"):
        told = glimpsed(source)
        event = (event, told) if event else None
        entries = None if event else (told,)
        self.journal.take_jobs(WatchUpdate(kind="jobs", at=0.0, entries=entries, event=event))

    def step(self):
        self.looks += 1
        return self.journal.step(WORLD, self.looks * WRITE_SECONDS)


def kept(server):
    found = {}
    for source in server.held.values():
        if source["kind"] == "ConfigMap":
            found |= read_slot(source).entries
    return found
