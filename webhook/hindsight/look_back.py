"""What happened, replayed as it happened and as it could have gone, from the entries of a journal.

A replay of what happened, beside what really happened, tells how far the others can be trusted;
what all of them are off by cancels out in their differences. Pure.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from statistics import fmean
from typing import Final

from webhook.decide import match
from webhook.hindsight.again import Replays, age_of, submitted_manifest
from webhook.hindsight.counterfactual import Elsewhere, elsewhere
from webhook.hindsight.journal import Entry
from webhook.hindsight.told import Hindsight, Told, World
from webhook.jobs import KINDS
from webhook.kueue import multikueue
from webhook.model.fields import FieldError
from webhook.model.job import QUEUE_LABEL, Job
from webhook.model.policy.fallback_policy import FallbackPolicy
from webhook.model.queues import Snapshot
from webhook.simulate.scenario import emptied

WAITED_SECONDS: Final = 2.0
"""Who waited at least so long took over quota that another gave back."""
HANDED_OVER_SECONDS: Final = 10.0
"""A longer gap has other reasons than that quota is handed over."""
_KIND: Final = KINDS["batch", "v1", "Job"]


def look_back(
    entries: Iterable[Entry], world: World, *, progress: Callable[[int], None] = lambda _: None
) -> Hindsight:
    """Replay *entries*: as it was, without any decision, and as all policies would decide."""
    world = replace(world, snapshot=emptied(world.snapshot))
    given = tuple(_latest(entries))
    handover = _handover(given)
    told, left_out = [], 0
    for entry in sorted(given, key=age_of):
        try:
            found = _told(entry, world)
        except FieldError:
            found = None
        if found is None:
            left_out += 1
        else:
            told.append(found)
    # A replay knows Kueue's own part of it.
    besides = max(0.0, handover - world.snapshot.kueue.requeue_seconds)
    runs = {each.entry.key: _seconds(each, besides) for each in told}
    replays = Replays(world, told, runs, progress)
    happened, static = replays.as_it_was(), replays.without_decisions()
    promised = replays.as_policies_say()
    replayed = [
        replace(
            each,
            happened=happened.get(each.entry.key),
            static=static.get(each.entry.key),
            promised=promised.get(each.entry.key),
        )
        for each in told
    ]
    return Hindsight(
        told=tuple(_without_guesses(replayed, world)),
        left_out=left_out,
        handover_seconds=handover,
    )


def _without_guesses(told: Sequence[Told], world: World) -> Iterator[Told]:
    """Drop what replays have said of Jobs that worker clusters bear on that nobody has told of.

    What those with policies would do to others rests on it too, but not what was without them.
    """
    unseen = [_unseen(each, world) for each in told]
    all_unseen = tuple(sorted(set(chain.from_iterable(unseen))))
    for each, own in zip(told, unseen, strict=True):
        names = own if each.acts else all_unseen
        nothing = replace(each, unseen=names, happened=None, static=None, promised=None)
        yield nothing if names else each


def _unseen(told: Told, world: World) -> tuple[str, ...]:
    snapshot, entry = world.snapshot, told.entry
    options = told.policy.spec.options if told.policy else ()
    names = {entry.queue, told.submitted_queue, *(each.queue for each in options if each.queue)}
    places = (snapshot.local_queues.get((entry.namespace, name or "")) for name in names)
    queues = {place.cluster_queue for place in places if place is not None}
    queues |= {option.cluster_queue for option in options if option.cluster_queue}
    found = {entry.cluster} - {""} - world.workers.keys()
    for name in queues & snapshot.cluster_queues.keys():
        found.update(multikueue.unknown(snapshot.cluster_queues[name], snapshot, world.workers))
    return tuple(sorted(found))


def untold(entries: Iterable[Entry]) -> Hindsight:
    """Say what the entries alone tell, where queues and policies are not known."""
    found = sorted(_latest(entries), key=age_of)
    nothing = Elsewhere(seconds={}, rests={})
    return Hindsight(
        told=tuple(
            Told(
                entry=each,
                policy=None,
                elsewhere=nothing,
                submitted_queue=each.labels.get(QUEUE_LABEL, ""),
            )
            for each in found
        )
    )


def _latest(entries: Iterable[Entry]) -> Iterator[Entry]:
    """Keep one Workload of each Job: of several that it had one after another, the last."""
    by_job: dict[str, Entry] = {}
    for entry in entries:
        key = entry.uid or entry.key
        before = by_job.get(key)
        if before is None or _rank(entry) > _rank(before):
            by_job[key] = entry
    # What never held quota and is gone has kept nobody waiting.
    return (each for each in by_job.values() if each.admitted or not each.outcome)


def _rank(entry: Entry) -> tuple[bool, float]:
    return bool(entry.admitted), entry.created


def _handover(entries: Sequence[Entry]) -> float:
    """Tell how long quota lies idle between two Jobs, on average, where one waits for it."""
    by_queue: defaultdict[str, list[Entry]] = defaultdict(list)
    for entry in entries:
        by_queue[entry.cluster_queue].append(entry)
    gaps = []
    for members in by_queue.values():
        ends = sorted(each.finished for each in members if each.outcome)
        for each in members:
            if not each.admitted or each.admitted - each.created < WAITED_SECONDS:
                continue
            index = bisect_right(ends, each.admitted)
            if index and each.admitted - ends[index - 1] <= HANDED_OVER_SECONDS:
                gaps.append(each.admitted - ends[index - 1])
    return fmean(gaps) if gaps else 0.0


def _told(entry: Entry, world: World) -> Told | None:
    snapshot = world.snapshot
    job = _KIND.read(submitted_manifest(entry))
    queue = match.submission(job, snapshot).queue
    for name in {queue, entry.queue}:
        place = snapshot.local_queues.get((entry.namespace, name))
        if place is None or place.cluster_queue not in snapshot.cluster_queues:
            return None
    policy = _policy(entry, job, snapshot)
    known = elsewhere(
        entry,
        _own_seconds(entry, world),
        policy=policy,
        snapshot=snapshot,
        learned=world.learned.estimates,
    )
    return Told(entry=entry, policy=policy, elsewhere=known, submitted_queue=queue)


def _policy(entry: Entry, job: Job, snapshot: Snapshot) -> FallbackPolicy | None:
    named = next((each for each in snapshot.policies if each.name == entry.policy), None)
    if named is not None or match.skip(job, snapshot) is not None:
        return named
    try:
        return match.policy_for(job, snapshot)
    except FieldError:
        return None


def _own_seconds(entry: Entry, world: World) -> float:
    """Tell how long it ran, or will have run where it is not over."""
    if entry.outcome:
        return max(0.0, float(entry.finished - entry.admitted))
    known = world.learned.estimates.get((entry.job_class, entry.flavors))
    expected = [offer.runs for offer in entry.offers if offer.option == entry.option and offer.runs]
    usual = known.seconds if known else next(iter(expected), 0.0)
    return max(usual, world.now - entry.admitted if entry.admitted else 0.0)


def _seconds(told: Told, besides: float) -> dict[str, float]:
    return {flavors: each + besides for flavors, each in told.elsewhere.seconds.items()}
