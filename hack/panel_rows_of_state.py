"""The dashboard's rows of what a replica knows, holds and uses."""

from typing import Final

from hack.panels import OURS, PROCESSES, Panel, highest, increase, rate

_EXPIRATION: Final = highest("certificate_expiration_timestamp_seconds", "kind, pod")

STATE: Final = {
    "State": (
        Panel(
            title="Age of the state",
            unit="s",
            queries=(
                (highest("state_age_seconds", "pod"), "{{pod}}"),
                (highest("controller_state_age_seconds", "pod"), "controller {{pod}}"),
                (highest("cluster_state_age_seconds", "cluster"), "worker {{cluster}}"),
                (f"max(kueue_fallback_state_age_limit_seconds{{{OURS}}})", "limit"),
            ),
            text="Above the limit Jobs are left as they were submitted.",
        ),
        Panel(
            title="Age of each watch",
            unit="s",
            queries=((highest("watch_age_seconds", "resource"), "{{resource}}"),),
            text="The oldest over all replicas.",
        ),
        Panel(
            title="Lists",
            unit="none",
            queries=(
                (increase("watch_relists_total", "resource"), "{{resource}}"),
                (
                    increase("controller_watch_relists_total", "resource"),
                    "controller {{resource}}",
                ),
            ),
            text="One at each start; more are watches that broke.",
        ),
        Panel(
            title="Placements in the ledger",
            unit="none",
            queries=((highest("ledger_placements", "pod"), "{{pod}}"),),
            text="Decisions whose Workloads are not seen yet.",
        ),
        Panel(
            title="Placements",
            unit="ops",
            queries=(
                (rate("placements_total", "pod"), "entered: {{pod}}"),
                (rate("placements_expired_total", "pod"), "never seen: {{pod}}"),
            ),
        ),
        Panel(
            title="Age of forecasts",
            unit="s",
            queries=((highest("forecast_age_seconds", "pod"), "{{pod}}"),),
            text="The oldest change that none contains; below 2 s at most times.",
        ),
        Panel(
            title="Queues that are forecast",
            unit="none",
            queries=((highest("forecast_queues", "pod"), "{{pod}}"),),
            text="Those of policies that decide by finish time, and their cohorts.",
        ),
        Panel(
            title="Classes of Jobs remembered",
            unit="none",
            queries=((highest("run_time_classes", "pod"), "{{pod}}"),),
            text="Of their runs, forecasts are made.",
        ),
        Panel(
            title="Records of runs and of the journal written",
            unit="ops",
            queries=(
                (rate("run_time_record_writes_total", "result"), "runs {{result}}"),
                (rate("journal_writes_total", "result"), "journal {{result}}"),
            ),
        ),
        Panel(
            title="Objects that cannot be read",
            unit="none",
            queries=(
                (highest("unreadable_objects", "resource"), "{{resource}}"),
                (highest("controller_unreadable_objects", "resource"), "controller {{resource}}"),
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
            queries=((increase("certificate_reloads_total", "result"), "{{result}}"),),
        ),
    ),
    "Processes": (
        Panel(
            title="CPU",
            unit="none",
            queries=(
                (f"rate(process_cpu_seconds_total[$__rate_interval]) {PROCESSES}", "{{pod}}"),
                (rate("observer_process_cpu_seconds_total", "pod"), "observer {{pod}}"),
            ),
            text="Cores in use: servers and controller, and the servers' observers.",
        ),
        Panel(
            title="Memory",
            unit="bytes",
            queries=(
                (f"process_resident_memory_bytes {PROCESSES}", "{{pod}}"),
                (highest("observer_process_resident_memory_bytes", "pod"), "observer {{pod}}"),
            ),
        ),
        Panel(
            title="Open files",
            unit="none",
            queries=((f"process_open_fds {PROCESSES}", "{{pod}}"),),
        ),
        Panel(
            title="Up for",
            unit="s",
            queries=((f"time() - (process_start_time_seconds {PROCESSES})", "{{pod}}"),),
        ),
        Panel(
            title="Starts of the observer",
            unit="none",
            queries=((highest("observer_starts_total", "pod"), "{{pod}}"),),
            text="One for each start of its server; more are crashes.",
        ),
        Panel(
            title="Versions",
            unit="none",
            queries=((f"count by (version) (kueue_fallback_build_info{{{OURS}}})", "{{version}}"),),
            number=True,
        ),
    ),
}
