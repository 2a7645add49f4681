"""Keeps the status of policies, AcceleratorProfiles and Tariffs as they are judged, while we lead.

How policies are judged, and what is written of them, is ``policy_status``'s. Ready is False where
something in a profile or tariff cannot be used; what can be used is used all the same.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import inf, isnan
from typing import Any, Final

from webhook.api import published
from webhook.api.client import Client, lets_resources_change
from webhook.api.kubernetes_api import ClusterError, Forbidden, KubernetesApi, NotServed, Refused
from webhook.api.resources import ACCELERATOR_PROFILES, TARIFFS, our_path
from webhook.api.watch import WatchUpdate, list_pages
from webhook.controller.controller_metrics import ControllerMetrics
from webhook.controller.followed_watches import FollowedWatches
from webhook.controller.policy_status import (
    KEPT_SECONDS,
    Condition,
    KnownKinds,
    StatusReport,
    condition_of,
    invalid,
    reconcile_policies,
    reference_of,
)
from webhook.controller.world import World
from webhook.cost.cluster_prices import NUMBERS, claimed, devices_of, is_stated
from webhook.model.costs.accelerator_profile import (
    AcceleratorProfile,
    read_accelerator_profile,
)
from webhook.model.costs.prices import CompiledTariff, Curve, Prices
from webhook.model.costs.tariff import read_tariff
from webhook.model.faults import Attention
from webhook.model.policy.fallback_policy import FallbackPolicy, PolicyError
from webhook.model.reasons import ProfileReady, Ready, StatusProblem, TariffReady
from webhook.model.words import rfc3339
from webhook.settings import Settings
from webhook.state.snapshot import Snapshot

_LONGEST_MESSAGE: Final = 32768
_MOST_RATES: Final = 256
_Status = dict[str, Any]


def reconcile_costs(
    transport: KubernetesApi,
    snapshot: Snapshot,
    *,
    unix: float,
    time: str,
    is_leader: Callable[[], bool],
) -> StatusReport:
    """Write the status of every AcceleratorProfile and Tariff whose status is another.

    *unix* is now in seconds since 1970, *time* the same as RFC 3339; *is_leader* is called before
    each write.

    Raises:
        ClusterError: the objects cannot be read.

    """
    judges: tuple[tuple[str, Callable[[Mapping[str, Any]], Condition | None]], ...] = (
        (ACCELERATOR_PROFILES, partial(_judge_profile, snapshot=snapshot)),
        (TARIFFS, partial(_judge_tariff, snapshot=snapshot, unix=unix)),
    )
    report = StatusReport()
    for plural, judge in judges:
        for source in _objects(transport, plural):
            judged = judge(source)
            if judged is None:
                report.changed = True
                continue
            status = _status_of(judged, source.get("status") or {}, time)
            if status is not None and is_leader():
                name = f"{plural}/{source['metadata']['name']}"
                patch = _with_gone(status, source.get("status") or {})
                write = partial(published.write_status, transport, our_path(name), source, patch)
                report.note(name, judged, write, Forbidden, Refused)
    return report


def _objects(transport: KubernetesApi, plural: str) -> Iterator[Mapping[str, Any]]:
    with contextlib.suppress(NotServed):
        for page in list_pages(transport, our_path(plural)):
            yield from page.get("items") or ()


def _judge_profile(source: Mapping[str, Any], *, snapshot: Snapshot) -> Condition:
    try:
        profile = read_accelerator_profile(source)
    except PolicyError as error:
        return invalid(error, source["metadata"].get("generation", 0), ProfileReady.INVALID)
    return judge_profile(profile, snapshot)


def judge_profile(profile: AcceleratorProfile, snapshot: Snapshot) -> Condition:
    """Return what the controller says of a profile beside the others of *snapshot*."""
    profiles = snapshot.costs.accelerator_profiles
    devices = devices_of(snapshot.setup.flavors.values(), profiles, snapshot.setup.node_labels)
    own = sorted(name for name, device in devices.items() if device.name == profile.name)
    findings = list(_of_profile(profile, snapshot, own))
    reason, _ = findings[0] if findings else (ProfileReady.RESOLVED, "")
    message = "; ".join(text for _, text in findings) or reason.meaning
    return Condition(
        reason=reason,
        message=message[:_LONGEST_MESSAGE],
        generation=profile.generation,
        rest={"flavors": own},
    )


def _of_profile(
    profile: AcceleratorProfile, snapshot: Snapshot, own: Sequence[str]
) -> Iterator[tuple[ProfileReady, str]]:
    if profile.unknown_like:
        yield ProfileReady.UNKNOWN_MODEL, f"spec.like: no product {profile.unknown_like}"
    others = {
        flavor.name: claimed(flavor, snapshot.costs.accelerator_profiles)
        for flavor in snapshot.setup.flavors.values()
        if flavor.name not in own
    }
    for name, claims in others.items():
        if profile.name in claims:
            first = next(other for other in claims if other != profile.name)
            yield ProfileReady.AMBIGUOUS, f"ResourceFlavor {name} is that of {first}"
    missing = [name for name in profile.flavors if name not in snapshot.setup.flavors]
    for name in missing:
        index = profile.flavors.index(name)
        yield ProfileReady.NO_FLAVOR, f"spec.flavors[{index}]: no ResourceFlavor {name}"
    if not own and not missing and not any(profile.name in claims for claims in others.values()):
        yield ProfileReady.NO_FLAVOR, f"spec.nodeLabels: {ProfileReady.NO_FLAVOR.meaning}"


def _judge_tariff(
    source: Mapping[str, Any], *, snapshot: Snapshot, unix: float
) -> Condition | None:
    try:
        tariff = read_tariff(source)
    except PolicyError as error:
        return invalid(error, source["metadata"].get("generation", 0), TariffReady.INVALID)
    compiled = next((known for known in snapshot.costs.tariffs if known.tariff == tariff), None)
    # One that has just been written is judged once it has been compiled.
    return None if compiled is None else judge_tariff(compiled, snapshot, unix)


def judge_tariff(compiled: CompiledTariff, snapshot: Snapshot, unix: float) -> Condition:
    """Return what the controller says of a tariff at *unix*, in seconds since 1970."""
    problems = [*compiled.problems, *_of_tariff(compiled, snapshot)]
    reason = problems[0].reason if problems else TariffReady.RESOLVED
    until = {} if compiled.series_until is None else {"seriesUntil": rfc3339(compiled.series_until)}
    sentences = list(map(str, problems)) or [reason.meaning]
    if compiled.clipped:
        sentences.append(f"{compiled.clipped} points of its series are out of proportion, clipped")
    currency = {"currency": snapshot.costs.currency} if snapshot.costs.currency else {}
    return Condition(
        reason=reason,
        message="; ".join(sentences)[:_LONGEST_MESSAGE],
        generation=compiled.tariff.generation,
        rest={"now": {**_prices_now(compiled.prices, unix), **currency}, **until},
    )


def _of_tariff(compiled: CompiledTariff, snapshot: Snapshot) -> Iterator[StatusProblem]:
    tariff = compiled.tariff
    for index, cluster in enumerate(tariff.spec.clusters):
        if cluster and cluster not in snapshot.setup.worker_clusters:
            message = f"no MultiKueueCluster {cluster}"
            path = f"spec.clusters[{index}]"
            yield StatusProblem(reason=TariffReady.UNKNOWN_CLUSTER, path=path, message=message)
    # The flavors of worker clusters are not known where these are not watched.
    if "" in tariff.spec.clusters:
        for index, entry in enumerate(tariff.spec.rates):
            yield from _flavors(f"spec.rates[{index}].flavors", entry.flavors, snapshot)
    for other in snapshot.costs.tariffs:
        clusters = set(other.tariff.spec.clusters) & set(tariff.spec.clusters)
        if other.tariff.name < tariff.name and clusters:
            yield from _said_before(compiled, other)


def _flavors(path: str, names: Sequence[str], snapshot: Snapshot) -> Iterator[StatusProblem]:
    for index, name in enumerate(names):
        if name not in snapshot.setup.flavors:
            yield StatusProblem(
                reason=TariffReady.NO_FLAVOR,
                path=f"{path}[{index}]",
                message=f"no ResourceFlavor {name}",
            )


def _said_before(compiled: CompiledTariff, other: CompiledTariff) -> Iterator[StatusProblem]:
    """Find what a tariff that comes first by name says of the same cluster."""
    name, prices, theirs = other.tariff.name, compiled.prices, other.prices
    if prices.electricity is not None and theirs.electricity is not None:
        yield _ambiguous("spec.electricity", name)
    if prices.carbon is not None and theirs.carbon is not None:
        yield _ambiguous("spec.carbon", name)
    for number, path in NUMBERS.items():
        if is_stated(prices, number) and is_stated(theirs, number):
            yield _ambiguous(path, name)
    for index, entry in enumerate(compiled.tariff.spec.rates):
        for flavor in entry.flavors:
            if any((flavor, resource) in theirs.rates for resource in entry.resources):
                yield _ambiguous(f"spec.rates[{index}].flavors", name, flavor)


def _ambiguous(path: str, other: str, flavor: str = "") -> StatusProblem:
    of_what = f" of ResourceFlavor {flavor}" if flavor else ""
    message = f"Tariff {other} says it{of_what} for the same cluster, and counts"
    return StatusProblem(reason=TariffReady.AMBIGUOUS, path=path, message=message)


def _prices_now(prices: Prices, unix: float) -> Mapping[str, Any]:
    rates = {
        f"{flavor}/{resource}": _value(rate, unix)
        for (flavor, resource), rate in sorted(prices.rates.items())[:_MOST_RATES]
    }
    values = {
        "electricity": _value(prices.electricity, unix),
        "carbon": _value(prices.carbon, unix),
    }
    known = {name: value for name, value in values.items() if value}
    return {"rates": {name: value for name, value in rates.items() if value}, **known}


def _value(rate: Curve | None, unix: float) -> str:
    """Return what a curve is at a moment; empty: not known."""
    value = rate.at(unix) if rate is not None else None
    return "" if value is None or isnan(value) else f"{value:.10g}"


def _status_of(judged: Condition, before: Mapping[str, Any], time: str) -> _Status | None:
    """Return the status to write; None: *before*, the current one, says the same."""
    conditions = [old for old in before.get("conditions") or () if isinstance(old, dict)]
    ready = judged.dated(conditions, time)
    # What is no longer so is taken away by a merge patch only where it is null.
    gone = {name: None for name in before if name != "conditions" and name not in judged.rest}
    same = all(before.get(name) == value for name, value in judged.rest.items())
    if same and not gone and ready in conditions:
        return None
    return {**gone, **judged.rest, "conditions": [ready]}


def _with_gone(status: _Status, before: Mapping[str, Any]) -> _Status:
    """Return the status as a merge patch that also takes away rates that are not there any more."""
    old, new = (before.get("now") or {}), (status.get("now") or {})
    if not old or not new:
        return status
    rates = {**dict.fromkeys(old.get("rates") or {}), **new["rates"]}
    return {**status, "now": {**dict.fromkeys(old), **new, "rates": rates}}


_TOLD_SECONDS: Final = 60.0
"""Between two writes of how many Jobs were not reviewed."""
_MOST_MISSED: Final = 10_000
AGAIN_SECONDS: Final = 1.0
"""Until the next try after a failed one."""


class PolicyKeeper:
    def __init__(
        self,
        client: Client,
        settings: Settings,
        *,
        is_leader: Callable[[], bool],
        metrics: ControllerMetrics,
        watches: FollowedWatches,
    ) -> None:
        """Ask *is_leader* right before each write."""
        self._client = client
        self._settings = settings
        self._is_leader = is_leader
        self._metrics = metrics
        self._watches = watches
        self.is_due = False
        """Whether a condition may have changed without a change of the snapshot."""
        self._reconciled = -1, frozenset[str]()
        """Generation of the snapshot, and the kinds not served, that were last reconciled with."""
        self._missed: deque[tuple[float, str]] = deque(maxlen=_MOST_MISSED)
        """When a Job was found that was not reviewed, in seconds since 1970, and its policy."""
        self._told: Mapping[str, str] = {}
        """What was last written of the Jobs of each policy, and when."""
        self._told_at = 0.0

    def note_unreviewed(self, policy: str) -> None:
        """Count a Job that a policy matches and that was created without a review."""
        self._missed.append((time.time(), policy))

    def take(self, message: WatchUpdate) -> tuple[str, ...]:
        """Note that policies have changed; return the lines to log, of which there are none.

        A policy that cannot be read changes no snapshot, but its status must say so.
        """
        self.is_due |= message.entries is not None or message.event is not None
        return ()

    def begin(self) -> None:
        """Judge all anew, as we lead from now on."""
        self.is_due = True

    def wait(self) -> float:
        """Return how soon to try again, in seconds."""
        return AGAIN_SECONDS if self.is_due else inf

    def _may_change(self, snapshot: Snapshot) -> bool:
        """Tell whether a condition may have changed."""
        # Of what is switched on it is known soon whether it is served, or why that is not known.
        if not self._watches.knows_served:
            return False
        if self.is_due or (snapshot.generation, self._watches.unserved) != self._reconciled:
            return True
        # While the webhook is down there may be many each second.
        return self._missing() != self._told and time.time() - self._told_at >= _TOLD_SECONDS

    def _missing(self) -> Mapping[str, str]:
        """Say of each policy how many of its Jobs were not reviewed within the last hour."""
        while self._missed and self._missed[0][0] <= time.time() - KEPT_SECONDS:
            self._missed.popleft()
        counts = Counter(name for _, name in self._missed)
        last = {name: at for at, name in self._missed}
        return {
            name: f"{count} {'Job' if count == 1 else 'Jobs'} created without a review "
            f"within an hour, the last before {rfc3339(last[name])}"
            for name, count in counts.items()
        }

    def step(self, world: World) -> list[str]:
        """Judge all if a condition may have changed, and write those that have.

        Return the lines to log.
        """
        snapshot = world.snapshot
        if not self._may_change(snapshot):
            return []
        unserved = self._watches.unserved
        # Whatever goes wrong before the end is tried again.
        self.is_due = True
        missing = self._missing()
        if missing != self._told:
            self._told, self._told_at = missing, time.time()
        try:
            report = reconcile_policies(
                self._client,
                snapshot,
                partial(self._judge, kinds=self._known_kinds(unserved)),
                clock=_now,
                is_leader=self._is_leader,
                of_teams=self._settings.team_policies,
            )
            costs = reconcile_costs(
                self._client, snapshot, unix=time.time(), time=_now(), is_leader=self._is_leader
            )
        except ClusterError as error:
            return [Attention(f"policies: {error}")]
        self.is_due = report.again or costs.again
        self._reconciled = snapshot.generation, unserved
        self._metrics.expect(snapshot)
        self._metrics.show(report.ready)
        self._metrics.writes.labels("written").inc(len(report.written))
        self._metrics.writes.labels("failed").inc(len(report.failed))
        return [*_lines(costs, str), *_lines(report, reference_of)]

    def _judge(self, policy: FallbackPolicy, snapshot: Snapshot, kinds: KnownKinds) -> Condition:
        ready = condition_of(policy, snapshot, own_namespace=self._settings.namespace, kinds=kinds)
        return replace(ready, unreviewed=self._told.get(policy.name, ""))

    def _known_kinds(self, unserved: frozenset[str]) -> KnownKinds:
        return KnownKinds(
            switched_on=frozenset(self._settings.kinds),
            unserved=unserved,
            changes_resources=self._changes_resources(),
            autoscales=self._settings.autoscale,
        )

    def _changes_resources(self) -> bool:
        """Return whether Kubernetes lets a suspended Job's resources change.

        True if it is unknown.
        """
        try:
            return lets_resources_change(self._client.get("/version"))
        except ClusterError:
            return True


def _lines(report: StatusReport, named: Callable[[str], object]) -> Iterator[str]:
    crowded: set[str] = set()
    for name, condition in report.written:
        if condition.reason is Ready.TOO_MANY:
            # A namespace may have hundreds of them, and one line says it.
            namespace = reference_of(name).namespace
            if namespace in crowded:
                continue
            crowded.add(namespace)
        state = "ready" if condition.ready else f"not ready: {condition.message}"
        missed = f"; {condition.unreviewed}" if condition.unreviewed else ""
        line = f"{named(name)}: {state}{missed}"
        yield line if condition.ready and not missed else Attention(line)
    for name, message in report.failed:
        yield Attention(f"{named(name)}: status not written: {message}")


def _now() -> str:
    return rfc3339(time.time())
