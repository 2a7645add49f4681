"""Tables, times and colours as a person at a terminal gets them."""

import sys

import pytest

from webhook.commands import terminal
from webhook.commands.kubectl import forbidden_once
from webhook.model import words

HEADER = ("NAME", "STATE", "REASON")
ROWS = [("a", "ready", "all is well"), ("a-long-name-it-is", "", "because of something else")]


def test_columns_are_as_wide_as_it_takes():
    assert [*map(str, terminal.table(HEADER, ROWS, limit=None))] == [
        "NAME               STATE  REASON",
        "a                  ready  all is well",
        "a-long-name-it-is  -      because of something else",
    ]


def test_the_widest_columns_are_wrapped_where_they_do_not_fit():
    assert [*map(str, terminal.table(HEADER, ROWS, limit=40, indent=2))] == [
        "  NAME            STATE  REASON",
        "  a               ready  all is well",
        "  a-long-name-it  -      because of",
        "  -is                    something else",
    ]


def test_columns_to_spare_are_left_out_where_there_is_no_room():
    found = terminal.table(HEADER, ROWS, limit=40, spare=("STATE",))

    assert [*map(str, found)] == [
        "NAME               REASON",
        "a                  all is well",
        "a-long-name-it-is  because of something",
        "                   else",
    ]


@pytest.mark.parametrize("limit", range(10, 90, 4))
def test_a_header_is_never_folded(limit):
    header = ("POLICY", "CLUSTERQUEUE", "RESOURCE", "NEXT FREE")
    rows = [("light", "gpu-cq-of-the-team", "nvidia.com/mig-1g.10gb", "in a while, or later")]

    first = str(terminal.table(header, rows, limit=limit)[0])

    assert [name for name in header if name not in first] == []


def test_a_command_to_copy_is_never_wrapped():
    command = "  kubectl fallback explain a-job -n a-namespace"

    assert [*map(str, terminal.fitted(f"a sentence of words\n{command}", 12))] == [
        "a sentence",
        "of words",
        command,
    ]


def test_missing_rights_are_one_line():
    why = '{0} is forbidden: User "ds" cannot list resource "{0}" in API group "g"'

    found = list(forbidden_once([why.format("jobs"), "not JSON", why.format("workloads")]))

    assert found == [
        "not JSON",
        "You may not see jobs, workloads (user ds): what follows leaves them out.",
    ]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.4, "0s"),
        (59.4, "59s"),
        (59.6, "1m"),
        (116, "1m56s"),
        (600, "10m"),
        (3_599.6, "1h"),
        (7_500, "2h5m"),
        (35_999, "10h"),
        (172_799, "48h"),
        (187_200, "2d4h"),
        (863_999, "10d"),
        (1_000_000, "12d"),
    ],
)
def test_a_duration_has_two_units_as_with_kubectl(seconds, text):
    assert words.span(seconds) == text
    assert terminal.ago(seconds) == f"{text} ago"
    assert terminal.ago(-seconds - 0.001).startswith("in ")


@pytest.mark.parametrize(
    ("is_terminal", "columns", "output", "width"),
    [
        (True, "60", "text", 60),
        (True, "60", "wide", None),
        (False, "60", "text", 60),
        (False, "", "text", None),
    ],
)
def test_the_width_is_the_terminals(monkeypatch, is_terminal, columns, output, width):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal, raising=False)
    monkeypatch.setenv("COLUMNS", columns)

    assert terminal.width(output) == width


@pytest.mark.parametrize(
    ("is_terminal", "environment", "coloured"),
    [
        (True, {}, True),
        (True, {"NO_COLOR": "1"}, False),
        (True, {"TERM": "dumb"}, False),
        (False, {}, False),
    ],
)
def test_colours_are_for_terminals_that_want_them(
    monkeypatch, capsys, is_terminal, environment, coloured
):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal, raising=False)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, text in environment.items():
        monkeypatch.setenv(name, text)

    terminal.say(terminal.tinted("ready"), terminal.tinted("anything"))

    ready = "\x1b[32mready\x1b[0m" if coloured else "ready"
    assert capsys.readouterr().out == f"{ready}\nanything\n"


def test_a_cell_does_not_steer_the_terminal():
    assert str(terminal.table(("A",), [("\x1b[2Jx\ty",)], limit=None)[1]) == " [2Jx y"
