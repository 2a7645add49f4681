"""A scenario for ``simulate`` from the decision log, a saved state and perhaps other policies."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from webhook.commands import history, worker_files
from webhook.hindsight import decision_lines
from webhook.model.fields import FieldError
from webhook.model.policy.fallback_policy import FallbackPolicy
from webhook.model.policy.policy_fields import DURATION
from webhook.model.policy.values import seconds, sort_key
from webhook.simulate import objects
from webhook.simulate.scenario import Scenario
from webhook.simulate.scenario_checks import SpecError
from webhook.state.snapshot_file import read_objects


def scenario(
    log: str,
    snapshot: str,
    policies: tuple[str, ...],
    run_time: str | None,
    *,
    clusters: tuple[str, ...] = (),
) -> Scenario:
    """Read all files; with *policies*, those decide in the place of the snapshot's.

    Raises:
        FieldError: one cannot be read.

    """
    found = history.from_file(snapshot)
    if found.state is None:
        raise FieldError(snapshot, "expected queues")
    world = found.state.snapshot(0.0, found.until)
    if policies:
        given = [policy for path in policies for policy in _policies(path)]
        world = replace(world, policies=tuple(sorted(given, key=sort_key)))
    sources = decision_lines.Sources(
        snapshot=world,
        learned=found.state.learned(found.until),
        entries=found.entries,
        run_seconds=None if run_time is None else _seconds(run_time),
        workers=worker_files.read(clusters, world),
    )
    return decision_lines.read(_lines(log), sources, file=log)


def _policies(path: str) -> Iterator[FallbackPolicy]:
    for source, place in read_objects(path):
        try:
            yield objects.policy(source, place)
        except SpecError as error:
            raise FieldError("", "\n".join(map(str, error.errors))) from error


def _seconds(written: str) -> float:
    if re.fullmatch(DURATION, written) is None:
        raise FieldError("--run-time", f"expected a duration such as 90s or 1h30m, got {written}")
    return seconds(written)


def _lines(path: str) -> list[str]:
    try:
        text = sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise FieldError(path, str(getattr(error, "strerror", "") or error)) from error
    return text.splitlines()
