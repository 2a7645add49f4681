"""The usage of a cohort tree at the turns of newcomers, after each cycle of its event loop.

Who they are is not known: they differ by their line, by their priority, and by from how high up
they borrow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from webhook.kueue.cycle_preemptions import CyclePreemptions
from webhook.kueue.exact_cycles import ExactCycles
from webhook.kueue.line_turns import LineTurns
from webhook.kueue.lone_queue_cycle import LoneQueueCycle
from webhook.kueue.quota import Taken, UsageTree
from webhook.kueue.scheduling_cycle import SchedulingCycle
from webhook.kueue.turns import Line, LineUsage, TurnUsage, by_kind, with_set_aside

Cycles: TypeAlias = "ExactCycles | SchedulingCycle | LoneQueueCycle"
_MOST_LINES = 200
"""Of so many LocalQueues that are served by their use newcomers have turns of their own."""


class NewcomerTurns:
    """Lets the cycles of one tree record the usage at the turns of newcomers, and tells it."""

    def __init__(
        self,
        tree: UsageTree,
        cycle: Cycles,
        *,
        preemptions: CyclePreemptions | None,
        by_use: Sequence[Line] | None,
    ) -> None:
        """Record nothing yet; *by_use* are the LocalQueues that are served by their use.

        None: none of the tree are.
        """
        self.tree = tree
        self.by_shares = cycle.claims.fair_sharing and len(tree.leaves) > 1
        """Whether shares decide which ClusterQueue is served next."""
        self.lines: Sequence[Line] = ()
        """Those that have turns of their own; empty: all have the same."""
        self._cycle, self._preemptions = cycle, preemptions
        self._line_turns: LineTurns | None = None
        self._behind: Sequence[float] = ()
        is_recorded_by_line = cycle.claims.fair_sharing or by_use is not None
        if is_recorded_by_line and not isinstance(cycle, LoneQueueCycle):
            of_queues = [(leaf, "") for leaf in sorted(tree.leaves.values())]
            are_few = len(by_use or ()) <= _MOST_LINES
            self.lines = [*of_queues, *(by_use or ())] if are_few else of_queues

    def attend(self, ranks: Sequence[tuple[int, float]], asked: Mapping[int, Taken]) -> None:
        """Let each cycle from now on record the usage at the turns of these ranks.

        They are (from how high up a newcomer borrows, the lowest priority that comes before it), in
        the order of their turns. *asked* as for ``LineTurns``.
        """
        self._behind = [behind for _, behind in ranks]
        if self.lines and not isinstance(self._cycle, LoneQueueCycle):
            self._line_turns = LineTurns(self.tree, self.lines, ranks, asked)
            self._cycle.line_turns = self._line_turns
        else:
            self._cycle.turns = [(height, -behind) for height, behind in ranks]

    def used(self) -> tuple[list[int], LineUsage]:
        """Return the usage after the last cycle, and that at the turns that are attended.

        What is set aside for heads counts as used, and what preemptors keep for themselves.
        """
        cycle = self._cycle
        is_each = isinstance(cycle, ExactCycles) and bool(cycle.after)
        after = cycle.after if isinstance(cycle, ExactCycles) and is_each else self._after()
        if self._line_turns is not None:
            return after, self._line_turns.usage(after)
        if isinstance(cycle, ExactCycles) and is_each:
            cycles = [_with_rest(usage, after) for usage in cycle.turn_usage]
            return after, by_kind(cycles, after, self._behind, is_again=True)
        before = [] if isinstance(cycle, ExactCycles) else cycle.before
        before = before + [after] * (len(cycle.turns) - len(before))
        if not isinstance(cycle, SchedulingCycle) or not cycle.ahead:
            return after, LineUsage(rows=[before], kinds=[0] * len(self.tree.parents))
        first = [] if cycle.first is None else [cycle.first]
        cycles = [*first, TurnUsage(before=before, ahead=cycle.ahead)]
        return after, by_kind(cycles, after, self._behind, is_again=False)

    def _after(self) -> list[int]:
        """Return the usage after the last cycle, where not each of Kueue's cycles was run."""
        tree = self.tree
        reserved = None if self._preemptions is None else self._preemptions.reserved
        if reserved is None:
            return with_set_aside(tree, self._cycle.kept)
        now, tree.used[:] = tree.used[:], reserved
        after = with_set_aside(tree, self._cycle.kept)
        tree.used[:] = now
        return after


def _with_rest(cycle: TurnUsage, after: list[int]) -> TurnUsage:
    """Let turns at which the usage is that *after* the cycles have that very list."""
    # Many turns come at one usage.
    same = {id(usage): after if usage == after else usage for usage in cycle.before}
    return replace(cycle, before=[same[id(usage)] for usage in cycle.before])
