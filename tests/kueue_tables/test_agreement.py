"""Replays Kueue's own scheduler tests; the cases in which our model differs are listed by name.

Those of one table, or of a few words of their names:
`pytest tests/kueue_tables -k "TestSchedule and lending"`.
"""

import pytest

from tests.kueue_tables import agreement
from tests.kueue_tables.tables import cases

CASES = [case for table in agreement.REPLAYS for case in cases(table)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.table}: {case.name}")
def test_case(case):
    reason = agreement.reasons(case.table).get(case.name)

    ours, kueues = agreement.replayed(case)

    if reason is None:
        assert ours == kueues
    else:
        assert ours != kueues, f"it agrees by now, so it need not be listed ({reason})"


@pytest.mark.parametrize("table", agreement.REPLAYS)
def test_no_table_falls_below_the_share_that_it_has_reached(table):
    agreeing, in_scope = agreement.share(table)

    assert agreement.percent(agreeing, in_scope) >= agreement.listed()[table]["at least"]


def test_only_cases_that_there_are_are_listed():
    known = {(case.table, case.name) for case in CASES}

    listed = {(table, name) for table in agreement.listed() for name in agreement.reasons(table)}
    assert listed - known == set()
