"""The controller's metrics: their names, help texts and label values are defined only here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from webhook.controller.cost_metrics import CostMetrics
from webhook.decide.cluster_choice import Nomination
from webhook.metric_table import (
    A_POLICY,
    AN_OPTION,
    ANY_POLICY,
    CountedElsewhere,
    Table,
    Watches,
    policy_label,
    series,
)
from webhook.model.costs.devices import DeviceSample
from webhook.model.faults import CONTROLLER_PARTS
from webhook.model.policy.fallback_policy import FallbackPolicy, Mode
from webhook.model.queues import Snapshot
from webhook.model.reasons import OUTCOMES, Obstacle
from webhook.reconsider.hold_plan import Release


class ControllerMetrics:
    def __init__(self) -> None:
        self.table = table = Table()
        self.registry = table.registry
        table.version()
        table.process()
        self.watches = Watches(table, "controller_")
        self.leader = table.gauge(
            "controller_leader", "1 if this controller leads, and therefore writes; else 0."
        )
        self._about_policies(table)
        self.failures = CountedElsewhere(
            table.counter(
                "controller_failed_turns",
                "Turns in which a part of the controller failed; the next turn follows.",
                part=CONTROLLER_PARTS,
            )
        )
        self._run_times(table)
        self._moves(table)
        self.costs = CostMetrics(table)
        self._holds(table)
        self._nominations(table)
        self._devices(table)

    def _about_policies(self, table: Table) -> None:
        self.writes = table.counter(
            "policy_status_writes",
            "Writes of policies' status, by result.",
            result=("written", "failed"),
        )
        self._policies = table.gauge(
            "policies", "Policies by their condition Ready.", ready=("True", "False")
        )
        self._ready = table.gauge(
            "policy_ready", "1 if the policy's condition Ready is True, else 0.", policy=A_POLICY
        )
        self.unreviewed = table.counter(
            "unreviewed_jobs",
            "Jobs that a policy in mode Enforce or Advise matched and that were created without "
            "being reviewed. Mode Observe is not counted, as it writes nothing on Jobs.",
            policy=ANY_POLICY,
        )
        self.unjudged = table.counter(
            "unjudged_jobs",
            "Jobs without a decision that were not checked because too many came at once.",
        )

    def _moves(self, table: Table) -> None:
        self._moved = table.counter(
            "controller_moves",
            "Moves of pending Jobs that were written, by outcome. moved: its Workload "
            "shows it. conflict: the Job changed meanwhile. refused: by the webhook or the API "
            "server. lost: no Workload showed it in time. repaired: quota that it held in the "
            "queue it had left was taken back. failed: the API server could not be reached.",
            policy=ANY_POLICY,
            outcome=OUTCOMES,
        )
        self._gained = table.counter(
            "controller_move_gained_seconds",
            "Expected gain of moves: seconds that all pending Jobs together are done sooner.",
            policy=A_POLICY,
        )
        self._not_moved = table.gauge(
            "controller_not_moved_jobs",
            "Pending Jobs of policies with reconsider that cannot be moved, by reason.",
            policy=A_POLICY,
            reason=tuple(map(str, Obstacle)),
        )
        self.in_flight = table.gauge(
            "controller_moves_in_flight", "Moves that no Workload shows yet."
        )

    def _holds(self, table: Table) -> None:
        self._held = table.gauge("held_jobs", "Jobs that are held until a better hour.")
        self._overdue = table.gauge(
            "held_overdue_jobs",
            "Jobs that are still held two minutes after their latest start, or of which nobody "
            "knows it.",
        )
        self._released = table.counter(
            "released_jobs",
            "Held Jobs that were released, by reason.",
            reason=tuple(map(str, Release)),
        )

    def _nominations(self, table: Table) -> None:
        self.forgotten = table.gauge(
            "unnominated_workloads",
            "Workloads that have had quota for half a minute and for which no worker cluster is "
            "nominated; only if kueue-fallback is MultiKueue's dispatcher.",
        )
        self._nominated = table.counter(
            "nominations",
            "Worker clusters nominated for Workloads, by why. first: the best by its policy. "
            "better: better by now than those before. late: those before have not taken it in "
            "time. lost: those before cannot be relied on. all: every cluster at once.",
            why=tuple(map(str, Nomination)),
        )

    def _devices(self, table: Table) -> None:
        self._queries = table.counter(
            "prometheus_queries",
            "Queries to Prometheus about how Jobs use devices, by result.",
            result=("answered", "failed"),
        )
        self._samples = table.counter(
            "prometheus_samples",
            "Values in the answers of Prometheus. refused: not a plausible number.",
            result=("taken", "refused"),
        )
        self.measured = table.gauge(
            "measured_classes", "Classes of Jobs whose use of devices is known."
        )

    def count_answer(self, *, answered: bool) -> None:
        self._queries.labels("answered" if answered else "failed").inc()

    def count_samples(self, samples: Sequence[DeviceSample]) -> None:
        refused = sum(sample.value is None for sample in samples)
        self._samples.labels("taken").inc(len(samples) - refused)
        self._samples.labels("refused").inc(refused)

    def count_nomination(self, why: Nomination) -> None:
        self._nominated.labels(str(why)).inc()

    def show_held(self, held: int, overdue: int) -> None:
        """Set how many Jobs are held, and how many of them for too long."""
        self._held.set(held)
        self._overdue.set(overdue)

    def count_released(self, reason: Release) -> None:
        self._released.labels(str(reason)).inc()

    def count_move(self, policy: str, outcome: str, *, gained: float = 0.0) -> None:
        """Count one of ``OUTCOMES``; one that is done has *gained* seconds of all pending Jobs."""
        self._moved.labels(policy_label(policy), outcome).inc()
        # Moves by cost may let all be done later, and a counter cannot fall.
        if gained > 0:
            self._gained.labels(policy).inc(gained)

    def show_obstacles(self, obstacles: Mapping[tuple[str, Obstacle], int]) -> None:
        """Set of each policy how many of its pending Jobs cannot be moved, by why."""
        self._not_moved.clear()
        for (policy, obstacle), count in obstacles.items():
            self._not_moved.labels(policy, str(obstacle)).set(count)

    def count_writes(self, what: str, *, written: int, failed: int) -> None:
        """Count writes of ConfigMaps with run times, or of the journal."""
        counter = self.journal_writes if what == "journal" else self.record_writes
        counter.labels("written").inc(written)
        counter.labels("failed").inc(failed)

    def _run_times(self, table: Table) -> None:
        self.record_writes = table.counter(
            "run_time_record_writes",
            "Writes of ConfigMaps with records of runs, by result.",
            result=("written", "failed"),
        )
        self.journal_writes = table.counter(
            "journal_writes",
            "Writes of the journal's ConfigMaps, by result.",
            result=("written", "failed"),
        )
        self.classes = table.gauge("run_time_classes", "Classes of Jobs with remembered runs.")
        self._keeps_failing = table.gauge(
            "keeps_failing",
            "Classes of Jobs that are refused the option because what they run keeps failing "
            "there.",
            policy=A_POLICY,
            option=AN_OPTION,
        )

    def show_failing(
        self, counts: Mapping[tuple[str, str], int], policies: tuple[FallbackPolicy, ...]
    ) -> None:
        """Set how many classes are refused each option but the policy's first.

        Those that namespaces have of their own are left out, as in ``show``; Events tell there.
        """
        places = {
            (policy.name, option.name)
            for policy in policies
            if not policy.namespace
            for option in policy.spec.options[1:]
        }
        for place in places:
            self._keeps_failing.labels(*place).set(counts.get(place, 0))
        for labels in series(self._keeps_failing):
            if (labels["policy"], labels["option"]) not in places:
                self._keeps_failing.remove(*labels.values())

    def show(self, ready: Mapping[str, bool]) -> None:
        """Set the condition Ready of every policy; remove the series of deleted ones.

        Those that namespaces have of their own are left out: an alert on them would be for others.
        """
        known = {policy_label(name) for name in ready}
        ready = {name: state for name, state in ready.items() if policy_label(name) == name}
        for state in (True, False):
            count = sum(1 for is_ready in ready.values() if is_ready is state)
            self._policies.labels(str(state)).set(count)
        for name, state in ready.items():
            self._ready.labels(name).set(state)
        metrics = (self._ready, self.unreviewed, self._moved, self._gained, self._not_moved)
        for metric in metrics:
            for labels in series(metric):
                if labels["policy"] not in known:
                    metric.remove(*labels.values())
        self.costs.forget_but(known)

    def expect(self, snapshot: Snapshot) -> None:
        """Start the series of each policy that writes decisions at 0, so that increases show."""
        for policy in filter(_leaves_decisions, snapshot.policies):
            self.unreviewed.labels(policy_label(policy.name))
            if policy.spec.reconsider is not None:
                self._gained.labels(policy.name)
                for outcome in OUTCOMES:
                    self._moved.labels(policy.name, outcome)


def _leaves_decisions(policy: FallbackPolicy) -> bool:
    return policy.spec.mode is not Mode.OBSERVE
