"""Nothing that a stranger has written steers the terminal of who runs a command."""

import ast
import sys
from pathlib import Path

import click
import pytest
from rich.text import Text

import webhook.commands
from tests.learn.runs import success
from webhook.commands import report, terminal
from webhook.learn import job_class
from webhook.learn.estimates import RunTimeLearner, remembered

COMMANDS = Path(webhook.commands.__file__).parent
SAY_THEMSELVES = {"terminal.py", "serve.py"}
"""The place that makes texts harmless, a script for shells, and what serves and has no tables."""
EVIL = "\x1b]0;pwned\x07\x1b[31m\x1b[2Jevil\u202e"


@pytest.mark.parametrize("is_terminal", [True, False])
def test_what_is_said_steers_nothing(monkeypatch, capsys, is_terminal):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal, raising=False)

    terminal.say(f"one {EVIL}\ntwo\tend")
    terminal.tell(Text(EVIL), err=True)

    found = capsys.readouterr()
    assert found.out == "one  ]0;pwned  [31m [2Jevil \ntwo end\n"
    assert found.err.rstrip() == " ]0;pwned [31m [2Jevil"


@pytest.mark.parametrize("is_terminal", [True, False])
def test_what_looks_like_markup_is_text(monkeypatch, capsys, is_terminal):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal, raising=False)
    text = "[red]name[/red] [link=http://evil]x[/] :smile: [/]"

    terminal.say(text, Text(text), *terminal.table((text,), [(text,)], limit=None))
    terminal.tell(text)

    assert click.unstyle(capsys.readouterr().out).splitlines() == [text] * 5


def test_a_class_of_jobs_is_one_cell_of_its_table_whatever_its_command_says():
    name = job_class.name_of(f"busybox{EVIL}\nforged row", ["sh"])
    runs = RunTimeLearner()
    runs.add(success(1000, key="k", name=name))

    header, row = map(str, report.as_text(remembered(runs, (), 0.0), None))

    assert header.startswith("CLASS")
    assert row.startswith("k      busybox ]0;pwned  [31m")
    assert all(char.isprintable() for char in row)


def test_every_command_says_what_it_says_at_the_one_place():
    found = {
        path.name
        for path in COMMANDS.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr in ("echo", "secho", "write")
    }

    assert found - SAY_THEMSELVES == set()
