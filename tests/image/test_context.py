"""The Dockerfile's steps, done in folders: what is copied is enough, what is removed not missed."""

import re
import subprocess
import sys
import sysconfig
import venv

import pytest

from hack import image_root
from hack.image import copy_context
from tests.image import dockerfile
from tests.image.dockerfile import ROOT

POLICY = ROOT / "examples/policy.yaml"
# What the layers leave out, made impossible to import; then everything is imported.
WITHOUT = """
import importlib, pkgutil, re, sys
from importlib.abc import MetaPathFinder

names, patterns = set(sys.argv[1].split()), sys.argv[2]

class Removed(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name in names or re.match(patterns, name):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Removed())
found = []
for top in ("certs", "webhook"):
    package = importlib.import_module(top)
    for module in pkgutil.walk_packages(package.__path__, f"{top}."):
        if not module.name.endswith((".gunicorn.conf", "__main__")):
            found.append(importlib.import_module(module.name).__name__)
import gunicorn.app.base, kubernetes.client, kubernetes.config
print(len(found))
"""

pytestmark = pytest.mark.xdist_group("packaging")


def run(*command, cwd=None):
    result = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=cwd, timeout=300
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def context(tmp_path_factory):
    return copy_context(ROOT, tmp_path_factory.mktemp("context"))


@pytest.fixture(scope="module")
def environment(context, tmp_path_factory):
    """Build and install the project from the copy, on this machine's dependencies."""
    folder, wheels = tmp_path_factory.mktemp("environment"), tmp_path_factory.mktemp("wheels")
    venv.create(folder)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "here.pth").write_text(sysconfig.get_path("purelib"))
    pip = (sys.executable, "-m", "pip")
    build = ("wheel", "--quiet", "--no-deps", "--no-build-isolation")
    run(*pip, *build, "--wheel-dir", str(wheels), ".", cwd=context)
    install = ("install", "--quiet", "--no-deps", "--no-index", "--no-compile")
    own = ("--find-links", str(wheels), "kueue-fallback", "--ignore-installed")
    run(*pip, "--python", str(folder / "bin/python"), *install, *own)
    return folder


def test_what_is_copied_is_enough_to_check_a_policy(environment, tmp_path):
    text = run(str(environment / "bin/kueue-fallback"), "check", "-f", str(POLICY), cwd=tmp_path)

    assert text == f"{POLICY}:3: FallbackPolicy light-gpu is valid\n"


def test_every_module_is_there_and_needs_nothing_that_is_removed(environment, tmp_path):
    removed = " ".join(
        [
            *image_root.UNUSED.replace(".py", "").split(),
            *image_root.UNUSED_PACKAGES.split(),
            image_root.UNUSED_CLIENT.replace("/", "."),
        ]
    )
    unused = "|".join(name.replace("/", ".") + r"\..*" for name in image_root.UNUSED_MODULES)

    patterns = f"{image_root.UNUSED_C}|{unused}"
    text = run(str(environment / "bin/python"), "-c", WITHOUT, removed, patterns, cwd=tmp_path)

    modules = [p for top in ("certs", "webhook") for p in (ROOT / top).rglob("*.py")]
    left_out = {"__init__.py", "__main__.py", "gunicorn.conf.py"}
    packages = [p for p in modules if p.name == "__init__.py" and p.parent.parent != ROOT]
    assert int(text) == len([p for p in modules if p.name not in left_out]) + len(packages)


def test_the_removed_packages_are_locked_ones():
    locked = (ROOT / "requirements/run.txt").read_text()
    names = {
        name.replace("-", "_") for name in re.findall(r"^([a-z0-9._-]+)==", locked, re.MULTILINE)
    }

    assert set(image_root.UNUSED_PACKAGES.split()) <= names
    assert not names & {"matplotlib", "pytest", "hypothesis", "ruff", "mypy"}


def test_the_layers_are_made_in_the_order_of_the_final_stage():
    _, (build, _) = dockerfile.read()

    made = [each.split() for each in dockerfile.commands(build) if "image_root.py" in each]
    assert {words[2]: words[4] for words in made} == {
        kind: f"/layers/{kind}" for kind in ("dependencies", "python", "project")
    }
