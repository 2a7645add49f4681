"""What the dashboard shows: rows of panels, each with its title, unit and queries."""

from dataclasses import dataclass
from typing import Final

_OURS: Final = 'namespace=~"$namespace"'
_POLICY: Final = f'{_OURS},policy=~"$policy"'
_CALLS: Final = 'name=~"(create|update)[.]kueue-fallback[.]dev"'
# Every program has metrics of its process; these are the ones beside our build_info.
_PROCESSES: Final = f"and on (job, instance) kueue_fallback_build_info{{{_OURS}}}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One panel; a query is (expression, legend). A number stands alone, without a time axis."""

    title: str
    unit: str
    queries: tuple[tuple[str, str], ...]
    text: str = ""
    width: int = 8
    number: bool = False


def _rate(metric: str, by: str, selector: str = _OURS) -> str:
    return _over("rate", f"kueue_fallback_{metric}{{{selector}}}", by)


def _increase(metric: str, by: str, selector: str = _OURS, over: str = "$__rate_interval") -> str:
    return _over("increase", f"kueue_fallback_{metric}{{{selector}}}", by, over)


def _calls(metric: str, by: str, more: str = "") -> str:
    return _over("rate", f"apiserver_admission_webhook_{metric}{{{_CALLS}{more}}}", by)


def _over(function: str, series: str, by: str, over: str = "$__rate_interval") -> str:
    return f"sum by ({by}) ({function}({series}[{over}]))"


def _p(share: float, buckets: str) -> str:
    return f"histogram_quantile({share}, {buckets})"


def _max(metric: str, by: str, selector: str = _OURS) -> str:
    return f"max by ({by}) (kueue_fallback_{metric}{{{selector}}})"


_EXPIRATION: Final = _max("certificate_expiration_timestamp_seconds", "kind, pod")
_BUCKETS: Final = _rate("review_seconds_bucket", "le", f'{_OURS},operation="CREATE"')

ROWS: Final = {
    "Traffic and latency": (
        Panel(
            title="Replicas ready",
            unit="none",
            queries=((f"sum(kueue_fallback_ready{{{_OURS}}})", "ready"),),
            text="Replicas whose /readyz says so. With none, Jobs pass as they were submitted.",
            width=4,
            number=True,
        ),
        Panel(
            title="Switched off",
            unit="bool_yes_no",
            queries=((_max("switched_off", "scope"), "{{scope}}"),),
            text="The ConfigMap kueue-fallback-off, everywhere or for some namespaces.",
            width=4,
            number=True,
        ),
        Panel(
            title="Reviews",
            unit="reqps",
            queries=((_rate("reviews_total", "operation, code"), "{{operation}} {{code}}"),),
        ),
        Panel(
            title="Reviews being answered",
            unit="none",
            queries=((_max("reviews_in_flight", "pod"), "{{pod}}"),),
        ),
        Panel(
            title="Time in the handler",
            unit="s",
            queries=tuple((_p(share, _BUCKETS), f"p{share * 100:g}") for share in (0.5, 0.9, 0.99)),
            text="Of reviews of new Jobs, from body to answer.",
        ),
        Panel(
            title="Time as the API server sees it, p99",
            unit="s",
            queries=(
                (_p(0.99, _calls("admission_duration_seconds_bucket", "name, le")), "{{name}}"),
            ),
            text="With network and TLS. Empty where the API server is not scraped.",
        ),
        Panel(
            title="Calls that got no answer",
            unit="ops",
            queries=(
                (_calls("fail_open_count", "name"), "passed on: {{name}}"),
                (
                    _calls("rejection_count", "error_type", ',error_type!="no_error"'),
                    "refused: {{error_type}}",
                ),
            ),
            text="As the API server counts them. Empty where it is not scraped.",
        ),
        Panel(
            title="Turned away",
            unit="ops",
            queries=((_rate("unanswered_total", "reason"), "{{reason}}"),),
            text="Broken handshakes, unfinished messages, and what was refused with a status.",
        ),
        Panel(
            title="Failures",
            unit="ops",
            queries=(
                (_rate("failures_total", "pod"), "failed: {{pod}}"),
                (_rate("patch_verification_failures_total", "pod"), "not verified: {{pod}}"),
                (_rate("decision_log_dropped_total", "pod"), "log lines dropped: {{pod}}"),
            ),
            text="Should be zero. Each line of the log names the review's uid.",
        ),
    ),
    "Decisions": (
        Panel(
            title="Decisions by option",
            unit="ops",
            queries=(
                (_rate("decisions_total", "policy, option", _POLICY), "{{policy}}: {{option}}"),
            ),
            text="Option none: the Job stayed as it was submitted.",
        ),
        Panel(
            title="Decisions by mode and reason",
            unit="ops",
            queries=((_rate("decisions_total", "mode, reason", _POLICY), "{{mode}} {{reason}}"),),
        ),
        Panel(
            title="Options refused",
            unit="ops",
            queries=(
                (_rate("rejections_total", "option, reason", _POLICY), "{{option}}: {{reason}}"),
            ),
        ),
        Panel(
            title="Classes of Jobs refused an option",
            unit="none",
            queries=((_max("keeps_failing", "policy, option", _POLICY), "{{policy}} {{option}}"),),
            text="What they run failed there three times and succeeds elsewhere.",
        ),
        Panel(
            title="Jobs that were not ours to decide",
            unit="ops",
            queries=((_rate("skipped_total", "reason"), "{{reason}}"),),
        ),
        Panel(
            title="Decided values put back",
            unit="ops",
            queries=((_rate("restorations_total", "pod"), "{{pod}}"),),
            text="Manifests that were applied again.",
        ),
        Panel(
            title="Pending Jobs moved",
            unit="ops",
            queries=((_rate("moves_total", "outcome"), "{{outcome}}"),),
        ),
        Panel(
            title="Why Jobs were not moved",
            unit="ops",
            queries=((_rate("unmoved_total", "reason"), "{{reason}}"),),
        ),
        Panel(
            title="Moves asked for by the controller",
            unit="ops",
            queries=(
                (_rate("controller_moves_total", "outcome"), "{{outcome}}"),
                (_max("controller_moves_in_flight", "pod"), "in flight, {{pod}}"),
            ),
        ),
        Panel(
            title="Time gained by moves",
            unit="s",
            queries=(
                (
                    _increase(
                        "controller_move_gained_seconds_total", "policy", _POLICY, "$__range"
                    ),
                    "{{policy}}",
                ),
            ),
            text="As it was expected of all who wait together.",
        ),
        Panel(
            title="Pending Jobs that cannot be moved",
            unit="none",
            queries=((_max("controller_not_moved_jobs", "reason"), "{{reason}}"),),
        ),
        Panel(
            title="Jobs created without a review",
            unit="none",
            queries=(
                (_increase("unreviewed_jobs_total", "policy", _POLICY, "$__range"), "{{policy}}"),
                (_increase("unjudged_jobs_total", "pod", _OURS, "$__range"), "not judged"),
            ),
            text="In the time shown. Of policies in mode Observe it cannot be told.",
            number=True,
        ),
        Panel(
            title="Policies that are ready",
            unit="bool_yes_no",
            queries=((_max("policy_ready", "policy", _POLICY), "{{policy}}"),),
            text="The condition Ready: every option can be taken as the cluster stands.",
            number=True,
        ),
        Panel(
            title="Policies",
            unit="none",
            queries=((_max("policies", "ready"), "ready: {{ready}}"),),
        ),
        Panel(
            title="Statuses of policies written",
            unit="ops",
            queries=((_rate("policy_status_writes_total", "result"), "{{result}}"),),
        ),
        Panel(
            title="Controller that leads",
            unit="bool_yes_no",
            queries=((_max("controller_leader", "pod"), "{{pod}}"),),
            text="One of them writes; the others follow, to take over when it ends.",
        ),
    ),
    "State": (
        Panel(
            title="Age of the state",
            unit="s",
            queries=(
                (_max("state_age_seconds", "pod"), "{{pod}}"),
                (_max("controller_state_age_seconds", "pod"), "controller {{pod}}"),
                (_max("cluster_state_age_seconds", "cluster"), "worker {{cluster}}"),
                (f"max(kueue_fallback_state_age_limit_seconds{{{_OURS}}})", "limit"),
            ),
            text="Above the limit Jobs are left as they were submitted.",
        ),
        Panel(
            title="Age of each watch",
            unit="s",
            queries=((_max("watch_age_seconds", "resource"), "{{resource}}"),),
            text="The oldest over all replicas.",
        ),
        Panel(
            title="Lists",
            unit="none",
            queries=(
                (_increase("watch_relists_total", "resource"), "{{resource}}"),
                (
                    _increase("controller_watch_relists_total", "resource"),
                    "controller {{resource}}",
                ),
            ),
            text="One at each start; more are watches that broke.",
        ),
        Panel(
            title="Placements in the ledger",
            unit="none",
            queries=((_max("ledger_placements", "pod"), "{{pod}}"),),
            text="Decisions whose Workloads are not seen yet.",
        ),
        Panel(
            title="Placements",
            unit="ops",
            queries=(
                (_rate("placements_total", "pod"), "entered: {{pod}}"),
                (_rate("placements_expired_total", "pod"), "never seen: {{pod}}"),
            ),
        ),
        Panel(
            title="Age of forecasts",
            unit="s",
            queries=((_max("forecast_age_seconds", "pod"), "{{pod}}"),),
            text="The oldest change that none contains; below 2 s at most times.",
        ),
        Panel(
            title="Queues that are forecast",
            unit="none",
            queries=((_max("forecast_queues", "pod"), "{{pod}}"),),
            text="Those of policies that decide by finish time, and their cohorts.",
        ),
        Panel(
            title="Classes of Jobs remembered",
            unit="none",
            queries=((_max("run_time_classes", "pod"), "{{pod}}"),),
            text="Of their runs, forecasts are made.",
        ),
        Panel(
            title="Records of runs and of the journal written",
            unit="ops",
            queries=(
                (_rate("run_time_record_writes_total", "result"), "runs {{result}}"),
                (_rate("journal_writes_total", "result"), "journal {{result}}"),
            ),
        ),
        Panel(
            title="Objects that cannot be read",
            unit="none",
            queries=(
                (_max("unreadable_objects", "resource"), "{{resource}}"),
                (_max("controller_unreadable_objects", "resource"), "controller {{resource}}"),
            ),
        ),
    ),
    "Certificates": (
        Panel(
            title="Time left",
            unit="s",
            queries=((f"{_EXPIRATION} - time()", "{{kind}} {{pod}}"),),
            width=16,
        ),
        Panel(
            title="Certificates taken up",
            unit="none",
            queries=((_increase("certificate_reloads_total", "result"), "{{result}}"),),
        ),
    ),
    "Processes": (
        Panel(
            title="CPU",
            unit="none",
            queries=(
                (f"rate(process_cpu_seconds_total[$__rate_interval]) {_PROCESSES}", "{{pod}}"),
                (_rate("observer_process_cpu_seconds_total", "pod"), "observer {{pod}}"),
            ),
            text="Cores in use: servers and controller, and the servers' observers.",
        ),
        Panel(
            title="Memory",
            unit="bytes",
            queries=(
                (f"process_resident_memory_bytes {_PROCESSES}", "{{pod}}"),
                (_max("observer_process_resident_memory_bytes", "pod"), "observer {{pod}}"),
            ),
        ),
        Panel(
            title="Open files",
            unit="none",
            queries=((f"process_open_fds {_PROCESSES}", "{{pod}}"),),
        ),
        Panel(
            title="Up for",
            unit="s",
            queries=((f"time() - (process_start_time_seconds {_PROCESSES})", "{{pod}}"),),
        ),
        Panel(
            title="Starts of the observer",
            unit="none",
            queries=((_max("observer_starts_total", "pod"), "{{pod}}"),),
            text="One for each start of its server; more are crashes.",
        ),
        Panel(
            title="Versions",
            unit="none",
            queries=(
                (f"count by (version) (kueue_fallback_build_info{{{_OURS}}})", "{{version}}"),
            ),
            number=True,
        ),
    ),
}
