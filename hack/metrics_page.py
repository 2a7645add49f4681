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
Names that end in `_total` are counters, `kueue_fallback_review_seconds` is a histogram, the others
are gauges. No label holds the name of a Job or a user.
Values of a label `reason` that are not listed here are in [reasons](reasons.md).
Both also serve Python's `process_*`; the server has those of its observer as
`kueue_fallback_observer_process_*`.

The chart installs alerts (`metrics.prometheusRule.enabled`) and a Grafana dashboard
(`metrics.dashboard.enabled`) on these metrics.
"""

_UNREVIEWED: Final = """\
## Jobs created without a review

`kueue_fallback_unreviewed_jobs_total` counts new Jobs that a policy in mode Enforce or Advise has
matched for 5 seconds and that carry no decision, also those that your own
`webhook.matchConditions` hold back, or that a failure left unpatched.
It does not count Jobs that came while no controller ran, or within seconds of a change of the
policy, the off switch, or the namespace.
"""
_OF_A_PROCESS: Final = re.compile(r"(kueue_fallback_observer_)?process_")
_MOST_VALUES: Final = 20
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
        f"- `{metric.name}`{_labels(metric)}: {metric.text}\n"
        for metric in sorted(metrics, key=lambda metric: metric.name)
        if not _OF_A_PROCESS.match(metric.name)
    )


def _labels(metric: Metric) -> str:
    labels = ", ".join(map(_label, metric.labels.items()))
    return f" ({labels})" if labels else ""


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
