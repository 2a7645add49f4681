"""What a shell completes, and what is said of misspelt commands."""

import pytest
from click.testing import CliRunner

from tests.commands.apiserver import serving
from tests.commands.cluster import Cluster
from webhook.__main__ import main
from webhook.commands.completion import candidates

OPTION = "kueue-fallback.dev/option"


def job(name, namespace="team", **labels):
    metadata = {"name": name, "namespace": namespace, "labels": labels}
    return {"kind": "Job", "metadata": metadata}


JOBS = [job("train", **{OPTION: "cpu"}), job("try"), job("other"), job("trap", "elsewhere")]
NAMESPACE = {"kind": "Namespace", "metadata": {"name": "team"}}


@pytest.fixture
def words(tmp_path, monkeypatch):
    def run(*given, cluster=None):
        with serving(cluster or Cluster(*JOBS, NAMESPACE), tmp_path, namespace="team") as path:
            monkeypatch.setenv("KUBECONFIG", path)
            *before, incomplete = given
            return candidates(main, before, incomplete)

    return run


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (("explain", "tr"), ["train", "try"]),
        (("explain", "job/tr"), ["job/train", "job/try"]),
        (("explain", "rayj"), ["rayjob/"]),
        (("undo", "Job"), ["job/", "jobset/"]),
        (("undo", "tr"), ["train"]),
        (("explain", "-n", "elsewhere", "tr"), ["trap"]),
        (("explain", "-n", "t"), ["team"]),
    ],
)
def test_names_are_completed_from_the_cluster(words, given, found):
    assert words(*given) == [*found, ":4"]


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
