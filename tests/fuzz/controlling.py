"""A controller that leads, over an API server of one dictionary; its watches are a test's."""

from __future__ import annotations

import copy
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from tests.controller.fakes import AtOnce, Elector, Followed
from tests.controller.objects import Objects
from tests.fuzz.objects import KEYS, NOON, OVER, TEAM, good, workload
from webhook.api import resources as kinds
from webhook.api.kubernetes_api import Refused
from webhook.api.watch import WatchUpdate
from webhook.controller import followed_watches, records, savings_publisher
from webhook.controller.records import RUNS, read_run
from webhook.controller.world import Lines, Part, World
from webhook.hindsight.journal import name_of, read_slot, slot_of
from webhook.jobs import JOB
from webhook.model.faults import CONTROLLER_PARTS
from webhook.reconsider import pending_jobs
from webhook.settings import Settings
from webhook.state.readers import read_by_kind
from webhook.state.run_records_reader import path_of
from webhook.state.watched import signing_keys, watched

if TYPE_CHECKING:
    import pytest

SETTINGS: Final = Settings()
JOBS: Final = followed_watches.followed(JOB, lambda: KEYS)
PENDING: Final = pending_jobs.followed(JOB, lambda: KEYS)
_LATER = 21.0
"""Seconds after which whatever is kept is written again."""


class Cluster(Objects):
    """It lists policies, takes statuses and Events, and lets no Job be moved."""

    def __init__(self) -> None:
        super().__init__()
        self.policies = copy.deepcopy(good()[kinds.POLICIES])
        self.workloads: dict[str, Any] = {}
        """By UID, as they are now."""

    def kueue_version(self) -> str:
        return "v1beta2"

    def get(self, path: str, params: Any = None) -> Any:
        if path == kinds.our_path(kinds.POLICIES):
            return {"items": copy.deepcopy(self.policies)}
        if path == "/version":
            return {"major": "1", "minor": "36"}
        if path.endswith("/workloads"):
            return {"items": list(self.workloads.values())}
        return super().get(path, params)

    def patch(self, path: str, body: Any) -> Any:
        if path.endswith("/status"):
            for policy in self.policies:
                if f"/{policy['metadata']['name']}/" in path:
                    policy["status"] = body["status"]
            return {}
        if "/configmaps/" in path:
            return super().patch(path, body)
        raise Refused(409, "it has changed")


def id_of(source: Mapping[str, Any]) -> str:
    """Tell a Workload from others, whatever its metadata are."""
    return repr(source.get("metadata"))


class Controlled:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let time go on with each turn, so that all that is written now and then is due."""
        self.cluster, self.elector, self.lines = Cluster(), Elector(), []
        self.now = 0.0
        clock = SimpleNamespace(monotonic=lambda: self.now, time=lambda: NOON + self.now)
        monkeypatch.setattr(records, "time", clock)
        monkeypatch.setattr(savings_publisher, "time", clock)
        monkeypatch.setattr(savings_publisher, "threading", SimpleNamespace(Thread=AtOnce))
        self.controller = Followed(
            SETTINGS,
            self.cluster,
            jobs_client=self.cluster,
            elector=self.elector,
            log=self.lines.append,
        )
        self.controller.parts = tuple(
            replace(part, step=partial(self._record, part)) if part.name == "records" else part
            for part in self.controller.parts
        )
        held = good()
        followed = watched(namespace=SETTINGS.namespace, kueue_namespace="kueue-system")
        for resource in (*followed, signing_keys(SETTINGS.namespace)):
            found = held.get(resource.kind, ())
            self._put(
                resource.kind,
                entries=tuple(read_by_kind(resource.kind, each, KEYS) for each in found),
            )
        for resource in (JOBS, RUNS, PENDING):
            self._put(resource.kind, entries=())
        self.elector.said = 1
        self.turn()

    def _record(self, part: Part, world: World) -> Lines:
        return part.step(replace(world, now=self.now, unix=NOON + self.now))

    def change_job(self, event_type: str, source: Mapping[str, Any]) -> None:
        """Let a Job be what it is now, for each of those who follow Jobs."""
        metadata = {"metadata": source["metadata"]}
        self._put(JOBS.kind, event=(event_type, JOBS.read(JOBS.kind, metadata)))
        self._put(PENDING.kind, event=(event_type, PENDING.read(PENDING.kind, source)))

    def change_workload(self, event_type: str, source: Mapping[str, Any]) -> None:
        self.cluster.workloads[id_of(source)] = source
        if event_type == "DELETED":
            del self.cluster.workloads[id_of(source)]
        self._put(RUNS.kind, event=(event_type, read_run(RUNS.kind, source, KEYS)))
        self.change(kinds.WORKLOADS, event_type, source)

    def change(self, kind: str, event_type: str, source: Mapping[str, Any]) -> None:
        self._put(kind, event=(event_type, read_by_kind(kind, source, KEYS)))

    def turn(self) -> None:
        """Let turns of the loop go by: what is found out settles first, and then is written."""
        for _ in range(3):
            self.now += _LATER
            self.controller.put(None)
            self._step()
        assert self._failed() == {}, self.lines[-3:]

    def _step(self) -> None:
        """Step until all is taken: on a busy machine a step ends before that."""
        self.controller.step()
        while self.controller.has_messages():
            self.controller.step()

    def _failed(self) -> Mapping[str, float]:
        """Count what failed in turns that went on all the same, by their part."""
        name = "kueue_fallback_controller_failed_turns_total"
        shown = {
            part: self.controller.metrics.registry.get_sample_value(name, {"part": part}) or 0.0
            for part in CONTROLLER_PARTS
        }
        return {part: count for part, count in shown.items() if count}

    def records(self, name: str) -> bool:
        """Tell whether a Workload of the team that ends now comes to stand in the journal."""
        ended = NOON + self.now
        source = workload(f"job-{name}", TEAM, "gpu-cq", *OVER)
        source["metadata"]["uid"] = name
        written = datetime.fromtimestamp(ended, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        source["status"]["conditions"][-1]["lastTransitionTime"] = written
        self.change_workload("ADDED", source)
        self.turn()
        place = f"{path_of(SETTINGS.namespace)}/{name_of(slot_of(ended))}"
        slot = read_slot(self.cluster.held[place]) if place in self.cluster.held else None
        self.change_workload("DELETED", source)
        return slot is not None and name in slot.entries

    def _put(self, kind: str, **found: Any) -> None:
        self.controller.put(WatchUpdate(kind=kind, at=time.monotonic(), **found))
