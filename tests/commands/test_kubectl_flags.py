"""The flags and manners that all commands share with kubectl."""

import re
import sys
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from tests.commands.apiserver import serving
from tests.commands.cluster import Cluster
from webhook.__main__ import main

CONNECTION = ["--as", "--as-group", "--context", "--kubeconfig"]
OF_A_CLUSTER = {
    "advise": ["--all-namespaces", "--namespace", "--output"],
    "check": ["--namespace", "--output"],
    "estimate": ["--namespace", "--output"],
    "explain": ["--all-namespaces", "--namespace", "--output", "--selector"],
    "move": ["--namespace"],
    "off": ["--namespace"],
    "on": ["--namespace"],
    "probe": ["--namespace"],
    "queue": ["--all-namespaces", "--namespace", "--output"],
    "release": ["--namespace"],
    "report": ["--all-namespaces", "--namespace", "--output", "--selector"],
    "status": ["--all-namespaces", "--namespace", "--output"],
    "tail": ["--all-namespaces", "--namespace", "--output", "--selector"],
    "tariff from-opencost": [],
    "undo": ["--namespace"],
    "unfinished": ["--all-namespaces", "--namespace", "--output", "--selector"],
}
OF_JOBS = {"queue", "unfinished"}
SHORT = {
    "--all-namespaces": "-A",
    "--namespace": "-n",
    "--output": "-o",
    "--selector": "-l",
}


def helped(words):
    result = CliRunner().invoke(main, [*words.split(), "--help"])
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.parametrize("words", OF_A_CLUSTER)
def test_a_command_of_a_cluster_has_kubectls_flags_with_one_help(words):
    text = helped(words)

    flags = re.findall(r"^  (?:(-\w), )?(--[\w-]+)", text, re.MULTILINE)
    shared = {name: short for short, name in flags if name in {*CONNECTION, *SHORT}}
    assert sorted(shared) == sorted([*CONNECTION, *OF_A_CLUSTER[words]])
    assert {name: short for name, short in shared.items() if short} == {
        name: short for name, short in SHORT.items() if name in shared
    }
    assert "The kubeconfig's context to use." in text
    if "--output" in shared:
        names = "|name" if words in OF_JOBS else ""
        assert f"[text|wide|json|yaml{names}]" in text


@pytest.mark.parametrize("words", ["", *OF_A_CLUSTER, "simulate"])
def test_usage_is_what_people_type(words, monkeypatch, capsys):
    name = "kueue-fallback" if words == "unfinished" else "kubectl fallback"
    monkeypatch.setattr(sys, "argv", ["webhook", *words.split(), "--help"])

    with pytest.raises(SystemExit):
        main()

    assert capsys.readouterr().out.startswith(f"Usage: {name} {words}".rstrip())


def two_contexts(path, there):
    """Add to a kubeconfig a context that is not the current one; the current one is dead."""
    config = yaml.safe_load(Path(path).read_text())
    (cluster,), (context,) = config["clusters"], config["contexts"]
    dead = {"name": "dead", "cluster": {"server": "http://127.0.0.1:1"}}
    config["clusters"].append(dead)
    config["contexts"].append(
        {
            "name": there,
            "context": {**context["context"], "cluster": cluster["name"], "namespace": "prod"},
        }
    )
    context["context"]["cluster"] = "dead"
    Path(path).write_text(yaml.safe_dump(config))
    return path


def test_a_context_says_which_cluster_and_which_namespace(tmp_path):
    with serving(Cluster(), tmp_path) as kubeconfig:
        path = two_contexts(kubeconfig, "prod")
        found = CliRunner().invoke(
            main, ["explain", "train", "--kubeconfig", path, "--context", "prod"]
        )
        other = CliRunner().invoke(
            main, ["explain", "train", "--kubeconfig", path, "--context", "prodd"]
        )
        current = CliRunner().invoke(main, ["explain", "train", "--kubeconfig", path])

    assert (found.exit_code, found.stderr) == (1, "There is no Job prod/train.\n")
    assert other.exit_code == 1
    assert other.stderr == (
        f"{path}: Invalid kube-config file. Expected object with name prodd in {path}/contexts list"
        "\n"
    )
    assert current.exit_code == 1
    assert current.stderr == (
        "The connection to the server 127.0.0.1:1 was refused - did you specify the right host "
        "or port?\n"
    )
