"""Durations on the command line: those of policies, and days before them."""

from __future__ import annotations

import re
from typing import Any

import click

_DAYS = re.compile(r"([0-9]{1,5})d")
_DAY_SECONDS = 86_400.0


class Duration(click.ParamType[float]):
    """Seconds, from a text such as ``10s``, ``1h30m`` or ``2d12h``."""

    name = "duration"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        if isinstance(value, float):
            return value
        # pydantic behind them would make every --help wait.
        from webhook.model.policy import fallback_policy, patterns

        days = _DAYS.match(value)
        rest = value[days.end() :] if days else value
        if not (days and not rest) and not re.fullmatch(patterns.DURATION, rest):
            self.fail(f"expected a duration such as 10s, 1h30m or 2d, got {value!r}", param, ctx)
        return (_DAY_SECONDS * int(days[1]) if days else 0.0) + fallback_policy.seconds(rest)
