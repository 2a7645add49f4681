"""Keeps a HorizontalPodAutoscaler for each service whose policy wants one, while we lead.

What it is to be is worked out again when the service, its policy or the queues change. One of ours
whose service is no more decided by such a policy is removed, and one of somebody else's on the same
service is respected: two would fight, so that there is none of ours. Where one cannot be made, or
asks for more than quota holds, an Event on the service says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

from webhook.api import published, resources
from webhook.api.kubernetes_api import ClusterError, Forbidden, KubernetesApi, NotServed, Refused
from webhook.api.resources import Key, ReadObject, Resource, full_name, read_by
from webhook.api.watch import WatchUpdate
from webhook.controller.followed_watches import DecidedService
from webhook.controller.job_events import event, involved_job, post_event
from webhook.controller.unreviewed import Fetch
from webhook.controller.world import World
from webhook.cost.congestion import is_off
from webhook.decide.applicant import Moment
from webhook.jobs import JobKind, referred
from webhook.model import fields
from webhook.model.faults import Attention
from webhook.model.fields import FieldError
from webhook.model.job import reference_of
from webhook.model.policy.fallback_policy import FallbackPolicy, Mode
from webhook.model.reasons import EventReason
from webhook.model.signatures import SigningKeys
from webhook.model.snapshot_parts import KueueSetup
from webhook.reconsider import pending_jobs
from webhook.reconsider.autoscaling import (
    AUTOSCALED_BY,
    MANAGED_BY,
    WantedAutoscaler,
    wanted_autoscaler,
)
from webhook.state.counted_arrivals import idle
from webhook.state.occupancy import Occupancy
from webhook.state.snapshot import Snapshot

STEP_SECONDS: Final = 10.0
ANEW_SECONDS: Final = 60.0
"""After so long a service is read again even if nothing tells of a change."""
MOST_READ: Final = 50
"""Services in one step, each by a call; of more some wait for the next."""
_PATH: Final = "/apis/autoscaling/v2"
_HPAS: Final = resources.AUTOSCALERS
_OF_CONDITION: Final = ("type", "status", "reason")


class KnownAutoscaler(NamedTuple):
    """A HorizontalPodAutoscaler of the cluster."""

    name: str
    target: str
    """The reference of what it scales."""
    policy: str
    """The policy that wants it; empty: it is somebody else's, and the rest is not known."""
    uid: str = ""
    version: str = ""
    owner: str = ""
    """The UID of its service."""
    spec: Mapping[str, Any] = fields.EMPTY
    is_short: bool = False
    """Whether it would have more replicas than its ``maxReplicas``."""


def read_autoscaler(source: Mapping[str, Any]) -> KnownAutoscaler:
    """Read a HorizontalPodAutoscaler.

    Raises:
        FieldError: it has a field of a wrong type.

    """
    metadata, spec = (fields.mapping(source, key, "") for key in ("metadata", "spec"))
    target = fields.mapping(spec, "scaleTargetRef", "spec")
    kind, name = (fields.text(target, key, "spec.scaleTargetRef") for key in ("kind", "name"))
    found = KnownAutoscaler(
        name=fields.text(metadata, "name", "metadata"),
        target=reference_of(kind, name),
        policy=fields.texts(metadata, "annotations", "metadata").get(AUTOSCALED_BY, ""),
    )
    if not found.policy:
        return found
    owners = fields.mappings(metadata, "ownerReferences", "metadata")
    return found._replace(
        uid=fields.text(metadata, "uid", "metadata"),
        version=fields.text(metadata, "resourceVersion", "metadata"),
        owner=next((str(each.get("uid", "")) for each in owners), ""),
        spec=spec,
        is_short=_is_short(spec, fields.mapping(source, "status", "")),
    )


def _is_short(spec: Mapping[str, Any], status: Mapping[str, Any]) -> bool:
    conditions = fields.mappings(status, "conditions", "status")
    limited = ("ScalingLimited", "True", "TooManyReplicas")
    is_limited = limited in [tuple(map(each.get, _OF_CONDITION)) for each in conditions]
    desired = fields.integer(status, "desiredReplicas", "status") or 0
    # The condition may still be of bounds that have been changed.
    return is_limited and desired >= (fields.integer(spec, "maxReplicas", "spec") or 0)


AUTOSCALERS: Final = Resource(
    kind=_HPAS,
    path=f"{_PATH}/{_HPAS}",
    required=False,
    read=partial(read_by, read_autoscaler),
)


class _WorkedOut(NamedTuple):
    """What was worked out for a service, and from what."""

    service: DecidedService
    policy: FallbackPolicy
    setup: KueueSetup
    at: float
    wanted: WantedAutoscaler | str


class AutoscalerKeeper:
    def __init__(
        self,
        transport: KubernetesApi,
        fetch: Fetch,
        *,
        max_state_age: float,
        is_leader: Callable[[], bool],
        keys: Callable[[], SigningKeys | None],
        kinds: Mapping[str, JobKind],
    ) -> None:
        """Keep those of services of *kinds*, by the names of the watches of their metadata.

        *is_leader* is called before each write; *keys* are as for ``read_decided_job``.
        """
        self._transport, self._fetch = transport, fetch
        self._max_state_age, self._is_leader, self._keys = max_state_age, is_leader, keys
        self._kinds = kinds
        self._services: dict[str, dict[Key, DecidedService]] = {}
        """For each watch that was listed, namespace and reference of each decided service."""
        self._known: dict[Key, KnownAutoscaler] | None = None
        """None: they are not listed."""
        self._found: dict[Key, _WorkedOut] = {}
        self._told: dict[Key, str] = {}
        self._said = ""
        self._has_changed, self._next = True, 0.0

    def take_services(self, message: WatchUpdate) -> tuple[str, ...]:
        """Apply a watch update of services; return the lines to log, of which there are none."""
        if message.entries is not None:
            self._services[message.kind] = dict(filter(None, map(_decided, message.entries)))
            self._has_changed = True
        elif message.event is not None and message.kind in self._services:
            event_type, entry = message.event
            known, found = self._services[message.kind], _decided(entry)
            before = known.pop(entry.key, None)
            if event_type != "DELETED" and found is not None:
                known[entry.key] = found[1]
            self._has_changed |= known.get(entry.key) != before
        return ()

    def take(self, message: WatchUpdate) -> tuple[str, ...]:
        """Apply a watch update of autoscalers; return the lines to log."""
        if message.error:
            if message.unreadable:
                self._known = None
            return self._say(f"autoscalers: {message.error}")
        if message.entries is not None:
            self._known = {e.key: e.value for e in message.entries if e.value is not None}
        elif message.event is not None and self._known is not None:
            event_type, entry = message.event
            self._known.pop(entry.key, None)
            if event_type != "DELETED" and entry.value is not None:
                self._known[entry.key] = entry.value
        self._has_changed = True
        return ()

    def begin(self) -> None:
        """Work all out anew, as we lead from now on."""
        self._found.clear()
        self._told.clear()
        self._has_changed = True

    def step(self, world: World) -> list[str]:
        """Make, change and remove what is due; return the lines to log."""
        if self._known is None or not (self._has_changed or world.now >= self._next):
            return []
        snapshot = world.snapshot
        is_old = world.now - snapshot.as_of > self._max_state_age
        if is_old or is_off(snapshot.fallback.off) or not self._is_leader():
            return []
        self._has_changed, self._next = False, world.now + STEP_SECONDS
        lines: list[str] = []
        try:
            lines += self._remove(self._known, snapshot)
            lines += self._keep(self._known, world)
        except ClusterError as error:
            lines += self._say(f"autoscalers: {error}")
        else:
            self._said = ""
        return lines

    def _say(self, problem: str) -> tuple[str, ...]:
        said, self._said = self._said, problem
        return () if said == problem else (Attention(problem),)

    def _remove(self, known: Mapping[Key, KnownAutoscaler], snapshot: Snapshot) -> Iterator[str]:
        """Remove what is ours and wanted no more."""
        wanting, others = _wanting(snapshot), _others(known)
        for key, autoscaler in tuple(known.items()):
            place = key[0], autoscaler.target
            if not autoscaler.policy or not self._is_listed(autoscaler.target):
                continue
            service = self._service(place)
            if service is None or service.policy not in wanting:
                why = "no policy wants it any more"
            elif place in others:
                why = f"{others[place]} scales the same service"
            else:
                continue
            if not self._is_leader():
                return
            self._delete(key, autoscaler)
            yield f"HorizontalPodAutoscaler {full_name(key)}: removed: {why}"

    def _keep(self, known: Mapping[Key, KnownAutoscaler], world: World) -> Iterator[str]:
        """Make and change what is wanted; say where it is not what the policy wants."""
        wanting, others = _wanting(world.snapshot), _others(known)
        services = {
            key: service
            for listed in self._services.values()
            for key, service in listed.items()
            if service.policy in wanting
        }
        for kept in (self._found, self._told):
            for key in kept.keys() - services.keys():
                del kept[key]
        self._read(services, wanting, world)
        for key, found in tuple(self._found.items()):
            wanted = _wanted(key, found, known, others)
            reason, problem = EventReason.NOT_AUTOSCALED, wanted
            if isinstance(wanted, WantedAutoscaler):
                name = key[0], wanted.name
                yield from self._write(name, known.get(name), wanted, found.service)
                reason, problem = EventReason.AT_QUOTA, _shortage(wanted, known.get(name))
            yield from self._tell(key, found.service, reason, str(problem), unix=world.unix)

    def _read(
        self,
        services: Mapping[Key, DecidedService],
        wanting: Mapping[str, FallbackPolicy],
        world: World,
    ) -> None:
        """Work out what is wanted for each service of which that may have changed."""
        due = [
            key
            for key, service in services.items()
            if not self._is_fresh(key, service, wanting[service.policy], world)
        ]
        # Those that are left over are due at once.
        self._has_changed = len(due) > MOST_READ
        if not due:
            return
        occupancy = idle(world.snapshot)
        for key in due[:MOST_READ]:
            service, policy = services[key], wanting[services[key].policy]
            wanted = self._work_out(key, policy, occupancy, world)
            if wanted is not None:
                setup = world.snapshot.setup
                self._found[key] = _WorkedOut(service, policy, setup, world.now, wanted)

    def _is_fresh(
        self, key: Key, service: DecidedService, policy: FallbackPolicy, world: World
    ) -> bool:
        found = self._found.get(key)
        return (
            found is not None
            and found.service == service
            and found.policy == policy
            and found.setup is world.snapshot.setup
            and world.now < found.at + ANEW_SECONDS
        )

    def _work_out(
        self, key: Key, policy: FallbackPolicy, occupancy: Occupancy, world: World
    ) -> WantedAutoscaler | str | None:
        """Return what is wanted for a service, or why nothing is; None: it has gone."""
        namespace, reference = key
        source = self._fetch(namespace, reference)
        if source is None:
            return None
        moment = Moment(now=world.now, unix=world.unix, time="", uid="")
        kind, _ = referred(reference)
        try:
            service = pending_jobs.read_unfinished(source, kind, self._keys())
            if service is None or service.policy != policy.name:
                return None
            return wanted_autoscaler(service, policy, occupancy, moment)
        except FieldError as error:
            return str(error)

    def _write(
        self,
        key: Key,
        known: KnownAutoscaler | None,
        wanted: WantedAutoscaler,
        service: DecidedService,
    ) -> Iterator[str]:
        if known is not None and _is_as_wanted(known, wanted, service):
            return
        if not self._is_leader():
            return
        path = f"{_PATH}/namespaces/{key[0]}/{_HPAS}"
        version = "" if known is None else known.version
        written = published.write(
            self._transport, path, _object(key, wanted, service), version=version
        )
        if written is None:
            # It has changed meanwhile, and its watch will tell.
            return
        if self._known is not None:
            self._known[key] = read_autoscaler(written)
        least, most = (wanted.spec[name] for name in ("minReplicas", "maxReplicas"))
        done = "made" if known is None else "changed"
        yield f"HorizontalPodAutoscaler {full_name(key)}: {done}: {least} to {most} replicas"

    def _delete(self, key: Key, autoscaler: KnownAutoscaler) -> None:
        """Remove one as it was read; one that has changed is looked at again."""
        path = f"{_PATH}/namespaces/{key[0]}/{_HPAS}/{key[1]}"
        only = {"uid": autoscaler.uid, "resourceVersion": autoscaler.version}
        try:
            self._transport.delete(path, {"preconditions": only})
        except NotServed:
            pass
        except Refused as error:
            if not error.is_conflict:
                raise
            return
        if self._known is not None:
            self._known.pop(key, None)

    def _tell(
        self,
        key: Key,
        service: DecidedService,
        reason: EventReason,
        problem: str,
        *,
        unix: float,
    ) -> Iterator[str]:
        """Say once, in an Event on the service and in the log, what is not as its policy wants."""
        if self._told.get(key, "") == problem:
            return
        self._told[key] = problem
        if not problem or not self._is_leader():
            return
        told = event(
            involved_job(key, service.uid),
            reason,
            problem,
            cause=f"{service.uid} {problem}",
            unix=unix,
            warns=True,
        )
        yield Attention(f"Job {full_name(key)}: {reason}: {problem}")
        try:
            post_event(self._transport, told)
        except (Forbidden, NotServed, Refused) as error:
            yield f"Job {full_name(key)}: no Event written: {error}"

    def _service(self, key: Key) -> DecidedService | None:
        return next((found[key] for found in self._services.values() if key in found), None)

    def _is_listed(self, reference: str) -> bool:
        """Tell whether the services of the kind of one are known, or are none of ours to know."""
        lower = reference.rpartition("/")[0]
        return all(
            plural in self._services
            for plural, kind in self._kinds.items()
            if kind.kind.lower() == lower
        )


def _decided(entry: ReadObject) -> tuple[Key, DecidedService] | None:
    service = getattr(entry.value, "service", None)
    return None if service is None else (entry.key, service)


def _wanting(snapshot: Snapshot) -> Mapping[str, FallbackPolicy]:
    """Return the policies that want autoscalers, by their names.

    One that only observes while its Kueue is untested still does, as nothing is decided meanwhile.
    """
    return {
        policy.name: policy
        for policy in snapshot.fallback.policies
        if policy.spec.autoscale is not None
        and (policy.spec.mode is Mode.ENFORCE or policy.restrained)
    }


def _others(known: Mapping[Key, KnownAutoscaler]) -> Mapping[Key, str]:
    """Return the autoscalers that are not ours, by namespace and reference of what they scale."""
    return {
        (namespace, autoscaler.target): f"HorizontalPodAutoscaler {autoscaler.name}"
        for (namespace, _), autoscaler in known.items()
        if not autoscaler.policy
    }


def _wanted(
    key: Key, found: _WorkedOut, known: Mapping[Key, KnownAutoscaler], others: Mapping[Key, str]
) -> WantedAutoscaler | str:
    """Return what is to be written, or why nothing is."""
    if key in others:
        return f"{others[key]} scales it already, and two would fight"
    if isinstance(found.wanted, WantedAutoscaler):
        there = known.get((key[0], found.wanted.name))
        if there is not None and not there.policy:
            return f"HorizontalPodAutoscaler {there.name} scales something else"
    return found.wanted


def _shortage(wanted: WantedAutoscaler, known: KnownAutoscaler | None) -> str:
    """Say that quota holds no more replicas; empty: no more are asked for, or it may have more."""
    if known is None or not (known.is_short and wanted.full):
        return ""
    most = wanted.spec["maxReplicas"]
    return f"it would have more than {most} replicas, and the quota of {wanted.full} holds no more"


def _is_as_wanted(
    known: KnownAutoscaler, wanted: WantedAutoscaler, service: DecidedService
) -> bool:
    is_same = (known.policy, known.owner) == (wanted.policy, service.uid)
    return is_same and _contains(known.spec, wanted.spec)


def _contains(given: Any, wanted: Any) -> bool:
    """Tell whether an object has what is wanted, beside what the API server has filled in."""
    if isinstance(wanted, Mapping):
        return isinstance(given, Mapping) and all(
            _contains(given.get(key), value) for key, value in wanted.items()
        )
    if isinstance(wanted, list):
        return (
            isinstance(given, list)
            and len(given) == len(wanted)
            and all(map(_contains, given, wanted))
        )
    return bool(given == wanted)


def _object(key: Key, wanted: WantedAutoscaler, service: DecidedService) -> Mapping[str, Any]:
    target = wanted.spec["scaleTargetRef"]
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {
            "name": key[1],
            "namespace": key[0],
            "labels": {MANAGED_BY: "kueue-fallback"},
            "annotations": {AUTOSCALED_BY: wanted.policy},
            # It goes with its service.
            "ownerReferences": [{**target, "uid": service.uid, "controller": True}],
        },
        "spec": wanted.spec,
    }
