"""The dashboard's row of what was decided, and what came of it."""

from typing import Final

from hack.panels import OURS, POLICY, Panel, highest, increase, rate

DECISIONS: Final = {
    "Decisions": (
        Panel(
            title="Decisions by option",
            unit="ops",
            queries=(
                (rate("decisions_total", "policy, option", POLICY), "{{policy}}: {{option}}"),
            ),
            text="Option none: the Job stayed as it was submitted.",
        ),
        Panel(
            title="Decisions by mode and reason",
            unit="ops",
            queries=((rate("decisions_total", "mode, reason", POLICY), "{{mode}} {{reason}}"),),
        ),
        Panel(
            title="Options refused",
            unit="ops",
            queries=(
                (rate("rejections_total", "option, reason", POLICY), "{{option}}: {{reason}}"),
            ),
        ),
        Panel(
            title="Classes of Jobs refused an option",
            unit="none",
            queries=(
                (highest("keeps_failing", "policy, option", POLICY), "{{policy}} {{option}}"),
            ),
            text="What they run failed there three times and succeeds elsewhere.",
        ),
        Panel(
            title="Jobs that were not ours to decide",
            unit="ops",
            queries=((rate("skipped_total", "reason"), "{{reason}}"),),
        ),
        Panel(
            title="Decided values put back",
            unit="ops",
            queries=((rate("restorations_total", "pod"), "{{pod}}"),),
            text="Manifests that were applied again.",
        ),
        Panel(
            title="Pending Jobs moved",
            unit="ops",
            queries=((rate("moves_total", "outcome"), "{{outcome}}"),),
        ),
        Panel(
            title="Why Jobs were not moved",
            unit="ops",
            queries=((rate("unmoved_total", "reason"), "{{reason}}"),),
        ),
        Panel(
            title="Moves asked for by the controller",
            unit="ops",
            queries=(
                (rate("controller_moves_total", "outcome"), "{{outcome}}"),
                (highest("controller_moves_in_flight", "pod"), "in flight, {{pod}}"),
            ),
        ),
        Panel(
            title="Time gained by moves",
            unit="s",
            queries=(
                (
                    increase("controller_move_gained_seconds_total", "policy", POLICY, "$__range"),
                    "{{policy}}",
                ),
            ),
            text="As it was expected of all who wait together.",
        ),
        Panel(
            title="Pending Jobs that cannot be moved",
            unit="none",
            queries=((highest("controller_not_moved_jobs", "reason"), "{{reason}}"),),
        ),
        Panel(
            title="Jobs created without a review",
            unit="none",
            queries=(
                (increase("unreviewed_jobs_total", "policy", POLICY, "$__range"), "{{policy}}"),
                (increase("unjudged_jobs_total", "pod", OURS, "$__range"), "not judged"),
            ),
            text="In the time shown. Of policies in mode Observe it cannot be told.",
            number=True,
        ),
        Panel(
            title="Policies that are ready",
            unit="bool_yes_no",
            queries=((highest("policy_ready", "policy", POLICY), "{{policy}}"),),
            text="The condition Ready: every option can be taken as the cluster stands.",
            number=True,
        ),
        Panel(
            title="Kueue is untested",
            unit="bool_yes_no",
            queries=((highest("kueue_untested", "reason"), "{{reason}}"),),
            text="Policies that enforce only observe then, unless a setting says otherwise.",
            number=True,
        ),
        Panel(
            title="Policies",
            unit="none",
            queries=((highest("policies", "ready"), "ready: {{ready}}"),),
        ),
        Panel(
            title="Statuses of policies written",
            unit="ops",
            queries=((rate("policy_status_writes_total", "result"), "{{result}}"),),
        ),
        Panel(
            title="Controller that leads",
            unit="bool_yes_no",
            queries=((highest("controller_leader", "pod"), "{{pod}}"),),
            text="One of them writes; the others follow, to take over when it ends.",
        ),
    ),
}
