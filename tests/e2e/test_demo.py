"""`make demo-kueue` after its control plane has started, in a fraction of its time."""

import pytest

from bench.experiment import objects
from bench.experiment.rounds import STAGGER_SECONDS
from hack import played_burst
from hack.played_burst import Pace
from tests.e2e.decisions import POLICY_API

PACE = Pace(faster=12.0, stagger_seconds=STAGGER_SECONDS)


@pytest.fixture
def picture(plane, tmp_path):
    yield tmp_path / "demo.png"
    for policy in plane.client.list(POLICY_API, "FallbackPolicy"):
        if objects.PART_OF.items() <= policy["metadata"].get("labels", {}).items():
            plane.client.delete(POLICY_API, "FallbackPolicy", policy["metadata"]["name"])


def test_the_demonstration_shows_what_it_saves_and_how_to_ask_and_object(webhook, picture, capsys):
    played_burst.play_on(webhook, PACE, picture=picture)

    printed = capsys.readouterr().out
    assert all(f"\n{title}" in printed for title in played_burst.TITLES.values())
    assert f"{webhook.endpoints['console']}/" in printed
    commands = [line for line in printed.splitlines() if line.startswith("$ ")]
    assert [line.split()[3] for line in commands] == ["explain", "report", "undo"]
    assert "How sure: a replay of what happened" in printed
    assert picture.read_bytes().startswith(b"\x89PNG")
