"""Reconciles the status of policies: judges conditions Ready and KueueTested, and writes them.

Ready: the policy's options can be taken in the cluster as it is. KueueTested: forecasts are made
for this version and configuration of Kueue; it is the same for all policies. Reviewed: it is False
for an hour after Jobs that the policy matches were created without a review.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any, Final, NamedTuple

from webhook.api import published
from webhook.api.kubernetes_api import ClusterError, KubernetesApi, NotServed, Refused
from webhook.api.resources import POLICIES, TEAM_POLICIES, full_name, key_of, our_path
from webhook.api.watch import LimitedReads, list_pages
from webhook.controller.job_events import CLUSTER_SCOPED
from webhook.decide import match, policy_limits
from webhook.decide.match import SYSTEM_NAMESPACES
from webhook.decide.policy_limits import PolicyLimit
from webhook.jobs import BY_NAME
from webhook.model import fields
from webhook.model.kueue_support import KueueTested
from webhook.model.pods import EVERYTHING
from webhook.model.policy.fallback_policy import (
    KIND,
    MOST_OF_TEAM,
    TEAM_KIND,
    FallbackPolicy,
    Option,
    PolicyError,
    read_policy,
    read_team_policy,
    selector,
)
from webhook.model.queues import LocalQueue
from webhook.model.reasons import Explained, Ready, StatusProblem
from webhook.model.words import rfc3339
from webhook.state.snapshot import Snapshot
from webhook.state.watched import OF_TEAMS

READY: Final = "Ready"
REVIEWED: Final = "Reviewed"
KEPT_SECONDS: Final = 3600.0
"""How long a policy says that Jobs were created without a review."""
KUEUE_TESTED: Final = "KueueTested"
_LONGEST_MESSAGE: Final = 32768


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """The condition Ready without its time of change, which depends on what was written before."""

    reason: Explained
    message: str
    generation: int = 0
    unreviewed: str = ""
    """How many Jobs were created without a review within ``KEPT_SECONDS``; empty: none."""
    rest: Mapping[str, Any] = field(default_factory=dict)
    """The status beside its conditions."""

    @property
    def ready(self) -> bool:
        return self.reason == Ready.RESOLVED

    def dated(self, before: Iterable[Mapping[str, Any]], now: str) -> Mapping[str, Any]:
        """Return it as it is written at *now*, as RFC 3339; *before* are the conditions so far."""
        said = {
            "type": READY,
            "status": "True" if self.ready else "False",
            "observedGeneration": self.generation,
            "reason": str(self.reason),
            "message": self.message,
        }
        return dated_condition(said, before, now)


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownKinds:
    """Which kinds of Jobs can be decided here, as far as that is not Kueue's to say."""

    switched_on: frozenset[str] = frozenset(BY_NAME)
    """Those that reviews are sent of."""
    unserved: frozenset[str] = frozenset()
    """Those of them that the cluster does not serve."""
    changes_resources: bool = True
    """Whether Kubernetes lets the resources of a suspended Job change."""
    autoscales: bool = True
    """Whether services are autoscaled where a policy says so."""


ALL_KINDS: Final = KnownKinds()


def condition_of(
    policy: FallbackPolicy,
    snapshot: Snapshot,
    *,
    own_namespace: str = "",
    kinds: KnownKinds = ALL_KINDS,
) -> Condition:
    """Return the condition Ready of a valid policy; False if an option can never be taken.

    The message then names the option by its path. Of a ready policy it says what keeps decisions
    from being undone in place.
    """
    namespaces = _selected(policy, snapshot, own_namespace)
    findings = (
        *_findings(policy, snapshot, namespaces),
        *_kinds(policy, snapshot, kinds),
    )
    if not findings:
        reason = Ready.RESOLVED
        limits = [*policy_limits.of_undo(policy), *_of_queues(policy, snapshot, namespaces)]
        limits += policy_limits.of_autoscale(policy, is_on=kinds.autoscales)
        depends = any(BY_NAME[name].changes_with_kubernetes for name in policy.spec.match.kinds)
        if depends and not kinds.changes_resources:
            limits += policy_limits.of_older_kubernetes(policy)
        return Condition(
            reason=reason,
            message=_joined(iter([reason.meaning, *map(str, limits)])),
            generation=policy.generation,
        )
    return Condition(
        reason=findings[0].reason,
        message=_joined(map(str, findings)),
        generation=policy.generation,
    )


def invalid(error: PolicyError, generation: int, reason: Explained = Ready.INVALID) -> Condition:
    """Return the condition Ready of an object that breaks a rule, so that the webhook skips it.

    It was stored before the rule was part of its CustomResourceDefinition.
    """
    return Condition(
        reason=reason,
        message=_joined(str(mistake) for mistake in error.errors),
        generation=generation,
    )


def status_of(
    judged: Condition, snapshot: Snapshot, before: Mapping[str, Any], *, now: str
) -> Mapping[str, Any] | None:
    """Return the status to write; None if *before*, the current one, has its conditions already.

    *judged* is the condition Ready; *now* is RFC 3339.
    """
    conditions = [old for old in before.get("conditions") or () if isinstance(old, dict)]
    others = [_kueue_tested(snapshot), *_reviewed(judged.unreviewed, conditions, now)]
    said = ({**each, "observedGeneration": judged.generation} for each in others)
    dated = (dated_condition(written, conditions, now) for written in said)
    new = [judged.dated(conditions, now), *dated]
    if all(condition in conditions for condition in new):
        return None
    types = [condition["type"] for condition in new]
    return {"conditions": [*(old for old in conditions if old.get("type") not in types), *new]}


def _reviewed(
    unreviewed: str, before: Iterable[Mapping[str, Any]], now: str
) -> Iterator[Mapping[str, Any]]:
    """Yield the condition Reviewed, if it is known.

    Without it nothing was ever missed. What another leader has counted holds as long as our own.
    """
    if unreviewed:
        yield _condition(REVIEWED, "False", "CreatedWithoutReview", unreviewed)
        return
    old = next((condition for condition in before if condition.get("type") == REVIEWED), None)
    if old is None:
        return
    # Both are as we write them, so their order is that of the texts.
    hour_ago = rfc3339(fields.seconds_since_1970(now, "now") - KEPT_SECONDS)
    if old.get("status") == "False" and str(old.get("lastTransitionTime")) > hour_ago:
        return
    message = "no Job that it matches was created without a review within the last hour"
    yield _condition(REVIEWED, "True", "Reviewed", message)


def _kueue_tested(snapshot: Snapshot) -> Mapping[str, str]:
    doubts = snapshot.setup.doubts
    if not doubts:
        reason = KueueTested.TESTED
        return _condition(KUEUE_TESTED, "True", str(reason), reason.meaning)
    enforced = "they enforce all the same, as the setting untested_kueue says"
    then = "policies that enforce only observe" if snapshot.fallback.is_restrained else enforced
    message = _joined(iter([*(doubt.message for doubt in doubts), then]))
    state = "False" if doubts[0].is_certain else "Unknown"
    return _condition(KUEUE_TESTED, state, str(doubts[0].reason), message)


def _condition(name: str, state: str, reason: str, message: str) -> Mapping[str, str]:
    return {"type": name, "status": state, "reason": reason, "message": message}


def dated_condition(
    said: Mapping[str, Any], before: Iterable[Mapping[str, Any]], now: str
) -> Mapping[str, Any]:
    """Return the condition with the time of the last change of its status."""
    old = next((condition for condition in before if condition.get("type") == said["type"]), {})
    changed = old.get("status") != said["status"]
    return {**said, "lastTransitionTime": now if changed else old.get("lastTransitionTime", now)}


def _joined(lines: Iterator[str]) -> str:
    return "; ".join(lines)[:_LONGEST_MESSAGE]


def _selected(policy: FallbackPolicy, snapshot: Snapshot, own_namespace: str) -> frozenset[str]:
    given = policy.spec.match.namespace_selector
    if given is None:
        # As at admission: without a selector neither system namespaces nor our own are matched.
        known = frozenset(snapshot.cluster.namespaces) - SYSTEM_NAMESPACES - {own_namespace}
        return known & {policy.namespace} if policy.namespace else known
    wanted = selector(given, EVERYTHING)
    return frozenset(
        name for name, labels in snapshot.cluster.namespaces.items() if wanted.matches(labels)
    )


def _findings(
    policy: FallbackPolicy, snapshot: Snapshot, namespaces: frozenset[str]
) -> Iterator[StatusProblem]:
    if not namespaces:
        reason = Ready.NO_NAMESPACE
        path = "metadata.namespace" if policy.namespace else "spec.match.namespaceSelector"
        yield StatusProblem(reason=reason, path=path, message=reason.meaning)
        return
    queues = [
        queue for queue in snapshot.setup.local_queues.values() if queue.namespace in namespaces
    ]
    for index, option in enumerate(policy.spec.options):
        path = f"spec.options[{index}]"
        if option.queue:
            yield from _queue(option, path, queues, snapshot)
        else:
            yield from _cluster_queue(option, path, queues, snapshot)
        yield from _classes(option, path, snapshot)


def _kinds(
    policy: FallbackPolicy, snapshot: Snapshot, kinds: KnownKinds
) -> Iterator[StatusProblem]:
    for index, name in enumerate(policy.spec.match.kinds):
        path, kind = f"spec.match.kinds[{index}]", BY_NAME[name]
        if name not in kinds.switched_on:
            message = f"{name} is not among the chart's kinds, so no review is sent of any"
            yield StatusProblem(reason=Ready.KIND_NOT_SWITCHED_ON, path=path, message=message)
        elif name in kinds.unserved:
            message = f"the cluster serves no {kind.plural} of {kind.api_version}"
            yield StatusProblem(reason=Ready.KIND_NOT_SERVED, path=path, message=message)
        elif message := match.integration_off(kind, snapshot.setup.kueue):
            yield StatusProblem(reason=Ready.KIND_NOT_MANAGED, path=path, message=message)


def _of_queues(
    policy: FallbackPolicy, snapshot: Snapshot, namespaces: frozenset[str]
) -> Iterator[PolicyLimit]:
    local_queues = [
        queue for queue in snapshot.setup.local_queues.values() if queue.namespace in namespaces
    ]
    for index, option in enumerate(policy.spec.options):
        names = {queue.cluster_queue for queue in local_queues if queue.name == option.queue}
        names |= {option.cluster_queue}
        queues = [
            snapshot.setup.cluster_queues[name] for name in names & {*snapshot.setup.cluster_queues}
        ]
        yield from policy_limits.of_cluster_queues(f"spec.options[{index}]", queues, snapshot)


def _queue(
    option: Option, path: str, queues: list[LocalQueue], snapshot: Snapshot
) -> Iterator[StatusProblem]:
    targets = {queue.cluster_queue for queue in queues if queue.name == option.queue}
    here = f"{path}.queue"
    if not targets:
        message = f"no LocalQueue {option.queue} in any selected namespace"
        yield StatusProblem(reason=Ready.QUEUE_NOT_FOUND, path=here, message=message)
    elif not targets & set(snapshot.setup.cluster_queues):
        names = ", ".join(sorted(targets))
        message = f"LocalQueue {option.queue} points to no ClusterQueue that exists: {names}"
        yield StatusProblem(reason=Ready.CLUSTER_QUEUE_NOT_FOUND, path=here, message=message)


def _cluster_queue(
    option: Option, path: str, queues: list[LocalQueue], snapshot: Snapshot
) -> Iterator[StatusProblem]:
    name, here = option.cluster_queue, f"{path}.clusterQueue"
    if name not in snapshot.setup.cluster_queues:
        message = f"no ClusterQueue {name}"
        yield StatusProblem(reason=Ready.CLUSTER_QUEUE_NOT_FOUND, path=here, message=message)
    elif not any(queue.cluster_queue == name for queue in queues):
        message = f"no LocalQueue of any selected namespace points to ClusterQueue {name}"
        yield StatusProblem(reason=Ready.QUEUE_NOT_FOUND, path=here, message=message)


def _classes(option: Option, path: str, snapshot: Snapshot) -> Iterator[StatusProblem]:
    priority = option.given_priority
    if priority and priority not in snapshot.cluster.priority_classes:
        yield StatusProblem(
            reason=Ready.PRIORITY_CLASS_NOT_FOUND,
            path=f"{path}.{'' if option.priority_class else 'guests.'}priorityClass",
            message=f"no WorkloadPriorityClass {priority}",
        )
    runtime = option.adaptation.given_runtime_class
    if runtime and runtime not in snapshot.cluster.overheads:
        yield StatusProblem(
            reason=Ready.RUNTIME_CLASS_NOT_FOUND,
            path=f"{path}.adaptation.runtimeClassName",
            message=f"no RuntimeClass {runtime}",
        )


class PolicyReference(NamedTuple):
    """Where a policy's object is, by its name, which is a team's behind that of its namespace."""

    namespace: str
    name: str

    @property
    def kind(self) -> str:
        return TEAM_KIND if self.namespace else KIND

    @property
    def collection(self) -> str:
        """The path of the list that it is in."""
        within = f"namespaces/{self.namespace}/{TEAM_POLICIES}" if self.namespace else POLICIES
        return our_path(within)

    @property
    def events(self) -> str:
        """The path of Events on it."""
        return f"/api/v1/namespaces/{self.namespace or CLUSTER_SCOPED}/events"

    def __str__(self) -> str:
        return f"{self.kind} {'/'.join(filter(None, self))}"


def reference_of(policy: str) -> PolicyReference:
    namespace, _, name = policy.rpartition("/")
    return PolicyReference(namespace, name)


@dataclass(slots=True, kw_only=True)
class StatusReport:
    """What became of the statuses in one reconciliation."""

    ready: dict[str, bool] = field(default_factory=dict)
    """Object to whether it is ready."""
    written: list[tuple[str, Condition]] = field(default_factory=list)
    failed: list[tuple[str, str]] = field(default_factory=list)
    """Objects with the API server's error about the write."""
    changed: bool = False
    """An object changed meanwhile."""

    @property
    def again(self) -> bool:
        """Whether some status is still to be written."""
        return self.changed or bool(self.failed)

    def note(
        self,
        name: str,
        condition: Condition,
        write: Callable[[], bool],
        *refusals: type[ClusterError],
    ) -> None:
        """Do a write, and note what became of it: *refusals* are of this object alone."""
        try:
            is_written = write()
        except refusals as error:
            self.failed.append((name, str(error)))
            return
        if is_written:
            self.written.append((name, condition))
        self.changed |= not is_written


def reconcile_policies(
    transport: KubernetesApi,
    snapshot: Snapshot,
    judge: Callable[[FallbackPolicy, Snapshot], Condition],
    *,
    clock: Callable[[], str],
    is_leader: Callable[[], bool],
    of_teams: bool = False,
) -> StatusReport:
    """Write the condition of every policy whose status lacks it; with *of_teams* also of theirs.

    *judge* is ``condition_of``; *is_leader* is called before each write.

    Raises:
        ClusterError: the policies cannot be read.

    """

    def judge_now(policy: FallbackPolicy) -> Condition:
        return judge(policy, snapshot)

    judged = _judged(transport, POLICIES, read_policy, judge_now)
    if of_teams:
        judged = chain(judged, _judged(transport, TEAM_POLICIES, read_team_policy, judge_now))
    report = StatusReport()
    # One after the other: together they may be as large as their authors like.
    for source, condition in judged:
        name = full_name(key_of(source))
        report.ready[name] = condition.ready
        status = status_of(condition, snapshot, source.get("status") or {}, now=clock())
        if status is not None and is_leader():
            place = reference_of(name)
            path = f"{place.collection}/{place.name}"
            write = partial(published.write_status, transport, path, source, status)
            report.note(name, condition, write, Refused)
    return report


def _judged(
    transport: KubernetesApi,
    plural: str,
    read: Callable[[Mapping[str, Any]], FallbackPolicy],
    judge: Callable[[FallbackPolicy], Condition],
) -> Iterator[tuple[Mapping[str, Any], Condition]]:
    """Yield each object of policies as it is stored, and its condition."""
    # As in the watches, so that what is said of a policy is what holds for it.
    limited = LimitedReads(OF_TEAMS if plural == TEAM_POLICIES else None)
    with contextlib.suppress(NotServed):
        for page in list_pages(transport, our_path(plural)):
            # The items of a list carry neither kind nor apiVersion; reading needs neither.
            for source in page.get("items") or ():
                generation = source["metadata"].get("generation", 0)
                if limited.left_out(source) is not None:
                    yield source, _too_many(generation)
                    continue
                try:
                    policy = read(source)
                except PolicyError as error:
                    yield source, invalid(error, generation)
                    continue
                yield source, judge(policy)
            del page  # which may take megabytes, before the next one is read


def _too_many(generation: int) -> Condition:
    reason = Ready.TOO_MANY
    message = f"metadata.namespace: {reason.meaning}: {MOST_OF_TEAM}"
    return Condition(reason=reason, message=message, generation=generation)
