"""docs/newcomer.md: what the README and ``make up`` say is what was typed."""

from __future__ import annotations

import pytest

from hack import newcomer
from hack.cluster import ROOT, Cluster
from hack.newcomer import NewcomerError, Shell
from hack.up import next_steps
from tests.docs import pages


def test_the_page_has_the_commands_of_the_readme_and_of_make_up():
    told = [command.text.split("  # ")[0] for command in pages.commands(newcomer.PAGE)]

    said = newcomer.said_next(next_steps(Cluster(), bare=False))
    assert told[1:] == [*newcomer.BEFORE, *said, *newcomer.AFTER]


@pytest.mark.parametrize("command", newcomer.BEFORE[1:])
def test_the_readme_tells_of_each_command_before_the_cluster(command):
    assert command.removeprefix(".venv/bin/") in (ROOT / "README.md").read_text()


def test_a_command_begins_where_the_last_one_ended(tmp_path):
    shell = Shell(tmp_path)

    shell.run("mkdir below && cd below")
    shell.run("export GREETING='hello there'")

    assert shell.run('echo "$GREETING in ${PWD##*/}"').output == "hello there in below"


def test_a_command_that_fails_is_named_with_what_it_printed(tmp_path):
    with pytest.raises(NewcomerError, match=r"^\$ echo no; false\nno\n$"):
        Shell(tmp_path).run("echo no; false")
