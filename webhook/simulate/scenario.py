"""A scenario: queues, policies, Jobs and their arrivals, and the strategies to replay it under.

Times are seconds since the scenario's start. Everything random is drawn before the replay, so that
each strategy gets the same Jobs with the same true run times.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Final

from webhook.admission import patch
from webhook.cost.cluster_prices import PriceCompiler, PriceSources
from webhook.cost.service_level import ReplicaSpeed
from webhook.decide.wishes import DEADLINE, RUN_TIME
from webhook.jobs import reduced
from webhook.model.costs.prices import HOUR, Prices
from webhook.model.fields import FieldError
from webhook.model.job import PRIORITY_LABEL, QUEUE_LABEL, PodSet, Requester
from webhook.model.pods import Resources
from webhook.model.policy.fallback_policy import (
    FallbackPolicy,
    FinishTime,
    Mode,
    Strategy,
    StrategyType,
    sort_key,
)
from webhook.simulate.scenario_spec import Holding
from webhook.state.snapshot import Snapshot, updated

STATIC = "static"
"""The strategy that decides nothing: every Job runs where it was submitted."""

AND = "+"
"""Between the names of policies that decide together."""


EPOCH: Final = 1
"""Seconds since 1970 at the start of a scenario that does not say when it starts: 0 stands for no
admission."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedPrices:
    """What resources cost in the course of a replay."""

    start: int
    """Seconds since 1970 at the scenario's start."""
    sources: PriceSources
    compiler: PriceCompiler = field(default_factory=PriceCompiler)

    def at(self, unix: float) -> Mapping[str, Prices]:
        """Return the prices by cluster around *unix*, in seconds since 1970."""
        return self.compiler.compile(self.sources, unix)[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowChanges:
    """What a row says of its Job in place of the template; empty: the template stands."""

    place: str = ""
    """File and line, for errors."""
    priority_class: str = ""
    queue: str = ""
    requests: tuple[tuple[str, str], ...] = ()
    """(resource, quantity) for each pod."""
    deadline: str = ""
    """As a Job's annotation says it."""
    run_time: str = ""
    """Likewise, what its owner expects."""

    @property
    def is_empty(self) -> bool:
        return self == NO_CHANGES

    def applied(self, template: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the Job's manifest with these changes."""
        if self.is_empty:
            return template
        named = {PRIORITY_LABEL: self.priority_class, QUEUE_LABEL: self.queue}
        labels = {key: value for key, value in named.items() if value}
        metadata = template["metadata"]
        changed = {
            **template,
            "metadata": {**metadata, "labels": {**metadata.get("labels", {}), **labels}},
        }
        said = {DEADLINE: self.deadline, RUN_TIME: self.run_time}
        if said := {key: text for key, text in said.items() if text}:
            changed["metadata"]["annotations"] = {**metadata.get("annotations", {}), **said}
        return self._with_requests(changed) if self.requests else changed

    def _with_requests(self, source: Mapping[str, Any]) -> Mapping[str, Any]:
        """Let the pods ask for what the row says; of several pod sets those that ask for it."""
        kind = reduced.kind_of(source)
        job = kind.read(source)
        is_only = len(job.pod_sets) == 1
        pod_sets = tuple(self._asking(pod_set, is_only=is_only) for pod_set in job.pod_sets)
        changes = kind.edits(job, replace(job, pod_sets=pod_sets))
        return patch.patched(source, changes, kind.allowed)

    def _asking(self, pod_set: PodSet, *, is_only: bool) -> PodSet:
        # The first container stands for the whole pod.
        first, *others = pod_set.template.containers
        requests, limits = first.resources.requests, first.resources.limits
        known = {**requests, **limits}
        asked = {name: amount for name, amount in self.requests if is_only or name in known}
        # A limit must not be below what is requested, and an accelerator's must equal it.
        limited = {key: asked.get(key, value) for key, value in limits.items()}
        first = replace(first, resources=Resources(requests={**requests, **asked}, limits=limited))
        return replace(pod_set, template=replace(pod_set.template, containers=(first, *others)))


NO_CHANGES = RowChanges()


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """The submission of one Job."""

    at: float
    name: str = ""
    """Unique in the scenario; empty: it has not got one yet."""
    template: str
    given_seconds: float | None = None
    """The run time that comes with the arrival, from which the others are drawn; None: none."""
    run_seconds: Mapping[str, float] = field(default_factory=dict)
    """True run times: by the names of the ResourceFlavors that it may be assigned, sorted and
    joined by commas, or by option. All the time for which the Job holds quota is in them."""
    changes: RowChanges = NO_CHANGES
    interruptions: Mapping[str, int] = field(default_factory=dict)
    """How often it is interrupted in each of these run times, which have that in them."""

    def seconds_on(self, flavors: str, option: str = "", *, sent_by: str = "") -> float:
        """Return how many seconds the Job really runs on these flavors.

        The time for exactly these flavors comes first, then the option's, then that of one of the
        flavors. In a worker cluster, *sent_by* are the flavors that the manager assigned: the time
        may be given for these, too, and comes last.

        Raises:
            FieldError: the scenario gives no time for them.

        """
        key = self._key(flavors, option, sent_by)
        if key is not None:
            return self.run_seconds[key]
        known = ", ".join(self.run_seconds)
        raise FieldError(
            f"jobs.{self.template}.runTimes",
            f"expected a run time on flavor {flavors or 'none'}, found only {known}",
        )

    def interrupted(self, prices: Prices, checkpoint: float | None, seed: int) -> Submission:
        """Return it with true run times that have its interruptions in them.

        *prices* say how many an hour come on each flavor; *checkpoint* is in seconds, None: the
        Job makes none. What is drawn depends on the Job and its run alone.
        """
        runs = {
            key: lengthened(
                run,
                per_hour=prices.interrupted(key.split(",")),
                checkpoint=checkpoint,
                random=Random(f"{seed}/{self.name}/{key}"),  # noqa: S311 - no secret
            )
            for key, run in self.run_seconds.items()
        }
        return replace(
            self,
            run_seconds={key: seconds for key, (seconds, _) in runs.items()},
            interruptions={key: count for key, (_, count) in runs.items() if count},
        )

    def interrupted_on(self, flavors: str, option: str, *, sent_by: str = "") -> int:
        """Return how often it is interrupted in the run of ``seconds_on``."""
        return self.interruptions.get(self._key(flavors, option, sent_by) or "", 0)

    def _key(self, flavors: str, option: str, sent_by: str) -> str | None:
        return _key_of(self.run_seconds, flavors, option, sent_by)


def _key_of(
    given: Mapping[str, object], flavors: str, option: str, sent_by: str = ""
) -> str | None:
    keys = (flavors, option, *flavors.split(","), sent_by)
    return next((key for key in keys if key in given), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceRun:
    """A service that is there for a while, and the requests that it gets."""

    name: str
    source: Mapping[str, Any]
    """Its manifest, without a name."""
    created: float
    ends: float
    startup: float
    """For how many seconds a replica has quota until it serves."""
    rates: Mapping[float, float]
    """Moment to the requests a second from it on; the first is when it is created."""
    stated: float
    """The requests a second that it says it expects."""
    target: float
    """Seconds, as the percentile."""
    most: int | None
    """The most replicas that its author allows it; None: any number."""
    serves: Mapping[str, ReplicaSpeed]
    """What one replica really does: by ResourceFlavors, sorted and joined by commas, or by
    option."""

    @property
    def manifest(self) -> Mapping[str, Any]:
        """Return the service as it is created."""
        return {**self.source, "metadata": {**self.source["metadata"], "name": self.name}}

    def rate_at(self, moment: float) -> float:
        """Return how many requests a second it gets at a moment while it is there."""
        times = tuple(self.rates)
        return self.rates[times[bisect_right(times, moment) - 1]]

    def speed_on(self, flavors: str, option: str) -> ReplicaSpeed:
        """Return what one replica really does on these flavors.

        Raises:
            FieldError: the scenario does not say it.

        """
        key = _key_of(self.serves, flavors, option)
        if key is not None:
            return self.serves[key]
        raise FieldError(
            f"services.{self.name}.serves",
            f"expected what a replica does on flavor {flavors or 'none'}, found only"
            f" {', '.join(self.serves)}",
        )

    def faster(self, factor: float) -> ServiceRun:
        """Divide all times but its latency by *factor*."""
        return replace(
            self,
            created=self.created / factor,
            ends=self.ends / factor,
            startup=self.startup / factor,
            rates={at / factor: rate for at, rate in self.rates.items()},
        )


_MOST_INTERRUPTIONS: Final = 1_000
"""After so many a run is not interrupted any more: it would never end."""


def lengthened(
    run: float, *, per_hour: float, checkpoint: float | None, random: Random
) -> tuple[float, int]:
    """Return how long a run of so many seconds takes with its interruptions, and their number.

    They come independently, as on spot capacity. The Job begins again where it is, with the quota
    that it holds: from its last checkpoint, or anew.
    """
    done, passed, count = 0.0, 0.0, 0
    while per_hour > 0 and count < _MOST_INTERRUPTIONS:
        until = random.expovariate(per_hour / HOUR)
        if until >= run - done:
            break
        passed, count = passed + until, count + 1
        done = (done + until) // checkpoint * checkpoint if checkpoint else 0.0
    return passed + run - done, count


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """One strategy under which the scenario is replayed."""

    name: str
    policies: tuple[FallbackPolicy, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """A cluster behind MultiKueue."""

    snapshot: Snapshot
    """Empty queues."""
    watched: bool = True
    """Decisions know its free quota and pending Workloads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """What a replay starts from."""

    name: str
    snapshot: Snapshot
    """Empty queues, without policies."""
    objects: tuple[Mapping[str, Any], ...] = ()
    """The same queues, flavors and namespaces as objects, as they were written."""
    policies: tuple[FallbackPolicy, ...]
    policy_objects: tuple[Mapping[str, Any], ...] = ()
    templates: Mapping[str, Mapping[str, Any]]
    """Jobs by name, of any kind; each has a namespace and no name of its own."""
    requesters: Mapping[str, Requester] = field(default_factory=dict)
    """Who creates Jobs, by template; unknown for those that are not there."""
    submissions: tuple[Submission, ...]
    """Ascending by time."""
    services: tuple[ServiceRun, ...] = ()
    prices: ReplayedPrices | None = None
    """None: nothing has a price, but for what *snapshot* says of devices."""
    billed: ReplayedPrices | None = None
    """What results count; None: *prices*."""
    holding: Holding = Holding.PLANNED
    workers: Mapping[str, Worker] = field(default_factory=dict)
    """Worker clusters by name; empty: a Workload with quota runs, even behind MultiKueue."""

    def manifest(self, submission: Submission) -> Mapping[str, Any]:
        """Return the Job as it is submitted."""
        template = submission.changes.applied(self.templates[submission.template])
        return {**template, "metadata": {**template["metadata"], "name": submission.name}}

    def unknown_requesters(self) -> tuple[str, ...]:
        """Return a sentence for each policy that asks who creates Jobs, where one names nobody."""
        unknown = [name for name in self.templates if name not in self.requesters]
        return tuple(
            f"{policy.name} asks who creates a Job, which jobs.{unknown[0]}.user does not say:"
            " it does not apply there"
            for policy in self.policies
            if unknown and asks_who(policy)
        )

    def faster(self, factor: float) -> Scenario:
        """Divide arrivals and run times by *factor*; durations in policies stay."""
        return replace(
            self,
            submissions=tuple(
                replace(
                    submission,
                    at=submission.at / factor,
                    run_seconds={k: v / factor for k, v in submission.run_seconds.items()},
                )
                for submission in self.submissions
            ),
            services=tuple(service.faster(factor) for service in self.services),
        )

    def arms(self, names: Sequence[str] = ()) -> tuple[Arm, ...]:
        """Return strategies by name: static, a type, or policies; no names: static and each type.

        Raises:
            FieldError: there is no such strategy.

        """
        if not names:
            used = {policy.spec.strategy.type for policy in self.policies}
            names = (STATIC, *(kind for kind in StrategyType if kind in used))
        return tuple(self._arm(name) for name in dict.fromkeys(names))

    def _arm(self, name: str) -> Arm:
        if name == STATIC:
            return Arm(name=name)
        if of_type := [policy for policy in self.policies if policy.spec.strategy.type == name]:
            return enforced(name, of_type)
        if name == StrategyType.FINISH_TIME and self.policies:
            by_finish = Strategy(type=StrategyType.FINISH_TIME, finish_time=FinishTime())
            return enforced(name, self.policies, strategy=by_finish)
        by_name = {policy.name: policy for policy in self.policies}
        policy_names = name.split(AND)
        if all(policy_name in by_name for policy_name in policy_names):
            return enforced(name, [by_name[policy_name] for policy_name in policy_names])
        types = {str(policy.spec.strategy.type) for policy in self.policies}
        known = ", ".join([STATIC, *sorted(types), *by_name])
        raise FieldError("--strategy", f"expected one of {known}, got {name}")


def asks_who(policy: FallbackPolicy) -> bool:
    """Return whether a policy, or an option of it, is only for some users or groups."""
    asked = [(policy.spec.match.users, policy.spec.match.groups)]
    asked += [(o.only.users, o.only.groups) for o in policy.spec.options if o.only is not None]
    return any(names is not None for pair in asked for names in pair)


def templates_of(
    manifests: Iterable[Mapping[str, Any]],
) -> tuple[list[str], Mapping[str, Mapping[str, Any]]]:
    """Return a name for each of the Jobs, equal ones have the same, and the Jobs by name."""
    names: dict[str, str] = {}
    templates: dict[str, Mapping[str, Any]] = {}
    in_order = []
    for source in manifests:
        name = names.setdefault(json.dumps(source, sort_keys=True), f"shape-{len(names) + 1}")
        templates[name] = source
        in_order.append(name)
    return in_order, templates


def emptied(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot with empty queues and no off switch, as a replay begins."""
    return updated(
        snapshot, off=None, held={}, competing={}, reserving={}, forecasts={}, dispatches={}
    )


def enforced(name: str, policies: Sequence[FallbackPolicy], **changes: object) -> Arm:
    """Return a strategy in which *policies* decide, whatever their mode."""
    specs = [
        policy.spec.model_copy(update={"mode": Mode.ENFORCE, **changes}) for policy in policies
    ]
    enforcing = (
        policy.model_copy(update={"spec": spec})
        for policy, spec in zip(policies, specs, strict=True)
    )
    return Arm(name=name, policies=tuple(sorted(enforcing, key=sort_key)))
