"""Write docs/metrics.md from the metrics themselves: `python -m hack.metrics_page`."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from webhook.controller.controller_metrics import ControllerMetrics
from webhook.metric_table import Metric, Values
from webhook.serving.server_metrics import Metrics

PAGE: Final = Path(__file__).resolve().parent.parent / "docs/metrics.md"
_HEAD: Final = """\
# Metrics

Made by `python -m hack.metrics_page` from `serving/server_metrics.py` and
`controller/controller_metrics.py`.

Server and controller serve `/metrics` as plain HTTP on the port of `/healthz` and `/readyz`.
No label holds the name of a Job or a user. Series of a policy that is deleted are removed.
Values of a label `reason` that are not listed here are in [reasons](reasons.md).
Both also serve Python's `process_*`; the server has those of its observer as
`kueue_fallback_observer_process_*`.

The chart installs alerts (`metrics.prometheusRule.enabled`) and a Grafana dashboard
(`metrics.dashboard.enabled`) on these metrics.
"""

_UNREVIEWED: Final = """\
## Jobs created without a review

Under Enforce and Advise a review leaves a decision on every Job that a policy matches.
`kueue_fallback_unreviewed_jobs_total` counts new Jobs without one to which the policy has applied
for 5 seconds.
Not counted are Jobs of a policy in mode Observe, Jobs that came while no controller ran, Jobs whose
manifest carries a decision, and Jobs that came within seconds of a change of the policy, the off
switch, or the namespace.
Counted although they were reviewed are Jobs that came while a replica knew no state yet, and those
that a failure left unpatched.
Jobs that your own `webhook.matchConditions` hold back are counted.
A controller that takes over may count Jobs of the last seconds twice.
"""
_OF_A_PROCESS: Final = re.compile(r"(kueue_fallback_observer_)?process_")
_MOST_VALUES: Final = 16
"""A longer set is one of reasons, which have a page of their own."""


def server() -> list[Metric]:
    return Metrics().table.metrics


def controller() -> list[Metric]:
    return ControllerMetrics().table.metrics


def text() -> str:
    parts = (
        _HEAD,
        "## The webhook's server\n",
        _list(server()),
        "## The controller\n",
        _list(controller()),
        _UNREVIEWED,
    )
    return "\n".join(parts)


def _list(metrics: Iterable[Metric]) -> str:
    return "".join(
        f"- `{metric.name}` ({', '.join([metric.kind, *map(_label, metric.labels.items())])}): "
        f"{metric.text}\n"
        for metric in sorted(metrics, key=lambda metric: metric.name)
        if not _OF_A_PROCESS.match(metric.name)
    )


def _label(label: tuple[str, Values]) -> str:
    """Return a label with its values, if they are a short closed set.

    A version is one too, but another with each release.
    """
    name, values = label
    if isinstance(values, str) or name == "version" or len(values) > _MOST_VALUES:
        return f"`{name}`"
    return f"`{name}`: {'/'.join(f'`{value}`' for value in values)}"


if __name__ == "__main__":
    PAGE.write_text(text())
