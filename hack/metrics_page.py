"""Write docs/metrics.md from the metrics themselves: `python -m hack.metrics_page`."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from webhook.controller.controller_metrics import ControllerMetrics
from webhook.metric_table import Metric
from webhook.serving.server_metrics import Metrics

PAGE: Final = Path(__file__).resolve().parent.parent / "docs/metrics.md"
_HEAD: Final = """\
# Metrics

Made by `python -m hack.metrics_page` from `serving/server_metrics.py` and
`controller/controller_metrics.py`.

Both processes serve `/metrics` as plain HTTP on the port of `/healthz` and `/readyz`.
A label has a closed set of values, or the names of things that exist: series of a policy that is
deleted are removed. No label holds the name of a Job, a namespace or a user.

The alerts on these metrics are in `helm/files/alerts.yaml`, the dashboard in
`helm/files/dashboard.json`; the chart installs both where asked to.
"""

_UNREVIEWED: Final = """\
### Jobs created without a review

Under Enforce and Advise a review leaves a decision on every Job that a policy matches.
The controller looks at each new Job without a decision, as soon as every watch has reported
something since the Job came. It counts the Job if the same policy has applied to it since 5 seconds
before it came. The controller does not count Jobs that it cannot judge:

- Jobs of a policy in mode Observe, which writes nothing.
- Jobs that came while no controller was running, or in its first seconds.
- Jobs that carry a decision from the manifest that they were made from.
- Jobs that came within seconds of a change of the policy, the off switch, or the namespace.

Some reviewed Jobs are counted, too: those that came while a replica knew no state yet, and those
that a failure above left unpatched. Jobs that your own `webhook.matchConditions` hold back are
counted, because the policy missed them. Only the leading controller counts. A controller that takes
over judges the Jobs of the last seconds again, so that none is left out. It may count some of them
a second time.
"""


def server() -> list[Metric]:
    return Metrics().table.metrics


def controller() -> list[Metric]:
    return ControllerMetrics().table.metrics


def text() -> str:
    parts = (
        _HEAD,
        "## The webhook's server\n",
        _table(server()),
        "## The controller\n",
        _table(controller()),
        _UNREVIEWED,
        "## Values of labels\n",
        "\n".join(_values([*server(), *controller()])) + "\n",
    )
    return "\n".join(parts)


def _table(metrics: Iterable[Metric]) -> str:
    lines = ["| name | type | labels | meaning |", "|---|---|---|---|"]
    for metric in sorted(metrics, key=lambda metric: metric.name):
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        lines.append(f"| `{metric.name}` | {metric.kind} | {labels} | {metric.text} |")
    return "\n".join(lines) + "\n"


def _values(metrics: Iterable[Metric]) -> Iterator[str]:
    """List the closed sets; a version is one too, but another with each release."""
    for metric in sorted(metrics, key=lambda metric: metric.name):
        for label, values in metric.labels.items():
            if label == "version":
                continue
            said = values if isinstance(values, str) else ", ".join(f"`{one}`" for one in values)
            yield f"- `{metric.name}` `{label}`: {said}"


if __name__ == "__main__":
    PAGE.write_text(text())
