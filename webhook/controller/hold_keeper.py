"""Releases held Jobs: by the plan, and at the latest when the Job itself says.

The latest start stands in the decision on each Job, so a new leader needs nothing else; what it
plans by, what others use by the hour, the one before has published. Every replica follows the held
Jobs and tells which are overdue; the leading one releases them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from webhook.api import published
from webhook.api.kubernetes_api import ClusterError, KubernetesApi, NotServed, Refused
from webhook.api.resources import CONGESTION
from webhook.api.watch import WatchUpdate, get_by_list
from webhook.controller.controller_metrics import ControllerMetrics
from webhook.controller.world import World
from webhook.jobs import JOB
from webhook.learn.others_use import OthersUse
from webhook.model.faults import Attention
from webhook.model.fields import FieldError
from webhook.model.holds import release_patch
from webhook.model.namespace_shares import in_turn
from webhook.reconsider import hold_plan
from webhook.reconsider.hold_plan import MEANINGS, HeldJob
from webhook.state import run_records_reader
from webhook.state.published_congestion import patch_of_use, read_use

PLAN_SECONDS: Final = 60.0
PUBLISH_SECONDS: Final = 600.0
"""Between two writes of what others use: so much of it may be lost with a leader."""
MOST_AT_ONCE: Final = 50
"""Jobs released in one step; the others follow in the next."""
OVERDUE_SECONDS: Final = 120.0
"""After its latest start a Job that is still held counts as overdue."""


class HoldKeeper:
    def __init__(
        self,
        transport: KubernetesApi,
        namespace: str,
        *,
        is_leader: Callable[[], bool],
        metrics: ControllerMetrics,
    ) -> None:
        """Release Jobs while *is_leader*, which is called before each write.

        What others use is published in *namespace*.
        """
        self._transport, self._is_leader, self._metrics = transport, is_leader, metrics
        self._place = run_records_reader.path_of(namespace)
        self._jobs: dict[str, HeldJob] = {}
        self._plan: hold_plan.Plan = {}
        self._others: OthersUse | None = None
        """None: we do not lead, or nobody's Jobs may be held."""
        self._next = self._published = 0.0

    def take(self, message: WatchUpdate) -> tuple[str, ...]:
        """Apply a watch update of Jobs; return the lines to log, of which there are none."""
        if message.kind != JOB.plural:
            return ()
        if message.entries is not None:
            self._jobs.clear()
            for entry in message.entries:
                self._put("/".join(entry.key), getattr(entry.value, "held", None))
        elif message.event is not None:
            event_type, entry = message.event
            held = None if event_type == "DELETED" else getattr(entry.value, "held", None)
            self._put("/".join(entry.key), held)
        return ()

    def _put(self, key: str, held: HeldJob | None) -> None:
        if held is None:
            self._jobs.pop(key, None)
        else:
            self._jobs[key] = held

    def show(self, world: World) -> None:
        """Set how many Jobs are held, and how many of them should have been released."""
        jobs, unix = tuple(self._jobs.values()), world.unix
        overdue = sum(job.hold is None or unix > job.hold.latest + OVERDUE_SECONDS for job in jobs)
        self._metrics.show_held(len(jobs), overdue)

    def step(self, world: World) -> list[str]:
        """Release what is due."""
        if not self._is_leader():
            self._others = None
            return []
        snapshot, unix = world.snapshot, world.unix
        lines: list[str] = []
        if world.now >= self._next:
            self._next = world.now + PLAN_SECONDS
            lines += self._learn(world)
            jobs = self._jobs.values()
            self._plan = hold_plan.plan(jobs, snapshot, unix, self._plan, self._others)
        due = hold_plan.due(tuple(self._jobs.values()), snapshot, self._plan, unix)
        # What cannot be released is due again at each step, and must not keep others back.
        for job, why in in_turn(due, lambda pair: pair[0].namespace)[:MOST_AT_ONCE]:
            if not self._is_leader():
                break
            is_released, problem = self._release(job)
            if problem:
                lines.append(Attention(f"Job {job.key}: not released: {problem}"))
            elif is_released:
                if self._others is not None and job.hold is not None:
                    begun = hold_plan.released(job, job.hold, snapshot, unix)
                    self._others.released.append(begun)
                self._metrics.count_released(why)
                lines.append(f"Job {job.key}: released from its hold: {MEANINGS[why]}")
        return lines

    def _learn(self, world: World) -> tuple[str, ...]:
        """Note what others use, and publish it if it is time; return the lines to log.

        A new leader goes on from what the last one published. Without it holds end all the same.
        """
        contents, now = hold_plan.contents_of_holding_queues(world.snapshot), world.now
        if not contents:
            return ()
        try:
            if self._others is None:
                self._others, self._published = self._read(), now
            self._others.note(contents, world.unix)
            if now - self._published >= PUBLISH_SECONDS and self._is_leader():
                self._published = now
                published.overwrite(self._transport, self._place, patch_of_use(self._others))
        except ClusterError as error:
            return (Attention(f"what others use beside held Jobs: {error}"),)
        return ()

    def _read(self) -> OthersUse:
        # The watch of the same ConfigMap needs the right to list it, too.
        stored = get_by_list(self._transport, self._place, CONGESTION)
        try:
            return read_use(stored or {})
        except FieldError:
            return OthersUse()

    def _release(self, job: HeldJob) -> tuple[bool, str]:
        """Take our gate and label off a Job; return whether that was done, and why it failed.

        A Job that has changed meanwhile is looked at again once its watch tells of it.
        """
        path = f"{JOB.path(job.namespace)}/{job.name}"
        try:
            self._transport.patch(path, release_patch(job.version, job.others))
        except NotServed:
            self._forget(job)
            return False, ""
        except Refused as error:
            return False, "" if error.is_conflict else str(error)
        except ClusterError as error:
            return False, str(error)
        self._forget(job)
        return True, ""

    def _forget(self, job: HeldJob) -> None:
        """Leave a Job alone until its watch tells of it again."""
        if self._jobs.get(job.key) is job:
            del self._jobs[job.key]
