"""Renderings of the chart with the helm that the control plane's build keeps in its cache."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from hack import tools

CHART = Path(__file__).resolve().parents[2] / "helm"


class Rendering:
    """The objects of one rendering, by kind and name."""

    def __init__(self, objects):
        self.objects = {(each["kind"], each["metadata"]["name"]): each for each in objects}

    def one(self, kind, name="kueue-fallback"):
        return self.objects[kind, name]

    def pod(self, name="kueue-fallback"):
        return self.one("Deployment", name)["spec"]["template"]


@pytest.fixture(scope="session")
def helm() -> Callable[..., subprocess.CompletedProcess]:
    program = tools.ensure().path("helm")

    def run(*arguments):
        return subprocess.run(
            [program, *arguments], capture_output=True, text=True, check=False, timeout=60
        )

    return run


@pytest.fixture(scope="session")
def template(helm):
    """Run `helm template`; values are given as JSON by their path."""

    def run(values=None, *, release="kueue-fallback"):
        given = [f"--set-json={key}={value}" for key, value in (values or {}).items()]
        return helm("template", release, str(CHART), "--namespace", "ours", *given)

    return run


@pytest.fixture(scope="session")
def render(template):
    def run(values=None, **more):
        result = template(values, **more)
        assert result.returncode == 0, result.stderr
        return Rendering([each for each in yaml.safe_load_all(result.stdout) if each])

    return run


@pytest.fixture(scope="session")
def refusal(template):
    """Render values that the schema must refuse, and return the text without its heading."""

    def run(values):
        result = template(values)
        assert result.returncode == 1, result.stdout
        return result.stderr.strip().splitlines()[2]

    return run
