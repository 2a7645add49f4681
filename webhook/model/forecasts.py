"""What is expected of time: how long runs take, what queues will have free, when a Job would start.

Also the keys by which run times are learned. Seconds everywhere; moments count from a given one, as
each value says. Nothing is forecast here. When a pending Job was last expected to start stands in
an annotation of the Job, too, for its owner to read; the first forecast is part of the decision.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf
from typing import Any, Final, NamedTuple, TypeAlias

from webhook.model import fields
from webhook.model.fields import FieldError
from webhook.model.job import EXPECTED_START
from webhook.model.quantity import FlavorResource
from webhook.model.words import rfc3339, span

ENOUGH_RUNS = 3
"""Runs from which on a class is estimated by itself; with fewer, its coarse class counts too. A
coarse class with fewer is used only where neither the Job nor its policy gives a run time."""
SIGMAS_OF_A_SIDE = 1.2816
"""Standard deviations from the middle of a normal distribution to either end of its middle 80 %,
which is what the ranges of run times and starts hold."""


class Basis(StrEnum):
    """What an expected run time rests on, the most trusted first."""

    ANNOTATION = "annotation"
    LEARNED = "learned"
    SLOWDOWN = "slowdown"
    POLICY = "policy"
    PROFILE = "profile"
    """The speed of devices, as data sheets say it, or of a gang that is spread: a guess."""


class OfSaid(NamedTuple):
    """How runs compare with what their owners said of them, by the annotation ``run-time``."""

    middle: float
    """Natural logarithm of how many times as long as said they took."""
    sigma: float
    """Standard deviation of one run's logarithm."""
    runs: float
    """How many runs of equal weight would tell as much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTime:
    """An expected run time; ``low`` to ``high`` holds about 80 % of runs, more so with few runs."""

    seconds: float
    low: float
    high: float
    basis: Basis
    runs: int = 0
    warm: float = 0.0
    """Which part of the newest learned ones began soon after the end of another, where its data
    may still be."""
    of_said: OfSaid | None = None
    """How learned runs compare with what owners said of them; None: they said nothing."""
    known_in: frozenset[str] | None = None
    """The only namespaces whose Jobs may count on it, where it is said by somebody who is not
    believed everywhere (decision 0023); None: all may."""


Estimates: TypeAlias = Mapping[tuple[str, str], RunTime]
"""(job class, flavors) to its learned run time, or to how long its pods take to be ready, where ""
stands for all classes. Flavors: the names of the ResourceFlavors that were
assigned, sorted, unique, joined by commas; behind MultiKueue also these, ``@`` and the worker
cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatch:
    """How long AdmissionChecks take in a ClusterQueue after the reservation of quota."""

    learned: RunTime | None = None
    """How long Workloads took that have passed them lately; None: none has."""
    least: int = 0
    """The shortest of these, in seconds."""
    waiting_since: float | None = None
    """When the Workload that waits the longest got quota, of those that no later one has overtaken,
    on the clock of ``Snapshot.as_of``; None: none waits."""
    passed: int = field(default=0, compare=False)
    """The latest reservation of those that have passed them, in seconds since 1970."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delay:
    """Time that goes by before a run, in seconds; ``low`` to ``high`` as in ``RunTimeSpec``."""

    seconds: float
    low: float
    high: float
    by: str
    """What it rests on, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unseen:
    """Workloads of which no run time was observed, and none was stated for everybody."""

    cells: frozenset[FlavorResource]
    """What they use, or may use."""
    priority: int | None
    """None: they hold quota, so that newcomers of every priority wait for them."""
    count: int
    known_in: frozenset[str] = frozenset()
    """Namespaces whose Jobs may count on the run times that are expected."""


_DOUBTS: Final[Mapping[str, str]] = {
    "preemption": "Workloads that come later may preempt others in its ClusterQueue",
    "fairSharing": "Kueue shares quota between queues by what they use",
    "cohortReclaim": "other ClusterQueues may take back quota that they have lent",
    "admissionFairSharing": "Kueue orders its queue by what LocalQueues have used",
    "admissionChecks": "AdmissionChecks follow once it has quota",
    "podsReady": "Kueue admits one Workload at a time until its pods are ready",
    "topology": "it needs domains of a Topology with enough room",
    "depth": "so many wait that preemptions are forecast only at first",
    "runTimes": "some run times are not known and are taken to be like those of the others",
    "arrivals": "Workloads that usually come may come before it",
}
_NO_ORDER: Final[Mapping[str, str]] = {
    "fairSharing": "Kueue shares quota between queues by what they use",
    "partialAdmission": "a Workload may be admitted with fewer pods",
    "concurrentAdmission": "Kueue admits the first of several Workloads of one Job",
    "topology": "which domains of a Topology have room is not known",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """When one Job is expected to start, in seconds from now; inf: never."""

    seconds: float
    low: float
    high: float
    uncertain: tuple[str, ...] = ()
    """Why its range is widened, as in ``kueue.tree_forecast``; "arrivals": others that come later
    may come first."""
    unseen: int = 0
    """How many Workloads it waits for of whose run times nothing is known; 0: none."""
    unordered: str = ""
    """Why it is not known what is admitted before it; empty: it is. Where either is unknown,
    ``seconds`` is a mere guess."""
    is_next: bool = False
    """All Workloads that are pending there come after it."""
    preempts: bool = False
    """Others have to stop for it: their quota is what it starts on."""
    preempts_later: bool = False
    """They do not stop at once, but when quota of its own comes free that they then borrow."""
    preempted_by: int = 0
    """How many of those that are pending preempt it before it is done; it is then the start after
    that."""

    @property
    def is_known(self) -> bool:
        """Return whether a decision may rest on it."""
        return not self.unseen and not self.unordered

    @property
    def words(self) -> str:
        """Return when it is: ``now``, ``in 12 min``, or ``not foreseen`` where no time is."""
        if self.seconds == inf:
            return "not foreseen"
        return "now" if self.seconds <= 0 else f"in {span(self.seconds)}"

    @property
    def range_words(self) -> str:
        """Return the range of about 80 % of cases; empty: there is none."""
        if self.seconds == inf or self.high <= 0:
            return ""
        high = "any time" if self.high == inf else span(self.high)
        return f"{span(self.low)} to {high}"

    @property
    def doubts(self) -> tuple[str, ...]:
        """Return what it rests on that may turn out otherwise; empty: nothing is in doubt."""
        parts = []
        if self.seconds == inf:
            parts.append("there is never room for it as things are")
        if self.unseen:
            whose = "1 Workload" if self.unseen == 1 else f"{self.unseen} Workloads"
            parts.append(f"how long {whose} ahead of it will run is a guess: no such run was seen")
        if self.unordered:
            parts.append(f"who is next cannot be foreseen: {_NO_ORDER[self.unordered]}")
        parts += [_DOUBTS[doubt] for doubt in self.uncertain if doubt != self.unordered]
        if self.unseen and _DOUBTS["runTimes"] in parts:
            parts.remove(_DOUBTS["runTimes"])
        return tuple(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """When one Job is expected to start and finish.

    A finish is None where the run time or the start is not known.
    """

    start: Start
    dispatch: Delay | None = None
    """Of ``start`` the part that AdmissionChecks take; None: none is known."""
    delay: Delay | None = None
    """Between the start and the run; None: none is known that the run does not contain."""
    run: RunTime | None = None
    finish: float | None = None
    finish_low: float | None = None
    finish_high: float | None = None


IN_CLUSTER = "@"
"""No name of a ResourceFlavor has it."""
AT_LEVEL = "#"
"""Likewise; behind it stands the level of a Topology."""


def of_queue(cluster_queue: str, home: str) -> str:
    """Return the key of the run times of all classes of one home in a ClusterQueue."""
    return f"{IN_CLUSTER}{cluster_queue}/{home}"


def is_of_queue(key: str) -> bool:
    """Return whether a key is one of ``of_queue``, and not that of one class."""
    return key.startswith(IN_CLUSTER)


def home_of(key: str) -> str:
    """Return the home in a key, which is that of a class or one of ``of_queue``."""
    home, _, rest = key.partition("/")
    return rest if is_of_queue(key) else home


class JobClass(NamedTuple):
    key: str
    """The class: its home, a slash, and a digest, or ``label=value`` by the label that a policy
    names."""
    coarse: str
    """The wider class that differs from Job to Job in numbers among the arguments alone."""

    def at(self, home: str) -> JobClass:
        """Return this class with *home* put before its key, which has none yet."""
        return JobClass(key=f"{home}/{self.key}", coarse=f"{home}/{self.coarse}")


_LONGEST_START: Final = 512
"""Characters of the annotation; the names in it have at most 253."""
_START_PATH: Final = f"metadata.annotations[{EXPECTED_START}]"
_CHANGED_PART: Final = 0.1
"""A wait that changed by less of itself is not written anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedStart:
    at: float
    """When it is expected to start, in seconds since 1970."""
    as_of: float
    """When that was forecast."""
    cluster_queue: str = ""
    """Where it waits; empty: not known."""
    position: int = 0
    """1: the first there; 0: not known."""
    pending: int = 0
    """How many wait there."""

    def differs(self, other: ExpectedStart | None, unix: float) -> bool:
        """Return whether *other* would tell the owner something else at *unix*."""
        if other is None or self.cluster_queue != other.cluster_queue:
            return True
        left = max(other.at - unix, 0.0)
        return abs(self.at - other.at) > max(_CHANGED_PART * left, 1.0)


def write_expected_start(expected: ExpectedStart) -> str:
    """Return the text of the annotation."""
    shown = {
        "starts": rfc3339(expected.at),
        "asOf": rfc3339(expected.as_of),
        "clusterQueue": expected.cluster_queue,
        "position": expected.position,
        "pending": expected.pending,
    }
    return json.dumps(shown, separators=(",", ":"))


def read_expected_start(annotations: Mapping[str, Any]) -> ExpectedStart | None:
    """Read the annotation, which whoever may edit the Job can have changed; None: there is none."""
    text = annotations.get(EXPECTED_START)
    if not isinstance(text, str):
        return None
    try:
        said = fields.from_json(text, _START_PATH, longest=_LONGEST_START)
        return ExpectedStart(
            at=fields.seconds_since_1970(fields.text(said, "starts", _START_PATH), _START_PATH),
            as_of=fields.seconds_since_1970(fields.text(said, "asOf", _START_PATH), _START_PATH),
            cluster_queue=fields.text(said, "clusterQueue", _START_PATH),
            position=fields.integer(said, "position", _START_PATH) or 0,
            pending=fields.integer(said, "pending", _START_PATH) or 0,
        )
    except FieldError:
        return None
