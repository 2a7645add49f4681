"""No decision, Job or record of a stranger takes the console away from who asks it."""

import json
import zlib
from base64 import b64decode, b64encode

from hypothesis import strategies as st

from tests.console import worlds
from tests.fuzz.drawing import Kept, fuzzed
from tests.fuzz.objects import NOON, TENANT, hostile, hostile_jobs
from tests.fuzz.observing import Observed
from tests.fuzz.values import anything, decision, decisions, deep, dumped, mutated
from webhook.api import resources as kinds
from webhook.api.watch import WatchUpdate
from webhook.console.access import Everybody
from webhook.console.collect import collect
from webhook.console.console import JUDGED, Followed, NewestJobs, jobs, savings_in
from webhook.console.decisions import DecisionStore
from webhook.console.routes import ConsoleSources, create_app
from webhook.hindsight import savings_record
from webhook.settings import Settings

PATHS = ("/", "/view", "/decisions?limit=500", "/quota?clusterqueue=gpu-cq", "/?namespace=tenant")
SAVINGS = savings_in("kueue-fallback")
LINE = {
    "ts": NOON,
    "level": "info",
    "msg": "decided",
    "uid": "0-1",
    "operation": "CREATE",
    "namespace": TENANT,
    "name": "bad",
    "dry_run": False,
    "latency_ms": 0.4,
    "queue": "cpu-lq",
    "option": "cpu",
    "reason": "Best",
    "decision": decision(),
}


class Shown:
    """A console with a book of decisions, what it follows, and the state of a cluster."""

    def __init__(self):
        self.lines, self.bugs = [], []
        self.book = DecisionStore()
        self.observed = Observed()
        self._followed = Followed(self.book, Settings(), self.lines.append)
        self._jobs = jobs(NewestJobs())
        app = create_app(
            ConsoleSources(view=self._view), lambda *_: Everybody(), on_error=self.bugs.append
        )
        self._client = app.test_client()

    def follow_job(self, source):
        self._follow(self._jobs, source)

    def follow_policy(self, source):
        self._follow(JUDGED, source)

    def follow_savings(self, source):
        self._follow(SAVINGS, source)

    def ask(self):
        answers = {path: self._client.get(path) for path in PATHS}
        if self.bugs:
            raise self.bugs[0]
        assert [answer.status_code for answer in answers.values()] == [200] * len(PATHS)
        # What a browser could not read is no JSON.
        json.loads(answers["/view"].data, parse_constant=lambda name: 1 / 0)

    def _follow(self, resource, source):
        entry = resource.read(resource.kind, source)
        self._followed.take(WatchUpdate(kind=resource.kind, at=0.0, event=("ADDED", entry)))

    def _view(self):
        return collect(
            worlds.known(
                now=self.observed.now,
                counted=self.observed.feed.counted,
                decisions=self.book.newest(),
                judged=self._followed.judged,
                published=self._followed.published,
            )
        )


def test_strangers_decisions_are_shown_or_left_out():
    kept = Kept(Shown)
    lines = st.one_of(mutated(LINE, anything).map(dumped), decisions)

    @fuzzed(st.tuples(lines, hostile_jobs()))
    def hold(drawn):
        line, job = drawn
        with kept.world() as shown:
            shown.book.put_line(line)
            shown.follow_job(job)
            shown.ask()

    hold()


def test_strangers_queues_workloads_and_policies_are_shown_or_left_out():
    kept = Kept(Shown)
    some = (kinds.WORKLOADS, kinds.LOCAL_QUEUES, kinds.CLUSTER_QUEUES, kinds.POLICIES)
    changes = st.sampled_from(some).flatmap(lambda kind: st.tuples(st.just(kind), hostile(kind)))

    @fuzzed(changes)
    def hold(drawn):
        kind, source = drawn
        with kept.world() as shown:
            shown.observed.change(kind, "ADDED", source)
            shown.observed.publish()
            if kind == kinds.POLICIES:
                shown.follow_policy(source)
            shown.ask()

    hold()


def test_whatever_stands_in_the_published_record_is_shown_or_left_out():
    kept = Kept(Shown)
    base = savings_record.config_map(savings_record.packed(worlds.PUBLISHED))
    written = zlib.decompress(b64decode(base["binaryData"]["savings"])).decode()
    said = mutated(json.loads(written), anything).map(dumped).map(packed)
    records = said.map(lambda text: {**base, "binaryData": {"savings": text}})

    @fuzzed(st.one_of(records, mutated(base, st.one_of(anything, deep))))
    def hold(drawn):
        with kept.world() as shown:
            shown.follow_savings({**drawn, "metadata": METADATA})
            shown.ask()

    hold()


METADATA = {"namespace": "kueue-fallback", "name": "kueue-fallback-savings"}


def packed(text):
    return b64encode(zlib.compress(text.encode(errors="replace"))).decode()
