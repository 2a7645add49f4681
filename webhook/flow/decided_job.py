"""Reads a Job together with the decision that it carries: the one place where both are read.

A pending Job that is to be moved or undone becomes what was submitted, or a refusal, which takes
the annotations off that asked. It must not know who asks: create, re-apply, move and undo,
controller, journal and commands do.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any

from webhook.admission.patch import completed, original_from_json, undone
from webhook.decide import decision_record, warning
from webhook.decide.decision_record import Recorded
from webhook.jobs import JobKind
from webhook.model import fields
from webhook.model.decision import Declined
from webhook.model.edits import Original, Path
from webhook.model.fields import FieldError
from webhook.model.job import DECISION, Job
from webhook.model.reasons import Obstacle
from webhook.model.signatures import SigningKeys, is_own_record, unsigned_id

_NOT_IN_IDS = re.compile(r"[\W_]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveredJob:
    """A Job as it is, and as its author submitted it."""

    kind: JobKind
    source: Mapping[str, Any]
    current: Job
    submitted_source: Mapping[str, Any]
    submitted: Job
    original: Original = field(default_factory=dict)
    """The submitted values that were put back, by their paths."""
    recorded: Recorded | None = None
    """The decision that was undone for it; None: none was, and it was submitted as it is."""

    @property
    def is_its_own(self) -> bool:
        """Whether it carries a decision that is relied on, and was made for it."""
        return self.recorded is not None and is_made_for(self.recorded, self.current)


@dataclass(frozen=True, slots=True, kw_only=True)
class DecidedJob:
    """A Job that may carry a decision, read once."""

    source: Mapping[str, Any]
    """The object as it came."""
    kind: JobKind
    current: Job
    """What the object is now."""
    recorded: Recorded | None = None
    """The decision that stands there, relied on or not (``believed``); None: there is none, or it
    cannot be read. Of one that a newer version wrote only the version is known."""
    doubt: Obstacle | None = None
    """Why what stands there is not relied on: it is foreign, unreadable or a newer version's;
    None: nothing stands there, or it is relied on."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the Job's author should know of a decision that is not relied on."""
        if self.doubt is Obstacle.NEWER_DECISION and self.recorded is not None:
            return warning.newer(self.recorded.version)
        return () if self.doubt is None else warning.foreign()

    @property
    def is_made_for_it(self) -> bool:
        """Whether the id of what stands there has the digest of this Job's name."""
        return self.recorded is not None and is_made_for(self.recorded, self.current)

    @property
    def believed(self) -> Recorded | None:
        """The decision; None: there is none that may be undone, counted and learned from."""
        return self.recorded if self.doubt is None else None

    @property
    def original(self) -> Original:
        """The submitted values by their paths; empty: no decision that is relied on changed any.

        Raises:
            FieldError: they cannot be read.

        """
        if self.believed is None:
            return {}
        original = original_from_json(self.believed.original)
        return completed(original, self.source, self.kind.allowed)

    def recovered(self, *, but: Container[Path] = ()) -> RecoveredJob:
        """Undo the decision on a copy of the Job, if there is one that is relied on.

        The values at the paths *but* stay as they are.

        Raises:
            FieldError: the submitted values cannot be put back.

        """
        if self.believed is None:
            return self.as_it_came()
        original = {path: value for path, value in self.original.items() if path not in but}
        source = undone(self.source, original, self.kind.allowed)
        return RecoveredJob(
            kind=self.kind,
            source=self.source,
            current=self.current,
            submitted_source=source,
            submitted=self.kind.read(source),
            original=original,
            recorded=self.believed,
        )

    def recovered_if_possible(self) -> RecoveredJob:
        """Undo the decision as ``recovered`` does; where that fails, take the Job as it came."""
        try:
            return self.recovered()
        except FieldError:
            # A damaged record, or one of another kind of Job, undoes nothing.
            return self.as_it_came()

    def as_it_came(self) -> RecoveredJob:
        return RecoveredJob(
            kind=self.kind,
            source=self.source,
            current=self.current,
            submitted_source=self.source,
            submitted=self.current,
        )


def read_stored(source: Mapping[str, Any], kind: JobKind, keys: SigningKeys | None) -> DecidedJob:
    """Read a Job that exists, and its decision, which may be older than the *keys*.

    Raises:
        FieldError: *source* cannot be read as a Job of *kind*.

    """
    return read_decided_job(source, kind, keys, created=fields.created_unix(source))


def read_decided_job(
    source: Mapping[str, Any],
    kind: JobKind,
    keys: SigningKeys | None = None,
    *,
    created: float = inf,
) -> DecidedJob:
    """Read a Job and its decision.

    *keys* and *created* as for ``is_own_record``: by default the Job is being created, so that its
    own creation time, which its author may have written, counts for nothing.

    Raises:
        FieldError: *source* cannot be read as a Job of *kind*.

    """
    current = kind.read(source)
    if DECISION not in current.annotations:
        return DecidedJob(source=source, kind=kind, current=current)
    recorded, doubt = _recorded(current, keys, created)
    return DecidedJob(source=source, kind=kind, current=current, recorded=recorded, doubt=doubt)


def _recorded(
    job: Job, keys: SigningKeys | None, created: float
) -> tuple[Recorded | None, Obstacle | None]:
    is_own = is_own_record(job.annotations[DECISION], job.namespace, keys, created=created)
    try:
        recorded = decision_record.from_annotations(job.annotations)
    except FieldError:
        return None, Obstacle.UNREADABLE if is_own else Obstacle.FOREIGN_DECISION
    # What a newer version wrote is not read and the Job is left as it is, signed or not.
    if recorded.is_newer:
        return recorded, Obstacle.NEWER_DECISION
    # Anybody can write a decision on a Job, so one without our signature undoes nothing. Nor does
    # one that was made for another Job, once it is stored on this one.
    is_stored = keys is not None and keys.since <= created < inf
    is_own = is_own and (not is_stored or is_made_for(recorded, job))
    return recorded, None if is_own else Obstacle.FOREIGN_DECISION


def is_made_for(recorded: Recorded, job: Job) -> bool:
    """Return whether a decision's id has the digest of this Job's name."""
    digest = unsigned_id(recorded.id).rpartition("-")[2]
    # It was made before the API server put a name in the place of ``generateName``.
    names = (job.name, job.generate_name)
    return any(name and digest == _name_digest(job.namespace, name) for name in names)


def new_id(job: Job, uid: str) -> str:
    """Make a decision's id from a review's UID and a digest of the Job's namespace and name."""
    random_part = _NOT_IN_IDS.sub("", uid.lower())[:12]
    return f"{random_part or '0'}-{_name_digest(job.namespace, job.name or job.generate_name)}"


def _name_digest(namespace: str, name: str) -> str:
    """Return what a decision's id says of the Job that it was made for."""
    return f"{zlib.crc32(f'{namespace}/{name}'.encode()):08x}"


def recover(job: DecidedJob) -> RecoveredJob | Declined:
    """Return a pending Job as it was submitted, or why its decision cannot be changed.

    Raises:
        FieldError: what the decision has recorded cannot be put back.

    """
    if job.doubt is not None:
        unread = "its decision cannot be read" if job.doubt is Obstacle.UNREADABLE else ""
        return Declined(obstacle=job.doubt, detail=unread)
    if obstacle := job.kind.held_back(job.source):
        return Declined(obstacle=obstacle)
    return job.recovered()
