"""The table of what the controller does in a turn: a row for each part, with what it needs.

Whether it is time, and what is to be written, is each part's own; the loop only calls them in this
order.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from math import inf

from webhook.api import published
from webhook.api.client import Client
from webhook.api.resources import POLICIES, TEAM_POLICIES
from webhook.controller import cluster_dispatcher, mover, service_mover
from webhook.controller.adviser import Adviser
from webhook.controller.autoscaler_keeper import AUTOSCALERS, AutoscalerKeeper
from webhook.controller.cluster_dispatcher import ClusterDispatcher
from webhook.controller.congestion_publisher import CongestionPublisher, followed
from webhook.controller.controller_metrics import ControllerMetrics
from webhook.controller.device_reader import DeviceReader
from webhook.controller.followed_watches import FollowedWatches
from webhook.controller.fragmentation_publisher import FragmentationPublisher
from webhook.controller.hold_keeper import HoldKeeper
from webhook.controller.job_events import JobEvents
from webhook.controller.look_back_process import LookBack
from webhook.controller.mover import Mover
from webhook.controller.records import RUNS, Records, read_run
from webhook.controller.savings_publisher import SavingsPublisher
from webhook.controller.service_mover import ServiceMover
from webhook.controller.start_writer import StartWriter
from webhook.controller.status_keeper import PolicyKeeper
from webhook.controller.unreviewed import Unreviewed, fetching
from webhook.controller.world import Lines, Part, Take, World
from webhook.model.faults import Failures
from webhook.settings import Settings
from webhook.state import run_records_reader
from webhook.state.cluster_watches import ClusterWatches, FromCluster
from webhook.state.pipe import Update
from webhook.state.signing_keys import KeyKeeper, KeyRing
from webhook.state.workload import AWAITING, read_awaiting


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What the loop lends to its parts."""

    settings: Settings
    client: Client
    watches: FollowedWatches
    ring: KeyRing
    metrics: ControllerMetrics
    failures: Failures
    is_leader: Callable[[], bool]
    """Tells whether we may write; to be asked right before each write."""
    leader_at: Callable[[], float]
    """Monotonic time at which another leader was last heard."""
    put: Callable[[Callable[[], Lines]], None]
    """Has something done in the loop's thread, from any other."""
    look_back: LookBack

    def of_jobs(self, take: Take) -> Mapping[str, Take]:
        """Return that *take* gets the metadata of Jobs of every kind."""
        return dict.fromkeys(self.watches.kinds, take)


def table(given: Surroundings) -> tuple[Part, ...]:
    """Return the parts in the order of a turn.

    Policies are judged last, as they say what was found before; records come before what is made
    of the journal.
    """
    policies = PolicyKeeper(
        given.client,
        given.settings,
        is_leader=given.is_leader,
        metrics=given.metrics,
        watches=given.watches,
    )
    records = Records(
        given.client, given.settings, is_leader=given.is_leader, metrics=given.metrics
    )
    workers = _workers(given)
    return (
        *_nominations(given, workers),
        _keys(given),
        _jobs(given, policies.note_unreviewed),
        *_prometheus(given, records),
        *_fragmentation(given),
        Part(
            name="records",
            step=records.step,
            takes={**given.of_jobs(records.take_jobs), RUNS.kind: records.take_runs},
            follows=(replace(RUNS, read=given.ring.reading(read_run)),),
            begin=records.read_again,
        ),
        _holds(given),
        _savings(given, records),
        _events(given),
        _congestion(given, records, workers),
        _advice(given),
        _starts(given),
        _moves(given),
        _service_moves(given),
        *_autoscalers(given),
        Part(
            name="policies",
            step=policies.step,
            takes=dict.fromkeys((POLICIES, TEAM_POLICIES), policies.take),
            begin=policies.begin,
            wait=policies.wait,
        ),
    )


def _workers(given: Surroundings) -> ClusterWatches | None:
    if not given.settings.watch_workers:
        return None

    def put(message: FromCluster) -> None:
        given.put(partial(workers.take, message))

    workers = ClusterWatches(
        given.client,
        Client,
        put,
        namespace=given.settings.namespace,
        kueue=given.settings.kueue_namespace,
        ring=given.ring,
    )
    return workers


def _nominations(given: Surroundings, workers: ClusterWatches | None) -> Iterator[Part]:
    settings = given.settings
    if not settings.dispatcher:
        return
    dispatcher = ClusterDispatcher(
        given.client,
        workers,
        max_state_age=settings.max_state_age,
        placement_ttl=settings.placement_ttl,
        is_leader=given.is_leader,
        metrics=given.metrics,
    )
    yield Part(
        name="nominations",
        step=dispatcher.step,
        takes={**given.of_jobs(dispatcher.take_jobs), AWAITING.kind: dispatcher.take},
        follows=(replace(AWAITING, read=given.ring.reading(read_awaiting)),),
        hastened_by=AWAITING.kind,
        wait=lambda: cluster_dispatcher.STEP_SECONDS,
        show=dispatcher.show,
    )


def _keys(given: Surroundings) -> Part:
    namespace = given.settings.namespace
    keys = KeyKeeper(given.client, namespace, is_leader=given.is_leader, unix=time.time)
    return Part(name="keys", step=lambda world: keys.step(world.now))


def _jobs(given: Surroundings, note: Callable[[str], None]) -> Part:
    unreviewed = Unreviewed(
        fetching(given.client),
        given.settings.namespace,
        is_leader=given.is_leader,
        leader_at=given.leader_at,
        note=note,
        metrics=given.metrics,
    )
    return Part(name="jobs", step=unreviewed.step, takes=given.of_jobs(unreviewed.take))


def _prometheus(given: Surroundings, records: Records) -> Iterator[Part]:
    if given.settings.prometheus is None:
        return
    devices = DeviceReader(
        given.settings.prometheus,
        is_leader=given.is_leader,
        unix=time.time,
        failures=given.failures,
        metrics=given.metrics,
        learn=records.learn,
    )
    yield Part(
        name="prometheus",
        step=devices.step,
        takes={**given.of_jobs(devices.take_jobs), RUNS.kind: devices.take_runs},
    )


def _fragmentation(given: Surroundings) -> Iterator[Part]:
    if not given.settings.fragmentation_minutes:
        return
    publisher = FragmentationPublisher(
        given.client,
        given.settings,
        is_leader=given.is_leader,
        failures=given.failures,
        metrics=given.metrics,
    )
    yield Part(name="fragmentation", step=publisher.step, follows_workloads=lambda _: True)


def _holds(given: Surroundings) -> Part:
    holds = HoldKeeper(
        given.client,
        given.settings.namespace,
        is_leader=given.is_leader,
        metrics=given.metrics,
    )
    return Part(name="holds", step=holds.step, takes=given.of_jobs(holds.take), show=holds.show)


def _savings(given: Surroundings, records: Records) -> Part:
    savings = SavingsPublisher(
        given.client,
        given.settings.namespace,
        is_leader=given.is_leader,
        failures=given.failures,
        look_back=given.look_back,
        journal_version=lambda: records.journal_version,
    )
    return Part(name="savings", step=savings.step)


def _events(given: Surroundings) -> Part:
    events = JobEvents(given.client, is_leader=given.is_leader, unix=time.time)
    return Part(name="events", step=events.step, takes=given.of_jobs(events.take))


def _congestion(given: Surroundings, records: Records, workers: ClusterWatches | None) -> Part:
    place = run_records_reader.path_of(given.settings.namespace)
    congestion = CongestionPublisher(
        partial(published.overwrite, given.client, place),
        workers,
        max_state_age=given.settings.max_state_age,
        is_leader=given.is_leader,
        take_late=records.take_late,
        metrics=given.metrics,
    )

    def step(world: World) -> Lines:
        # The dispatcher follows them as well, and what it takes has changed for nobody else.
        if workers is not None and not given.settings.dispatcher:
            workers.follow(world.snapshot if followed(world.snapshot) else None)
            workers.with_clusters(Update(), world.now, world.unix)
        return congestion.step(world)

    return Part(
        name="congestion",
        step=step,
        start=workers.start if workers is not None else lambda: None,
        follows_workloads=lambda snapshot: bool(followed(snapshot)),
    )


def _advice(given: Surroundings) -> Part:
    adviser = Adviser(
        given.client,
        fetching(given.client),
        max_state_age=given.settings.max_state_age,
        is_leader=given.is_leader,
        keys=given.ring.keys,
        metrics=given.metrics,
    )
    return Part(
        name="advice",
        step=adviser.step,
        takes=given.of_jobs(adviser.take),
        follows_workloads=adviser.follows,
    )


def _starts(given: Surroundings) -> Part:
    starts = StartWriter(
        given.client, max_state_age=given.settings.max_state_age, is_leader=given.is_leader
    )
    return Part(name="starts", step=starts.step)


def _moves(given: Surroundings) -> Part:
    moves = Mover(
        given.client,
        given.settings.namespace,
        max_state_age=given.settings.max_state_age,
        min_gain_probability=given.settings.min_gain_probability,
        may_write=given.is_leader,
        metrics=given.metrics,
    )
    services = given.watches.rolling
    return Part(
        name="moves",
        step=moves.step,
        takes={name: moves.take for name in given.watches.pending if name not in services},
        begin=moves.begin,
        wait=lambda: mover.STEP_SECONDS if given.watches.with_workloads else inf,
    )


def _service_moves(given: Surroundings) -> Part:
    moves = ServiceMover(
        given.client,
        max_state_age=given.settings.max_state_age,
        may_write=given.is_leader,
        metrics=given.metrics,
    )
    return Part(
        name="services",
        step=moves.step,
        takes=dict.fromkeys(given.watches.rolling, moves.take),
        wait=lambda: service_mover.STEP_SECONDS if given.watches.with_workloads else inf,
    )


def _autoscalers(given: Surroundings) -> Iterator[Part]:
    if not given.settings.autoscale:
        return
    autoscalers = AutoscalerKeeper(
        given.client,
        fetching(given.client),
        max_state_age=given.settings.max_state_age,
        is_leader=given.is_leader,
        keys=given.ring.keys,
        kinds=given.watches.kinds,
    )
    yield Part(
        name="autoscalers",
        step=autoscalers.step,
        takes={
            **given.of_jobs(autoscalers.take_services),
            AUTOSCALERS.kind: autoscalers.take,
        },
        follows=(AUTOSCALERS,),
        begin=autoscalers.begin,
    )
