"""A journal that version 0.1.0 wrote, with short keys, is read and reported as it was."""

import json
from pathlib import Path

import pytest

from tests.commands.calling import call
from webhook.commands import history

STATE = Path(__file__).parent / "journal_of_0_1_0.json"
"""Queues, policies, and the journal of an hour: Jobs of a replay, and one of each kind of case that
``decided_by_0_1_0.json`` has."""
REPORT = Path(__file__).parent / "report_of_0_1_0.json"
"""What version 0.1.0 reported of it."""


def test_what_version_0_1_0_kept_is_reported_as_it_was():
    found = json.loads(call("report", "--snapshot", str(STATE), "-o", "json").output)

    reported = json.loads(REPORT.read_text())
    assert {name: found[name] for name in reported} == reported


@pytest.fixture
def entries():
    return {entry.name: entry for entry in history.from_file(str(STATE)).entries}


def test_every_entry_that_version_0_1_0_wrote_is_read(entries):
    assert len(entries) == 38
    assert {name: (entry.policy, entry.option) for name, entry in entries.items()} == {
        **{f"heavy-{number}": ("heavy", "gpu") for number in range(1, 16)},
        **{f"light-{number}": ("light", "gpu") for number in range(7, 16)},
        **{f"light-{number}": ("light", "cpu") for number in range(1, 7)},
        "decided-0": ("light-gpu", "cpu"),
        "decided-1": ("light-gpu", ""),
        "decided-2": ("tiers", "h100"),
        "decided-3": ("tiers", "l40s"),
        "decided-4": ("light-gpu", "remote"),
        "decided-5": ("light-gpu", "gpu"),
        "decided-6": ("light-gpu", "gpu"),
        "decided-7": ("light-gpu", "cpu"),
    }


def test_what_version_0_1_0_kept_of_a_decision_is_read(entries):
    left, held, remote, stays, refused, moved = (
        entries[f"decided-{n}"] for n in (1, 2, 4, 5, 6, 7)
    )

    assert (left.decision.left_alone, left.annotations) == (
        "unreadable",
        {"kueue-fallback.dev/deadline": "soon"},
    )
    assert (held.expected_cost.money, held.expected_cost.kwh) == (3.25, 0.551)
    assert held.expected_cost.electricity is None
    assert (remote.cluster, remote.options[1].queue, remote.options[1].runs) == (
        "a",
        "gpu-lq",
        90.0,
    )
    assert stays.options[1].passed_over == "smallGain"
    assert refused.options[1].rejected == "keepsFailing"
    assert (moved.moves, moved.ran == moved.submitted) == (2, False)
    assert dict(moved.used) == {("gpu", "cpu"): 4000, ("gpu", "nvidia.com/gpu"): 1}
