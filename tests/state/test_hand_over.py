"""A placement is counted once from its decision on: by the ledger, then by the snapshot.

Every interleaving of deciding, Workloads coming and going, updates published and taken up, lists
taken again, observers started anew and time running out.
"""

import pickle
from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.state.objects import cluster_queue, local_queue, workload
from webhook.api import resources as kinds
from webhook.api.watch import WatchUpdate
from webhook.flow.ledger import Ledger
from webhook.model.queues import Arrival
from webhook.state.feed import Feed
from webhook.state.pipe import apply_update
from webhook.state.readers import read_by_kind
from webhook.state.snapshot import Snapshot
from webhook.state.watched import watched

TTL = 30.0
RESOURCES = watched(namespace="ours", kueue_namespace="kueue-system")
LISTS = {kinds.CLUSTER_QUEUES: [cluster_queue()], kinds.LOCAL_QUEUES: [local_queue()]}


def arrival(key):
    return Arrival(key=key, namespace="team", local_queue="gpu-lq", needs=())


@dataclass
class Placement:
    job: str
    since: float
    workload: dict | None = None
    """As soon as Kueue has made it."""


class HandOver(RuleBasedStateMachine):
    @initialize()
    def start(self):
        self.now = 0.0
        self.ledger, self.snapshot = Ledger(ttl_seconds=TTL), Snapshot()
        self.placements = {}
        self.there = set()  # keys of Workloads that exist
        self.shown, self.told = frozenset(), set()  # in the snapshot in use; ever in one
        self.observer_starts()
        self.publish()
        self.take_up()

    def observer_starts(self):
        """List everything; what was under way in the pipe is lost."""
        self.pipe, self.events, self.known, self.noticed = [], [], set(), set()
        self.feed = Feed(RESOURCES, self.now)
        for resource in RESOURCES:
            self.listed(resource.kind, LISTS.get(resource.kind, []))
        self.relist()

    def listed(self, kind, objects):
        entries = tuple(read_by_kind(kind, source) for source in objects)
        self.feed.take(WatchUpdate(kind=kind, at=self.now, entries=entries))

    @rule(form=st.sampled_from(["decision", "name", "unnamed"]))
    def decide(self, form):
        number = len(self.placements) + 1
        job = f"train-{number:05}" if form == "unnamed" else f"job-{number}"
        keys = {"decision": f"d{number}", "name": f"job:team/{job}"}
        key = keys.get(form, f"gen:team/train-/{number}")
        self.ledger.enter(arrival(key), self.now)
        self.placements[key] = Placement(job, self.now)

    @precondition(lambda self: self.waiting())
    @rule(data=st.data())
    def decide_again(self, data):
        """A reinvocation: the same decision, before the Job is stored."""
        key = data.draw(st.sampled_from(self.waiting()))
        self.ledger.enter(arrival(key), self.now)
        self.placements[key].since = self.now

    def waiting(self):
        return sorted(k for k, found in self.placements.items() if found.workload is None)

    @precondition(lambda self: self.waiting())
    @rule(data=st.data())
    def workload_comes(self, data):
        key = data.draw(st.sampled_from(self.waiting()))
        placement = self.placements[key]
        decision = key if key.startswith("d") else ""
        # Each of a shape of its own, so that each is an arrival of its own.
        cpu = str(len(self.placements) - len(self.waiting()) + 1)
        source = workload(f"w-{placement.job}", job=placement.job, decision=decision, cpu=cpu)
        placement.workload = source
        self.there.add(key)
        self.events.append(("ADDED", key))

    @precondition(lambda self: self.there)
    @rule(data=st.data())
    def workload_goes(self, data):
        key = data.draw(st.sampled_from(sorted(self.there)))
        self.there.remove(key)
        self.events.append(("DELETED", key))

    @precondition(lambda self: self.events)
    @rule()
    def event_arrives(self):
        event_type, key = self.events.pop(0)
        entry = read_by_kind(kinds.WORKLOADS, self.placements[key].workload)
        self.feed.take(WatchUpdate(kind=kinds.WORKLOADS, at=self.now, event=(event_type, entry)))
        (self.known.discard if event_type == "DELETED" else self.known.add)(key)
        self.noticed |= self.known

    @rule()
    def relist(self):
        self.events.clear()
        self.known = set(self.there)
        self.noticed |= self.known
        self.listed(kinds.WORKLOADS, [self.placements[key].workload for key in sorted(self.there)])

    @rule()
    def publish(self):
        sent = pickle.dumps(self.feed.update(self.now, 0.0))
        self.pipe.append((sent, frozenset(self.known), frozenset(self.noticed)))

    @precondition(lambda self: self.pipe)
    @rule()
    def take_up(self):
        sent, self.shown, noticed = self.pipe.pop(0)
        update = pickle.loads(sent)
        self.snapshot = apply_update(self.snapshot, update)
        self.ledger.seen(update.seen)
        self.told |= noticed

    @rule()
    def observer_dies(self):
        self.observer_starts()

    @rule(seconds=st.sampled_from([0.1, 5.0, 31.0]))
    def time_passes(self, seconds):
        self.now += seconds
        self.ledger.expire(self.now)

    @invariant()
    def each_is_counted_where_it_belongs_and_once(self):
        if not hasattr(self, "ledger"):
            return
        kept = {found.key for found in self.ledger.entries()}
        shown = {found.key for found in self.snapshot.workloads.arrivals}
        for key, placement in self.placements.items():
            if key.startswith("gen:"):
                continue
            in_time = self.now < placement.since + TTL
            assert (key in kept) == (in_time and key not in self.told), key
            assert (key in shown) == (key in self.shown), key
            assert not (key in kept and key in shown), key

    @invariant()
    def unnamed_ones_stand_for_each_other(self):
        """As none of them has an identity, their number is what must be right."""
        if not hasattr(self, "ledger") or self.now >= TTL:
            return
        kept = sum(found.key.startswith("gen:") for found in self.ledger.entries())
        entered = sum(key.startswith("gen:") for key in self.placements)
        assert kept == entered - sum(key.startswith("gen:") for key in self.told)

    def teardown(self):
        if hasattr(self, "ledger"):
            self.ledger.expire(self.now + TTL)
            assert self.ledger.entries() == ()


HandOver.TestCase.settings = settings(max_examples=50, stateful_step_count=40, deadline=None)
TestHandOver = HandOver.TestCase
