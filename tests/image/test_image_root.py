"""A layer depends on what it holds alone: its files, its dates, its byte code."""

import hashlib
import os
import sys

import pytest

from hack import image_root
from hack.image_builder import EPOCH


@pytest.fixture
def root(tmp_path):
    """A file behind two links, as Debian has its libraries."""
    (tmp_path / "usr/lib/x").mkdir(parents=True)
    (tmp_path / "usr/lib/x/libz.so.1.3").write_text("z")
    (tmp_path / "usr/lib/x/libz.so.1").symlink_to("libz.so.1.3")
    (tmp_path / "lib").symlink_to("usr/lib")
    return tmp_path


def test_a_file_is_copied_with_every_link_on_the_way(root, tmp_path_factory):
    layer = tmp_path_factory.mktemp("layer")

    image_root.copy(root / "lib/x/libz.so.1", layer)

    inside = layer / root.relative_to("/")
    assert (inside / "lib").readlink().name == "lib"
    assert (inside / "lib/x/libz.so.1").readlink().name == "libz.so.1.3"
    assert (inside / "usr/lib/x/libz.so.1.3").read_text() == "z"


def test_an_absolute_link_leads_inside_the_layer(root, tmp_path_factory):
    layer = tmp_path_factory.mktemp("layer")
    (root / "python").symlink_to(root / "lib/x/libz.so.1")

    image_root.copy(root / "python", layer)

    inside = layer / root.relative_to("/")
    assert (inside / "python").readlink() == root / "lib/x/libz.so.1"
    assert (inside / "usr/lib/x/libz.so.1.3").read_text() == "z"


def test_the_same_files_make_the_same_layer(tmp_path, monkeypatch):
    one, two = (_layer(tmp_path / name, umask) for name, umask in (("a", 0o022), ("b", 0o077)))

    monkeypatch.setenv("SOURCE_DATE_EPOCH", str(EPOCH))
    for layer in (one, two):
        image_root.finish(layer)

    assert _listed(one) == _listed(two)
    assert {path.name for path in one.rglob("*.pyc")} == {
        f"module.{sys.implementation.cache_tag}.pyc"
    }


def test_everything_is_readable_and_of_one_date(tmp_path, monkeypatch):
    layer = _layer(tmp_path / "a", 0o077)

    monkeypatch.setenv("SOURCE_DATE_EPOCH", str(EPOCH))
    image_root.finish(layer)

    paths = [layer, *layer.rglob("*")]
    assert {path.lstat().st_mtime for path in paths} == {EPOCH}
    modes = {str(path.relative_to(layer)): oct(path.stat().st_mode & 0o7777) for path in paths}
    assert modes["bin/start"] == modes["bin"] == "0o755"
    assert modes["lib/module.py"] == "0o644"
    assert modes["tmp"] == "0o1777"


def test_the_layer_of_the_project_is_what_came_after_the_dependencies(tmp_path):
    environment, below, layer = (tmp_path / name for name in ("environment", "below", "layer"))
    for name in ("lib/old.py", "bin/start"):
        (environment / name).parent.mkdir(parents=True)
        (environment / name).write_text("")
    image_root.copy(environment / "lib/old.py", below)

    image_root.project(environment, layer, below)

    files = [path.name for path in layer.rglob("*") if path.is_file()]
    assert files == ["start"]


def _layer(folder, umask):
    before = os.umask(umask)
    for name in ("lib", "bin", "tmp"):
        (folder / name).mkdir(parents=True)
    (folder / "lib/module.py").write_text("NAMES = {'a', 'b'}\n")
    (folder / "bin/start").write_text("#!/bin/python\n")
    (folder / "bin/start").chmod(0o700)
    (folder / "link").symlink_to("lib/module.py")
    os.umask(before)
    return folder


def _listed(layer):
    return {
        (
            str(path.relative_to(layer)),
            path.lstat().st_mode,
            path.lstat().st_mtime,
            hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "",
        )
        for path in layer.rglob("*")
    }
