"""Renderings of the chart, as objects that tests can ask for."""

import functools

import pytest

from tests.chart import helm


class Rendering:
    """The objects of one rendering, by kind and name."""

    def __init__(self, objects):
        self.made = len(objects)
        self.objects = {(each["kind"], each["metadata"]["name"]): each for each in objects}

    def one(self, kind, name="kueue-fallback"):
        return self.objects[kind, name]

    def pod(self, name="kueue-fallback"):
        return self.one("Deployment", name)["spec"]["template"]


def pytest_collection_modifyitems(items):
    """Let one worker run them all, so that each set of values is rendered once."""
    for item in items:
        if item.path.is_relative_to(helm.CHART.parent / "tests/chart"):
            item.add_marker(pytest.mark.xdist_group("chart"))


@functools.cache
def rendered(values, kubernetes, release):
    version = [f"--kube-version={kubernetes}"] if kubernetes else []
    result = helm.template(dict(values), *version, release=release)
    assert result.returncode == 0, result.stderr
    return Rendering(helm.objects_of(result))


@pytest.fixture(scope="session")
def render():
    """Render once for each set of values; tests must not change what they get."""

    def run(values=None, *, kubernetes=None, release="kueue-fallback"):
        return rendered(tuple(sorted((values or {}).items())), kubernetes, release)

    return run


@pytest.fixture(scope="session")
def refusal():
    """Render values that must be refused, and return what is said of them."""

    def run(values):
        result = helm.template(values)
        assert result.returncode == 1, result.stdout
        return result.stderr

    return run
