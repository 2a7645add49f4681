"""What ends the observer, and what does not."""

import threading

import pytest

from webhook import observer


@pytest.fixture
def raised(monkeypatch, capsys):
    """Let an error escape from a thread of a name; return with what the process would end."""
    ended = []

    def raise_in(name):
        def fail():
            raise RuntimeError("gone wrong")

        thread = threading.Thread(target=fail, name=name)
        thread.start()
        thread.join()
        return ended, capsys.readouterr().err

    monkeypatch.setattr(threading, "excepthook", observer.end_with)
    monkeypatch.setattr(observer.os, "_exit", ended.append)
    return raise_in


def test_without_one_of_its_watches_it_ends_to_be_started_anew(raised):
    ended, told = raised("workloads")

    assert ended == [70]
    assert "RuntimeError: gone wrong" in told


@pytest.mark.parametrize("name", ["console", "console request", "console jobs"])
def test_it_goes_on_without_its_console(raised, name):
    ended, told = raised(name)

    assert ended == []
    assert "RuntimeError: gone wrong" in told


def test_lines_of_the_server_are_taken_over_and_its_end_is_the_observers(monkeypatch, tmp_path):
    ended, lines = [], []
    told = tmp_path / "told"
    told.write_bytes(b"first\nsecond\n")
    monkeypatch.setattr(observer.os, "_exit", ended.append)
    with told.open() as stdin:
        monkeypatch.setattr(observer.sys, "stdin", stdin)
        observer.listen(lines.append)

    assert (lines, ended) == ([b"first\n", b"second\n"], [0])
