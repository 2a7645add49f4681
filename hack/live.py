"""Show a run while it goes on: redrawn in place on a terminal, plain lines elsewhere."""

import sys
from collections.abc import Sequence
from typing import Final

from hack.timeline import Course

PLAIN_EVERY_SECONDS: Final = 5.0
DECISIONS_SHOWN: Final = 6
BAR_WIDTH: Final = 30
COLUMNS: Final = 100


def lines(courses: Sequence[Course], queues: Sequence[str], now: float) -> list[str]:
    """Return the whole view: a line for each queue, then the newest decisions."""
    view = [f"{now:6.1f} s  {len(courses)} submitted, {_count_finished(courses)} finished"]
    for queue in queues:
        here = [course for course in courses if course.queue == queue]
        running = sum(course.started is not None and course.finished is None for course in here)
        waiting = sum(course.started is None for course in here)
        bar = ("#" * running + "." * waiting)[:BAR_WIDTH].ljust(BAR_WIDTH)
        numbers = f"{running:2} running {waiting:2} waiting {_count_finished(here):2} finished"
        view.append(f"  {queue:8} {bar} {numbers}")
    decided = [course for course in courses if course.reason]
    newest = [f"  {course.name:9} {course.reason}"[:COLUMNS] for course in decided]
    return view + newest[-DECISIONS_SHOWN:]


def _count_finished(courses: Sequence[Course]) -> int:
    return sum(course.finished is not None for course in courses)


class View:
    """Draws over its last drawing on a terminal; else prints decisions and a state now and then."""

    def __init__(self, queues: Sequence[str]) -> None:
        self._queues = queues
        self._drawn = 0
        self._said: set[str] = set()
        self._next_line = 0.0

    def show(self, courses: Sequence[Course], now: float) -> None:
        if sys.stdout.isatty():
            self._redraw(lines(courses, self._queues, now))
        else:
            self._say(courses, now)

    def _redraw(self, view: Sequence[str]) -> None:
        up = f"\x1b[{self._drawn}A" if self._drawn else ""
        print(up + "\x1b[J" + "\n".join(view), flush=True)
        self._drawn = len(view)

    def _say(self, courses: Sequence[Course], now: float) -> None:
        for course in courses:
            if course.reason and course.name not in self._said:
                self._said.add(course.name)
                print(f"{now:6.1f} s  {course.name}: {course.reason}", flush=True)
        if now >= self._next_line:
            self._next_line = now + PLAIN_EVERY_SECONDS
            state = lines(courses, self._queues, now)[: 1 + len(self._queues)]
            print("\n".join(state), flush=True)
