"""Programs are built once, and those of the control plane that are on PATH are not."""

from pathlib import Path

import pytest

from hack import tools

MINORS = {name: ".".join(tools.program_version(name)[1:].split(".")[:2]) for name in tools.PROGRAMS}
SAID = {
    "etcd": "etcd Version: {}\\nGit SHA: a1b2c3",
    "kube-apiserver": "Kubernetes v{}",
    "kube-controller-manager": "Kubernetes v{}",
    "kube-scheduler": "Kubernetes v{}",
    "kubectl": "Client Version: v{}\\nKustomize Version: v5.7.1",
    "kwok": "kwok version v{} go1.26.1 (linux/amd64)",
    "helm": "v{}+g1a2b3c4",
}


@pytest.fixture
def path(tmp_path, monkeypatch):
    """A folder that is all of PATH but for the shell."""
    folder = tmp_path / "path"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return folder


def put(folder, name, script):
    program = folder / name
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


def saying(name, version):
    flags = " ".join(tools.VERSION_FLAGS[name])
    return f'test "$*" = "{flags}" && printf "{SAID[name].format(version)}"'


@pytest.mark.parametrize("name", tools.VERSION_FLAGS)
def test_a_program_of_the_minor_version_that_is_wanted_is_copied(name, path, tmp_path, capsys):
    put(path, name, saying(name, f"{MINORS[name]}.99"))
    target = tmp_path / name

    assert tools.copied_from_path(name, target)

    assert target.read_bytes() == (path / name).read_bytes()
    said = f"{name} {MINORS[name]}.99 is taken from {path / name}\n"
    assert capsys.readouterr().out == said


def test_a_program_of_another_version_is_built(path, tmp_path, capsys):
    put(path, "etcd", saying("etcd", "2.1.0"))

    assert not tools.copied_from_path("etcd", tmp_path / "etcd")

    said = f"{path / 'etcd'} is 2.1.0; {MINORS['etcd']} is wanted\n"
    assert capsys.readouterr().out == said
    assert not (tmp_path / "etcd").exists()


@pytest.mark.parametrize("script", ["exit 1", "echo etcd", "exec /does/not/exist"])
def test_a_program_that_does_not_say_its_version_is_built(script, path, tmp_path):
    put(path, "etcd", script)

    assert not tools.copied_from_path("etcd", tmp_path / "etcd")


def test_a_script_that_works_only_where_it_is_is_not_copied(path, tmp_path):
    put(path, "etcd-real", saying("etcd", f"{MINORS['etcd']}.1"))
    put(path, "etcd", 'exec "$(dirname "$0")/etcd-real" "$@"')

    assert not tools.copied_from_path("etcd", tmp_path / "etcd")

    assert not (tmp_path / "etcd").exists()


def test_what_is_not_on_path_is_built_and_so_is_kueue(path, tmp_path):
    put(path, "kueue", "echo v0.19.2")

    assert not tools.copied_from_path("kueue", tmp_path / "kueue")
    assert not tools.copied_from_path("kwok", tmp_path / "kwok")


def test_a_program_is_built_once_for_the_same_sources_and_three_builds_are_kept(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(tools, "cache_folder", lambda: tmp_path)
    monkeypatch.setattr(tools, "find_go", lambda: Path("go"))
    made = []

    def build(_, target):
        assert target.suffix == ".partial"
        target.write_text("built")
        made.append(target.stem)

    found = [tools.built_program("client", name, build) for name in ("a1", "a1", "b2", "c3", "d4")]

    assert made == ["a1", "b2", "c3", "d4"]
    assert found[-1].read_text() == "built"
    assert sorted(path.name for path in (tmp_path / "client").iterdir()) == [
        *("b2", "c3", "d4"),
        "lock",
    ]
