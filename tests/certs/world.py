"""Replicas, API servers with clocks of their own, and all that may happen to them, in made-up time.

An API server may act on any webhook configuration that was in force within the last `SETTLE`.
"""

from datetime import UTC, datetime, timedelta

from certs.keeper import Keeper
from certs.plan import Lifetimes
from certs.store import Store, Unavailable
from tests.certs.fake_cluster import CONFIGURATION, FakeCluster, bundles_of
from webhook.observer.certificates import carried
from webhook.server.tls import is_time_for

START = datetime(2026, 3, 1, tzinfo=UTC)
SETTLE = 60.0
LEAF = 360.0
CA = 1800.0
LIFETIMES = Lifetimes(
    ca=timedelta(seconds=CA), leaf=timedelta(seconds=LEAF), settle=timedelta(seconds=SETTLE)
)
SKEWS = (-10.0, 0.0, 10.0)
"""Seconds by which clocks are wrong: of replicas, and of API servers."""
NAMES = ("kueue-fallback.ours.svc",)


class Wire:
    """One replica's way to the API server, on which anything may happen between two calls."""

    def __init__(self, cluster, before):
        self._cluster = cluster
        self._before = before
        self.is_cut = False
        self.loses = False

    def __getattr__(self, name):
        def call(*arguments):
            self._before()
            if self.is_cut:
                raise Unavailable("no route")
            answer = getattr(self._cluster, name)(*arguments)
            if self.loses and name != "get":
                raise Unavailable("the answer was lost")
            return answer

        return call


class Replica:
    """A keeper and the server that it sends leaves to; the two die apart."""

    def __init__(self, world, skew):
        self.world, self.skew = world, skew
        self.wire = Wire(world.cluster, lambda: world.between(self))
        self.busy = False
        self.start()

    def start(self):
        self.served, self.sent, self.pending, self.served_since = None, None, None, None
        self.start_keeper()

    def start_keeper(self):
        store = Store(
            self.wire, namespace="ours", name="kueue-fallback-ca", configuration="kueue-fallback"
        )
        self.keeper = Keeper(
            store,
            names=NAMES,
            lifetimes=LIFETIMES,
            now=lambda: START + timedelta(seconds=self.world.time + self.skew),
            monotonic=lambda: self.world.time,
        )
        self.looked_at = float("-inf")

    def step(self):
        if self.busy:
            return
        self.busy = True
        report = self.keeper.step()
        self.busy = False
        if not self.wire.is_cut:
            self.looked_at = self.world.time
        if report.leaf is not None:
            self.pending = (report.leaf, carried(report).served)
        self.serve()

    def serve(self):
        """Take what was sent, as the server does."""
        if self.pending is None:
            return
        leaf, offered = self.pending
        now = START.timestamp() + self.world.time + self.skew
        if not is_time_for(offered, self.sent, now=now, clock=self.world.time):
            return
        if self.served is None:
            self.served_since = self.world.time
        self.served, self.sent = leaf, offered


class World:
    def __init__(self, replicas=2):
        self.time = 0.0
        self.cluster = FakeCluster()
        self.history = [(0.0, (), "reset")]
        self.recorded = ""
        self.between = lambda _: None
        self.replicas = [Replica(self, SKEWS[number % 3]) for number in range(replicas)]
        self.record("reset")

    def record(self, by="us"):
        """Remember what is in force from now on."""
        version = self.cluster.version(CONFIGURATION)
        if version == self.recorded:
            return
        self.recorded = version
        bundles = tuple(map(frozenset, bundles_of(self.cluster.objects[CONFIGURATION])))
        if bundles != self.history[-1][1]:
            self.history.append((self.time, bundles, by))

    def reset(self):
        self.cluster.reset()
        self.record("reset")

    def pass_time(self, seconds):
        self.time += seconds
        self.record()
        for replica in self.replicas:
            replica.serve()

    def in_force(self):
        """Return every set of bundles that some API server may be acting on, resets apart."""
        ends = [at for at, _, _ in self.history[1:]] + [float("inf")]
        return [
            bundles
            for (_, bundles, by), end in zip(self.history, ends, strict=True)
            if by != "reset" and end > self.time - SETTLE
        ]

    def refusals(self):
        """Say which replica is refused by whom, at this moment."""
        self.record()
        return [
            text
            for number, replica in enumerate(self.replicas)
            if replica.served is not None and self.time >= replica.served_since + SETTLE
            for text in self._refusals_of(number, replica.served)
        ]

    def _refusals_of(self, number, leaf):
        for bundles in self.in_force():
            if any(leaf.authority not in bundle for bundle in bundles):
                yield f"{self.time}: replica {number} is signed by an authority that is unknown"
        certificate = leaf.certificate
        for skew in SKEWS:
            at = START + timedelta(seconds=self.time + skew)
            for each in (certificate, leaf.authority):
                if not each.not_valid_before_utc <= at < each.not_valid_after_utc:
                    yield f"{self.time}: replica {number}'s is not valid at a clock off by {skew}"
