"""What the dashboard shows: rows of panels, each with its title, unit and queries."""

from typing import Final

from hack.panel_rows_of_decisions import DECISIONS
from hack.panel_rows_of_state import STATE
from hack.panels import OURS, Panel, calls, highest, quantile, rate

_BUCKETS: Final = rate("review_seconds_bucket", "le", f'{OURS},operation="CREATE"')

_TRAFFIC: Final = {
    "Traffic and latency": (
        Panel(
            title="Replicas ready",
            unit="none",
            queries=((f"sum(kueue_fallback_ready{{{OURS}}})", "ready"),),
            text="Replicas whose /readyz says so. With none, Jobs pass as they were submitted.",
            width=4,
            number=True,
        ),
        Panel(
            title="Switched off",
            unit="bool_yes_no",
            queries=((highest("switched_off", "scope"), "{{scope}}"),),
            text="The ConfigMap kueue-fallback-off, everywhere or for some namespaces.",
            width=4,
            number=True,
        ),
        Panel(
            title="Reviews",
            unit="reqps",
            queries=((rate("reviews_total", "operation, code"), "{{operation}} {{code}}"),),
        ),
        Panel(
            title="Reviews being answered",
            unit="none",
            queries=((highest("reviews_in_flight", "pod"), "{{pod}}"),),
        ),
        Panel(
            title="Time in the handler",
            unit="s",
            queries=tuple(
                (quantile(share, _BUCKETS), f"p{share * 100:g}") for share in (0.5, 0.9, 0.99)
            ),
            text="Of reviews of new Jobs, from body to answer.",
        ),
        Panel(
            title="Time as the API server sees it, p99",
            unit="s",
            queries=(
                (
                    quantile(0.99, calls("admission_duration_seconds_bucket", "name, le")),
                    "{{name}}",
                ),
            ),
            text="With network and TLS. Empty where the API server is not scraped.",
        ),
        Panel(
            title="Calls that got no answer",
            unit="ops",
            queries=(
                (calls("fail_open_count", "name"), "passed on: {{name}}"),
                (
                    calls("rejection_count", "error_type", ',error_type!="no_error"'),
                    "refused: {{error_type}}",
                ),
            ),
            text="As the API server counts them. Empty where it is not scraped.",
        ),
        Panel(
            title="Turned away",
            unit="ops",
            queries=((rate("unanswered_total", "reason"), "{{reason}}"),),
            text="Broken handshakes, unfinished messages, and what was refused with a status.",
        ),
        Panel(
            title="Failures",
            unit="ops",
            queries=(
                (rate("failures_total", "pod"), "failed: {{pod}}"),
                (rate("patch_verification_failures_total", "pod"), "not verified: {{pod}}"),
                (rate("decision_log_dropped_total", "pod"), "log lines dropped: {{pod}}"),
                (rate("observer_failed_turns_total", "part"), "observer's turns: {{part}}"),
                (rate("controller_failed_turns_total", "part"), "controller's turns: {{part}}"),
            ),
            text="Should be zero. Each line of the log names the review's uid.",
        ),
        Panel(
            title="Decision logs that are written",
            unit="none",
            queries=((f"sum(kueue_fallback_decision_log_alive{{{OURS}}})", "written"),),
            text="As many as there are replicas, or one of them is about to end.",
            width=4,
            number=True,
        ),
    ),
}

ROWS: Final = {**_TRAFFIC, **DECISIONS, **STATE}
