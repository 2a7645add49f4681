"""An observer's feed and forecasts before a server: objects in, a team's decisions out."""

from __future__ import annotations

import base64
import json
import pickle
from collections.abc import Mapping
from typing import Any

from jsonpointer import JsonPointer

from tests.fuzz.objects import NOON, good, probes
from tests.reviews import review
from tests.servers import Server
from webhook.api import resources as kinds
from webhook.api.watch import WatchUpdate
from webhook.state.feed import Feed
from webhook.state.forecaster import Forecaster, ForecastResult
from webhook.state.live_occupancy import OccupancyOfSnapshots
from webhook.state.readers import read_by_kind
from webhook.state.signing_keys import KeyRing
from webhook.state.snapshot import Restraint
from webhook.state.watched import signing_keys, watched

DECISION = "kueue-fallback.dev/decision"
REASON = "kueue-fallback.dev/reason"
RESOURCES = (
    signing_keys("kueue-fallback"),
    *watched(namespace="kueue-fallback", kueue_namespace="kueue-system"),
)
_OF_THE_MOMENT = ("id", "time", "stateAge", "submitted", "signature")


class Observed:
    """All that the observer's own thread does, and a server that takes it over."""

    def __init__(self) -> None:
        self.now = 100.0
        self._ring = KeyRing()
        reading = self._ring.reading(read_by_kind)
        self._read = lambda kind, source: (
            reading(kind, source) if kind == kinds.WORKLOADS else read_by_kind(kind, source)
        )
        with_occupancy, restraint = (
            OccupancyOfSnapshots(),
            Restraint(stated_version="", enforces=False),
        )
        self.feed = Feed(RESOURCES, self.now, complete=lambda seen: restraint(with_occupancy(seen)))
        self._told: list[ForecastResult] = []
        self._forecaster = Forecaster(
            self._told.append, clock=lambda: self.now, cpu=lambda: 0.0, sleep=lambda _: None
        )
        self.server = Server()
        self.lines: list[str] = []
        held = good()
        for resource in RESOURCES:
            self.show(resource.kind, *held.get(resource.kind, ()))
        self.publish()

    def show(self, kind: str, *objects: Mapping[str, Any]) -> None:
        """List all objects of a kind."""
        entries = tuple(self._read(kind, each) for each in objects)
        self._take(WatchUpdate(kind=kind, at=self.now, entries=entries))

    def change(self, kind: str, event_type: str, source: Mapping[str, Any]) -> None:
        self._take(
            WatchUpdate(kind=kind, at=self.now, event=(event_type, self._read(kind, source)))
        )

    def pass_time(self, seconds: float) -> None:
        """Let time go by in which every watch gives a sign of life."""
        self.now += seconds
        self.server.now = self.now
        for resource in RESOURCES:
            self._take(WatchUpdate(kind=resource.kind, at=self.now))

    def publish(self) -> None:
        """Write an update, with forecasts of what was known so far, and take it over."""
        self._update()
        while self._forecaster.waiting:
            self._forecaster.step()
            for each in self._told:
                self.lines += self._forecaster.take(each, self.feed)
            self._told.clear()
            self._update()

    def decide(self) -> Mapping[str, Any]:
        """Ask what would become of each of the team's Jobs; nothing is left of that."""
        found = {}
        for name, job in probes().items():
            sent = review(job, dry_run=True, uid=f"5eed-{name}")
            found[name] = decision_in(self.answer(sent))
        return found

    def answer(self, sent: Mapping[str, Any]) -> Mapping[str, Any]:
        """Post a review; whatever is in it, its Job is admitted."""
        answer = self.server.post(json.dumps(sent))
        assert answer.status_code == 200
        response = answer.get_json()["response"]
        assert (response["uid"], response["allowed"]) == (sent["request"]["uid"], True)
        if self.server.count("kueue_fallback_failures_total"):
            assert [line for line in self.server.logged() if line["level"] == "error"] == []
        found: Mapping[str, Any] = response
        return found

    def _take(self, message: WatchUpdate) -> None:
        self._ring.take(message)
        self.lines += self.feed.take(message)

    def _update(self) -> None:
        sent = pickle.dumps(self.feed.update(self.now, NOON + self.now))
        self._forecaster.offer(self.feed, NOON + self.now)
        self.server.handler.update(pickle.loads(sent))


def decision_in(response: Mapping[str, Any]) -> Any:
    """Read the decision out of an answer's patch, without what differs each time."""
    written: dict[str, Any] = {}
    for operation in json.loads(base64.b64decode(response.get("patch", "W10="))):
        written |= _annotations(operation)
    if DECISION not in written:
        return None
    decision = {**json.loads(written[DECISION]), "reason": written[REASON]}
    return {key: value for key, value in decision.items() if key not in _OF_THE_MOMENT}


def _annotations(operation: Mapping[str, Any]) -> Mapping[str, Any]:
    path, value = operation["path"], operation.get("value")
    if path == "/metadata/annotations" and isinstance(value, dict):
        return value
    *parent, key = JsonPointer(path).parts
    return {key: value} if parent == ["metadata", "annotations"] else {}
