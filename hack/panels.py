"""A panel of the dashboard, and the queries that panels are made of."""

from dataclasses import dataclass
from typing import Final

OURS: Final = 'namespace=~"$namespace"'
POLICY: Final = f'{OURS},policy=~"$policy"'
_CALLS: Final = 'name=~"(create|update)[.]kueue-fallback[.]dev"'
# Every program has metrics of its process; these are the ones beside our build_info.
PROCESSES: Final = f"and on (job, instance) kueue_fallback_build_info{{{OURS}}}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One panel; a query is (expression, legend). A number stands alone, without a time axis."""

    title: str
    unit: str
    queries: tuple[tuple[str, str], ...]
    text: str = ""
    width: int = 8
    number: bool = False


def rate(metric: str, by: str, selector: str = OURS) -> str:
    return _over("rate", f"kueue_fallback_{metric}{{{selector}}}", by)


def increase(metric: str, by: str, selector: str = OURS, over: str = "$__rate_interval") -> str:
    return _over("increase", f"kueue_fallback_{metric}{{{selector}}}", by, over)


def calls(metric: str, by: str, more: str = "") -> str:
    return _over("rate", f"apiserver_admission_webhook_{metric}{{{_CALLS}{more}}}", by)


def _over(function: str, series: str, by: str, over: str = "$__rate_interval") -> str:
    return f"sum by ({by}) ({function}({series}[{over}]))"


def quantile(share: float, buckets: str) -> str:
    return f"histogram_quantile({share}, {buckets})"


def highest(metric: str, by: str, selector: str = OURS) -> str:
    return f"max by ({by}) (kueue_fallback_{metric}{{{selector}}})"
