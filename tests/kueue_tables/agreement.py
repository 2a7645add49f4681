"""How far our model agrees with Kueue, and the list of cases in which it does not."""

from pathlib import Path

import yaml

from tests.kueue_tables import assignments, cycles, orders, preemptions, quotas, shares, topologies
from tests.kueue_tables.tables import cases
from webhook.model.fields import FieldError

FILE = Path(__file__).with_name("agreement.yaml")
HEAD = """\
# The cases of Kueue's own scheduler tests in which our model does something else than Kueue 0.19.2.
#
# "out of scope": it cannot be known, or objects that no API server takes, or a Kueue beside which
# policies only observe. "disagree": our model is
# wrong. Each reason stands over the names of its cases. "at least" is the share of the cases in
# scope, in percent, that must agree; raise it with each case that comes to agree.
# `python -m hack.kueue_tables agreement --update` takes out what agrees by now, and puts what is
# not listed under "not looked into".
"""
UNKNOWN = "not looked into"
REPLAYS = {
    "TestSchedule": cycles.one_cycle,
    "TestScheduleForFairSharing": cycles.one_cycle,
    "TestScheduleForAFS": cycles.many_cycles,
    "TestScheduleRecomputePreemptionTargets": cycles.one_cycle,
    "TestScheduleConcurrentAdmission": cycles.one_cycle,
    "TestEntryOrdering": orders.entries,
    "TestEntryComparerLess": orders.less,
    "TestAssignFlavors": assignments.flavors,
    "TestHierarchical": assignments.in_cohort,
    "TestReclaimBeforePriorityPreemption": assignments.in_cohort,
    "TestPreemption": preemptions.classical,
    "TestHierarchicalPreemptions": preemptions.classical,
    "TestFairPreemptions": preemptions.fair,
    "TestCandidatesOrdering": preemptions.order,
    "TestDominantResourceShare": shares.dominant,
    "TestIsPreferred": assignments.preferred,
    "TestResourcesToReserve": assignments.reserved,
    "TestAvailable": quotas.available,
    "TestFindTopologyAssignments": topologies.placed,
}
"""Table to what returns our outcome of a case, and Kueue's."""


def replayed(case):
    """Return our outcome of a case, and Kueue's."""
    try:
        return REPLAYS[case.table](case)
    except FieldError as error:
        return f"cannot be read: {error}", "a decision"


def listed():
    return yaml.safe_load(FILE.read_text()) if FILE.exists() else {}


def reasons(table):
    """Map each listed case of a table to why it does not agree."""
    of_table = listed().get(table, {})
    return {
        name: f"{kind}: {reason}"
        for kind in ("out of scope", "disagree")
        for reason, names in (of_table.get(kind) or {}).items()
        for name in names
    }


def share(table):
    """Return how many of a table's cases in scope agree, and how many are in scope."""
    kinds = [reason.partition(":")[0] for reason in reasons(table).values()]
    in_scope = len(cases(table)) - kinds.count("out of scope")
    return in_scope - kinds.count("disagree"), in_scope


def percent(agreeing, in_scope):
    """Round down, so that 100 means all."""
    return 100 * agreeing // in_scope if in_scope else 100


def report(*, update):
    """Replay all tables and print how far they agree; *update*: also rewrite the list."""
    tables = {table: _found(table) for table in REPLAYS}
    if update:
        text = yaml.safe_dump(tables, sort_keys=False, width=100, allow_unicode=True)
        FILE.write_text(HEAD + text)
    for table, found in tables.items():
        outside, wrong = (
            sum(map(len, found[kind].values())) for kind in ("out of scope", "disagree")
        )
        in_scope = len(cases(table)) - outside
        right = in_scope - wrong
        print(f"{table}: {right} of {in_scope} in scope, {percent(right, in_scope)} %")


def _found(table):
    """Return a table's entry as it should be: what agrees left out, what is new added."""
    before = reasons(table)
    entry = {"at least": 0, "out of scope": {}, "disagree": {}}
    for case in cases(table):
        got, want = replayed(case)
        if got != want:
            kind, _, reason = before.get(case.name, f"disagree: {UNKNOWN}").partition(": ")
            entry[kind].setdefault(reason, []).append(case.name)
    outside, wrong = (sum(map(len, entry[kind].values())) for kind in ("out of scope", "disagree"))
    in_scope = len(cases(table)) - outside
    entry["at least"] = percent(in_scope - wrong, in_scope)
    return entry
