"""What a shell completes, and what is said of misspelt commands."""

import pytest
from click.testing import CliRunner

from webhook.__main__ import complete, main


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        (["sta"], ["status\tShow policies, queues, and what needs attention.", ":4"]),
        (["queue", "-o", "y"], ["yaml", ":4"]),
        (["tariff", "series", "-f", ""], [":0"]),
        (["explain", "tr"], [":4"]),
    ],
    ids=["a command", "a choice", "a file", "nothing known"],
)
def test_kubectl_is_told_the_words_that_click_knows(words, lines, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["kubectl_complete-fallback", *words])

    complete()

    assert capsys.readouterr().out.splitlines() == lines


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_a_shells_script_completes_this_program_and_not_kubectl(shell, monkeypatch, capsys):
    monkeypatch.setenv("_KUEUE_FALLBACK_COMPLETE", f"{shell}_source")

    with pytest.raises(SystemExit) as ended:
        main([])

    script = capsys.readouterr().out
    assert ended.value.code == 0
    assert "kueue-fallback" in script
    assert "kubectl" not in script


@pytest.mark.parametrize(
    ("word", "hint"),
    [("explian", " Did you mean explain?"), ("xyz", ""), ("stat", " Did you mean status?")],
)
def test_a_misspelt_command_is_answered_with_the_nearest(word, hint):
    result = CliRunner().invoke(main, [word])

    assert result.exit_code == 2
    assert result.stderr.endswith(f"Error: No such command {word!r}.{hint}\n")
