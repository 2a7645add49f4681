"""One Job before the options of the policy that matches it: all that they are judged by.

It is made once for a review, and filters, forecasts, strategies and holds read it.
"""

from __future__ import annotations

import zlib
from collections.abc import Container
from dataclasses import dataclass
from functools import cached_property

from webhook.decide import match
from webhook.decide.wishes import NONE, Wishes, remaining, said_seconds, wishes_of
from webhook.kueue.requests import unmodelled
from webhook.learn.job_class import Mark, mark_text
from webhook.model.costs.devices import DeviceUse
from webhook.model.forecasts import JobClass
from webhook.model.job import Job, Requester
from webhook.model.policy.fallback_policy import FallbackPolicy
from webhook.model.policy.rules import SERVICES
from webhook.model.signatures import SigningKeys
from webhook.state.occupancy import Occupancy
from webhook.state.snapshot import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """The time of a review, what identifies it, and the user who asks."""

    now: float
    """Seconds on the clock of ``Snapshot.as_of``."""
    unix: float
    """Seconds since 1970."""
    time: str
    """The same instant as RFC 3339 in UTC, whole seconds."""
    uid: str
    """The review's UID. It is random, so ids of decisions are made from it."""
    visible: Container[str] = frozenset()
    """Ids of decisions whose Workloads have been observed lately."""
    requester: Requester | None = None
    """The user who asks; None: unknown."""
    manager: str = ""
    """The field manager of who sends the request; empty: unknown."""
    is_dry_run: bool = False
    """Whether nothing follows from the answer, so that nothing in it is signed."""

    def keys(self, snapshot: Snapshot) -> SigningKeys | None:
        """Return the keys to sign an answer with; None: it is not signed.

        Who only asks what would be decided could carry a signature elsewhere.
        """
        return None if self.is_dry_run else snapshot.fallback.signing

    @property
    def draw(self) -> float:
        """A number in [0, 1), the same for the same review.

        Replicas with equal forecasts would else all take a near tie, or all leave it.
        """
        return zlib.crc32(self.uid.encode()) / (1 << 32)


# Without slots, as what is asked for often is worked out once and kept.
@dataclass(frozen=True, kw_only=True)
class Applicant:
    job: Job
    """As it was submitted."""
    policy: FallbackPolicy
    occupancy: Occupancy
    submitted: str
    """The LocalQueue that it is submitted to, as Kueue resolves it; empty: none."""
    moment: Moment
    """When it is judged, and who creates it or asks for a move."""
    wishes: Wishes = NONE
    stays_in: str = ""
    """The option that it has, and may keep whoever asks; empty: none."""
    draw: float = 0.5
    """In [0, 1), different for each decision; it decides near ties."""
    probability: float = 0.8
    """How likely a gain must be for a preferred option to be passed over."""

    @cached_property
    def snapshot(self) -> Snapshot:
        return self.occupancy.snapshot

    @cached_property
    def job_class(self) -> JobClass:
        """Its class under the policy.

        Raises:
            FieldError: a quantity cannot be read.

        """
        return match.class_of(self.job, self.policy, self.snapshot)

    @cached_property
    def device_use(self) -> DeviceUse | None:
        """What the runs of its class were measured to use of devices; None: nothing was.

        Raises:
            FieldError: a quantity cannot be read.

        """
        uses = self.snapshot.learned.device_uses
        return uses.get(self.job_class.key) if uses else None

    @cached_property
    def is_sized(self) -> bool:
        """Whether it is a service, whose options are compared by what its replicas cost an hour."""
        return (
            self.wishes.request_rate is not None
            and self.job.kind in SERVICES
            and self.policy.spec.strategy.least_cost is not None
        )

    @property
    def class_text(self) -> str:
        """Its class as decisions write it on the pod template; equal classes are one object.

        Raises:
            FieldError: a quantity cannot be read.

        """
        said = said_seconds(self.job.annotations)
        return mark_text(Mark(self.job_class, self.policy.generation, said))

    @property
    def unmodelled(self) -> str:
        """What keeps it from being decided by what is modelled; empty: nothing.

        Raises:
            FieldError: a quantity of the Job cannot be read.

        """
        if self.job.is_endless and self.policy.spec.strategy.forecasts:
            return "restartPolicy Always never ends, so only Threshold fits"
        what = unmodelled(self.job, self.submitted, self.snapshot.setup, self.snapshot.cluster)
        # In words of which some end with a comma, to go on, and some are many.
        return f"not modelled: {what.rstrip(',')}" if what else ""


def read_applicant(
    job: Job,
    policy: FallbackPolicy,
    occupancy: Occupancy,
    moment: Moment,
    *,
    created: float | None = None,
    probability: float = 0.8,
) -> Applicant:
    """Return a Job with what its annotations ask for at this moment.

    *created* is when it was created, in seconds since 1970; None: it is being created now. Its
    deadline becomes what is left of it.

    Raises:
        FieldError: one of its annotations cannot be read, or has our prefix and is unknown.

    """
    since = moment.unix if created is None else created
    wished = remaining(wishes_of(job, policy, since), moment.unix - since)
    return Applicant(
        job=job,
        policy=policy,
        occupancy=occupancy,
        submitted=match.submission(job, occupancy.snapshot),
        moment=moment,
        wishes=wished,
        draw=moment.draw,
        probability=probability,
    )
