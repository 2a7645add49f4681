"""Says once of each class that it is refused an option because what it runs keeps failing there.

Who does not lead counts the same, and says nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any, Final

from webhook.api.errors import ClusterError, Refused
from webhook.api.kubernetes_api import KubernetesApi
from webhook.controller.reconcile import PATH
from webhook.learn.failing import Failing, Refusal
from webhook.learn.run_records import FAILURES_THAT_TELL, Record
from webhook.model.policy.fallback_policy import GROUP, KIND, VERSION, FallbackPolicy
from webhook.model.reasons import EventReason

EVENTS: Final = "/api/v1/namespaces/default/events"
"""Where Events on objects without a namespace belong."""
MOST_AT_ONCE: Final = 20
"""Events of one look; those beyond are only logged and counted."""
_CONFLICT: Final = 409


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What one look came to."""

    counts: Mapping[tuple[str, str], int]
    """(policy, option) to the classes that it is refused to."""
    lines: tuple[str, ...] = ()
    """For the log."""


class Teller:
    def __init__(self, transport: KubernetesApi, *, is_leader: Callable[[], bool]) -> None:
        self._transport = transport
        self._is_leader = is_leader
        self._failing = Failing()
        self._told: set[Refusal] = set()
        """By this process; those that another one told are told again when this one leads."""

    def look(
        self,
        records: Mapping[str, Record],
        changed: Iterable[str],
        policies: tuple[FallbackPolicy, ...],
        unix: float,
    ) -> Told:
        """Tell of the refusals that are new at *unix*; *changed* as ``Failing.look`` has it."""
        found = self._failing.look(records, changed, policies, unix)
        self._told &= found
        lines = []
        for number, refusal in enumerate(sorted(found - self._told)):
            if not self._is_leader():
                break
            self._told.add(refusal)
            end = self._failing.ends[refusal]
            text = message(refusal, records[refusal[0]], end)
            lines.append(f"FallbackPolicy {refusal[1]}: {text}")
            if number < MOST_AT_ONCE:
                lines += self._write(refusal, text, end, unix)
        return Told(counts=Counter(refusal[1:] for refusal in found), lines=tuple(lines))

    def _write(self, refusal: Refusal, text: str, end: float, unix: float) -> list[str]:
        policy = refusal[1]
        try:
            items = self._transport.get(PATH, {"fieldSelector": f"metadata.name={policy}"})["items"]
            if items:
                uid = items[0]["metadata"]["uid"]
                self._transport.post(EVENTS, event(refusal, text, uid=uid, end=end, unix=unix))
        except ClusterError as error:
            if not (isinstance(error, Refused) and error.status == _CONFLICT):
                return [f"FallbackPolicy {policy}: no Event written: {error}"]
            # The one of the same name was written before a restart, or by another controller.
        return []


def message(refusal: Refusal, record: Record, end: float) -> str:
    key, _, option = refusal
    home, _, name = key.rpartition("/") if "=" not in key else key.partition("/")
    what = f"{name} ({record.name})" if record.name else name
    return (
        f"option {option} is refused to Jobs of class {what} until {_time(end)}: they failed there"
        f" {FAILURES_THAT_TELL} times and never succeeded, and they do elsewhere"
        f"{_owners(home)}"
    )


def _owners(home: str) -> str:
    if not home:
        return ""
    return " (of namespaces that share)" if home.startswith("*") else f" (of namespace {home})"


def event(refusal: Refusal, text: str, *, uid: str, end: float, unix: float) -> Mapping[str, Any]:
    """Write the Event; for the same failures it has the same name."""
    key, policy, option = refusal
    told = f"{uid} {key} {option} {end:.0f}".encode()
    at = _time(unix)
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": f"{policy[:200]}.{blake2b(told, digest_size=8).hexdigest()}",
            "namespace": "default",
        },
        "involvedObject": {
            "apiVersion": f"{GROUP}/{VERSION}",
            "kind": KIND,
            "name": policy,
            "uid": uid,
        },
        "type": "Warning",
        "reason": str(EventReason.KEEPS_FAILING),
        "message": text,
        "count": 1,
        "firstTimestamp": at,
        "lastTimestamp": at,
        "source": {"component": "kueue-fallback"},
    }


def _time(unix: float) -> str:
    return datetime.fromtimestamp(unix, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
