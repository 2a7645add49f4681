"""Show all arms of a round while it runs: redrawn in place on a terminal, else as plain lines."""

import sys
from collections.abc import Mapping, Sequence
from typing import Final

from bench.experiment.course import Course

PLAIN_EVERY_SECONDS: Final = 5.0
BAR_WIDTH: Final = 30
RUNNING, MOVED, WAITING = "#", "+", "."
"""A Job that runs where it was submitted to, one that runs elsewhere, one that waits."""

# By key: its title.
Titles = Mapping[str, str]
Courses = Mapping[str, Sequence[Course]]


def lines(courses: Courses, titles: Titles, now: float) -> list[str]:
    """Return a line for each arm: its Jobs as a bar, and how many have ended."""
    width = max(map(len, titles.values()))
    view = [f"{max(0.0, now):4.0f} s   {RUNNING} runs   {MOVED} runs, moved   {WAITING} waits"]
    for key, title in titles.items():
        created = [course for course in courses[key] if course.created is not None]
        ended = sum(course.is_over for course in created)
        view.append(f"  {title:{width}}  {_bar(created)}  {ended:2} of {len(courses[key])} ended")
    return view


def _bar(courses: Sequence[Course]) -> str:
    begun = [each for each in courses if each.started is not None and not each.is_over]
    moved = sum(course.queue != course.submitted_to for course in begun)
    waiting = sum(course.started is None and not course.is_over for course in courses)
    bar = RUNNING * (len(begun) - moved) + MOVED * moved + WAITING * waiting
    return bar[:BAR_WIDTH].ljust(BAR_WIDTH)


class View:
    """Draws over its last drawing on a terminal; else prints the state now and then."""

    def __init__(self, titles: Titles) -> None:
        self._titles = titles
        self._drawn = 0
        self._next_seconds = 0.0

    def show(self, courses: Courses, now: float) -> None:
        if sys.stdout.isatty():
            up = f"\x1b[{self._drawn}A\x1b[J" if self._drawn else ""
            view = lines(courses, self._titles, now)
            print(up + "\n".join(view), flush=True)
            self._drawn = len(view)
        elif now >= self._next_seconds:
            self._next_seconds = now + PLAIN_EVERY_SECONDS
            print("\n".join(lines(courses, self._titles, now)), flush=True)
