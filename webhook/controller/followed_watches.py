"""Tells what the controller watches: some of it always, the rest once a Job may be moved or priced.

Also which kinds of Jobs the cluster serves, as their watches say, and what is read of a Job's
metadata. It must not know how a watch is followed, nor what is done with its messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from webhook.api.resources import WORKLOADS, Key, Resource
from webhook.api.watch import WatchUpdate
from webhook.decide import decision_record
from webhook.decide.wishes import HOLD, NEVER_HOLD, NONE, Wishes, read_wishes
from webhook.flow.decided_job import DecidedJob, read_decided_job
from webhook.hindsight.journal_keeper import JobMetadata, known_of
from webhook.jobs import BY_NAME, JobKind
from webhook.learn import job_class
from webhook.model import fields, holds, job_manifest, marks
from webhook.model.faults import attempted
from webhook.model.fields import FieldError
from webhook.model.job import DECISION, PLAIN, UNDONE, Job
from webhook.model.policy.fallback_policy import Mode
from webhook.model.policy.rules import SERVICES
from webhook.model.reasons import EventReason
from webhook.model.signatures import SigningKeys
from webhook.reconsider import advice, choose, pending_jobs
from webhook.reconsider.hold_plan import HeldJob
from webhook.settings import Settings
from webhook.state.signing_keys import KeyRing
from webhook.state.snapshot import Snapshot
from webhook.state.watched import proven, signing_keys, watched


class FollowedWatches:
    def __init__(self, settings: Settings, ring: KeyRing) -> None:
        """Read marks on Workloads and Jobs with the keys of *ring*."""
        self._ring = ring
        self.always, self._workloads = _followed(settings, ring)
        self.kinds = {kind.plural: kind for kind in map(BY_NAME.__getitem__, settings.kinds)}
        """The kinds that are switched on, by the names of the watches of their metadata."""
        self._served: dict[str, bool] = {}
        """Of these watches whether there is such a resource; those that have said nothing lack."""
        self.with_workloads = False
        """Whether Workloads are followed."""
        self._pending: set[str] = set()
        """The kinds whose Jobs are followed whole, by the same names."""
        self._moved: set[str] = set()
        """Those in which a Job was seen that was moved or undone while it was pending. Its Workload
        may have to be repaired, even if no policy reconsiders any more."""

    @property
    def pending(self) -> tuple[str, ...]:
        """Return the names of the watches of Jobs that are followed whole if they may be moved."""
        return tuple(pending_jobs.followed(kind).kind for kind in self.kinds.values())

    @property
    def rolling(self) -> tuple[str, ...]:
        """Return those of services, which are moved while they serve."""
        kinds = (kind for kind in self.kinds.values() if kind.rolls)
        return tuple(pending_jobs.followed(kind).kind for kind in kinds)

    @property
    def knows_served(self) -> bool:
        """Whether each kind that is switched on is known to be served, or why that is not known."""
        return self._served.keys() == self.kinds.keys()

    @property
    def unserved(self) -> frozenset[str]:
        """Return the kinds that are switched on, and that the cluster does not serve."""
        return frozenset(kind.kind for name, kind in self.kinds.items() if not self._served[name])

    def metadata(self) -> Iterator[Resource]:
        """Yield what is watched of Jobs always: their metadata, of each kind."""
        for kind in self.kinds.values():
            yield followed(kind, self._ring.keys)

    def take(self, message: WatchUpdate) -> tuple[str, ...]:
        """Apply a watch update of Jobs' metadata; return the lines to log, of which there are none.

        It tells whether their kind is served, and whether any of them was moved.
        """
        if message.kind not in self.kinds:
            return ()
        if message.error:
            self._served.setdefault(message.kind, True)
        elif message.entries is not None:
            self._served[message.kind] = message.served
        watched = [*(message.entries or ()), *((message.event[1],) if message.event else ())]
        if any(entry.value is not None and entry.value.has_left for entry in watched):
            self._moved.add(message.kind)
        return ()

    def begun(self, snapshot: Snapshot, *, for_others: bool) -> Iterator[tuple[Resource, bool]]:
        """Yield what is to be followed from now on, and whether nothing is known without it.

        *for_others*: Workloads must be known though no Job may be moved.
        """
        wanted = self._may_move(snapshot)
        if (wanted or for_others) and not self.with_workloads:
            self.with_workloads = True
            for resource in self._workloads:
                yield resource, True
        for name in wanted - self._pending:
            self._pending.add(name)
            kind = self.kinds[name]
            # Every cluster serves Jobs. Of another kind whose watch fails only its own Jobs wait.
            yield pending_jobs.followed(kind, self._ring.keys), kind.kind == PLAIN

    def _may_move(self, snapshot: Snapshot) -> set[str]:
        """Return the kinds, as named by the watches of metadata, of which a Job may be moved.

        Or of which one was moved.
        """
        reconsidering = choose.policies_of(snapshot)
        named = {name for policy in reconsidering for name in policy.spec.match.kinds}
        return {
            name
            for name, kind in self.kinds.items()
            if kind.is_movable
            and self._served.get(name)
            and (name in self._moved or kind.kind in named)
        }


def _followed(
    settings: Settings, ring: KeyRing
) -> tuple[tuple[Resource, ...], tuple[Resource, ...]]:
    """Return what is followed always, and what only once a policy reconsiders or a Job was moved.

    The Workloads of the second take most of the memory, with the Jobs that are followed then.
    """
    kinds = watched(
        namespace=settings.namespace,
        kueue_namespace=settings.kueue_namespace,
        series_names=settings.series,
        nodes=settings.watch_nodes,
        team_policies=settings.team_policies,
    )
    always = (resource for resource in kinds if resource.kind != WORKLOADS)
    workloads = (
        replace(resource, required=False) for resource in kinds if resource.kind == WORKLOADS
    )
    return (*always, signing_keys(settings.namespace)), proven(workloads, ring)


class WatchedJob(NamedTuple):
    uid: str
    created: float
    """Seconds since 1970, by the API server's clock, which has whole seconds."""
    job: Job | None
    """Without its spec and pod sets; None if it carries a decision."""
    known: JobMetadata | None = None
    """What the journal needs of it."""
    has_left: bool = False
    """Whether it was moved or undone while it was pending."""
    happening: Happening | None = None
    """What was last done to it, for Events."""
    held: HeldJob | None = None
    """Of a Job that our gate holds."""
    resumes: bool = False
    """Whether it was decided, and says that it can go on from a checkpoint."""
    wishes: Wishes = NONE
    """What its annotations ask for; of one that was not decided, nothing."""
    service: DecidedService | None = None
    """Of a service that a policy has sent to an option."""


def followed(kind: JobKind, keys: Callable[[], SigningKeys | None] = lambda: None) -> Resource:
    """Return the metadata of the Jobs of a kind.

    A decision that is not signed with one of the *keys* is ignored.
    """
    return pending_jobs.resource_of(kind, kind.plural, lambda job: _watched(job, kind, keys()))


def _watched(source: Mapping[str, Any], kind: JobKind, keys: SigningKeys | None) -> WatchedJob:
    metadata = fields.mapping(source, "metadata", "")
    created = fields.text(metadata, "creationTimestamp", "metadata")
    bare, unix = {"metadata": source["metadata"]}, fields.created_unix(source)
    decided = read_decided_job(bare, kind, keys, created=unix)
    job = decided.current
    return WatchedJob(
        uid=fields.text(metadata, "uid", "metadata"),
        created=fields.seconds_since_1970(created, "metadata.creationTimestamp"),
        job=_undecided(job),
        known=known_of(source),
        has_left=pending_jobs.left_of(decided, keys, created=unix) is not None,
        happening=happening_of(job, decided.believed) if decided.doubt is None else None,
        held=_held(decided, metadata),
        resumes=decided.believed is not None and advice.can_resume(job.annotations),
        wishes=_wishes(job, unix) if decided.believed is not None else NONE,
        service=_service(decided, metadata),
    )


def _wishes(job: Job, created: float) -> Wishes:
    # They are its owner's own words, as in a decision, so none of them is signed. One that cannot
    # be read says nothing: it was changed after the decision, which had refused it.
    wished, _ = attempted(lambda: read_wishes(job.annotations, created), FieldError)
    return wished or NONE


def _held(decided: DecidedJob, metadata: Mapping[str, Any]) -> HeldJob | None:
    """Return a Job that our gate holds, whoever put it there; None: it holds it not."""
    job, recorded = decided.current, decided.believed
    if not holds.is_gated(job.annotations):
        return None
    return HeldJob(
        namespace=job.namespace,
        name=job.name,
        version=fields.text(metadata, "resourceVersion", "metadata"),
        queue=job.queue,
        policy=recorded.policy if recorded is not None else "",
        option=(recorded.option or "") if recorded is not None else "",
        others=holds.without_ours(job.annotations),
        hold=recorded.hold if recorded is not None else None,
        refuses=job.annotations.get(HOLD) == NEVER_HOLD,
    )


class DecidedService(NamedTuple):
    """What is known by its metadata of a service that a policy has sent to an option."""

    uid: str
    generation: int
    """That of its spec."""
    policy: str
    option: str
    wishes: Wishes
    cluster_queue: str
    """That of the option, as it was at the decision."""
    job_class: str
    """The key of its class; empty: nothing is learned from it, or it runs in a worker cluster."""
    since: float
    """When it was sent there, in seconds since 1970."""


def _service(decided: DecidedJob, metadata: Mapping[str, Any]) -> DecidedService | None:
    recorded = decided.believed
    if recorded is None or recorded.option is None or recorded.mode is not Mode.ENFORCE:
        return None
    if decided.kind.kind not in SERVICES:
        return None
    taken = next((each for each in recorded.options if each.name == recorded.option), None)
    is_here = taken is not None and not taken.cluster
    mark = job_class.parse_mark(recorded.job_class, decided.current.namespace) if is_here else None
    return DecidedService(
        uid=fields.text(metadata, "uid", "metadata"),
        generation=fields.integer(metadata, "generation", "metadata") or 0,
        policy=recorded.policy,
        option=recorded.option,
        wishes=_wishes(decided.current, fields.created_unix(decided.source)),
        cluster_queue=taken.cluster_queue if taken is not None else "",
        job_class=mark.job_class.key if mark is not None else "",
        since=recorded.moved_unix or recorded.unix,
    )


def _undecided(job: Job) -> Job | None:
    if DECISION in job.annotations:
        return None
    meant = {
        key: text
        for key, text in job_manifest.meant(job.annotations)
        if len(text) <= job_manifest.LONGEST_SAID
    }
    return replace(job, annotations=meant, pod_sets=())


class Happening(NamedTuple):
    """The last thing that was done to a Job, as its metadata shows."""

    reason: EventReason
    message: str
    unix: float
    """Time in seconds since 1970; 0: not known."""
    key: Key = ("", "")
    """The Job's namespace and reference; it and what follows are known once an Event is due."""
    uid: str = ""
    """The Job's."""
    since: float = 0.0
    """When it was seen, in seconds since 1970."""

    @property
    def namespace(self) -> str:
        return self.key[0]

    @property
    def mark(self) -> str:
        """Return what distinguishes it from other happenings of the same Job."""
        return f"{self.reason} {self.unix:.0f}"


def happening_of(job: Job, recorded: decision_record.Recorded | None) -> Happening | None:
    """Return what was last done to a Job that carries this decision; None: nothing to report."""
    if recorded is None:
        # A tenant may write a text of 256 kB there, and it would wait here until it is posted.
        by = marks.mark_of(job.annotations, UNDONE) if DECISION not in job.annotations else ""
        where = f"in {job.queue} " if job.queue else ""
        text = f"undone: {where}as submitted; policy {by} decides it no more"
        return Happening(EventReason.UNDONE, text, 0.0) if by else None
    if recorded.mode is not Mode.ENFORCE or recorded.option is None:
        return None
    if recorded.moves:
        return Happening(EventReason.MOVED, recorded.reason, recorded.moved_unix)
    if not recorded.changed:
        return None
    text = f"{recorded.reason} (changed: {', '.join(recorded.changed)})"
    return Happening(EventReason.DECIDED, text, recorded.unix)
