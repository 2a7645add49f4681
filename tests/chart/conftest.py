"""Renderings of the chart, as objects that tests can ask for."""

import pytest

from tests.chart import helm as helms


class Rendering:
    """The objects of one rendering, by kind and name."""

    def __init__(self, objects):
        self.objects = {(each["kind"], each["metadata"]["name"]): each for each in objects}

    def one(self, kind, name="kueue-fallback"):
        return self.objects[kind, name]

    def pod(self, name="kueue-fallback"):
        return self.one("Deployment", name)["spec"]["template"]


@pytest.fixture(scope="session")
def helm():
    return helms.helm


@pytest.fixture(scope="session")
def template():
    return helms.template


@pytest.fixture(scope="session")
def render(template):
    """Render once for each set of values; tests must not change what they get."""
    known = {}

    def run(values=None, **more):
        key = (*sorted((values or {}).items()), *more.items())
        if key not in known:
            result = template(values, **more)
            assert result.returncode == 0, result.stderr
            known[key] = helms.objects_of(result)
        return Rendering(known[key])

    return run


@pytest.fixture(scope="session")
def refusal(template):
    """Render values that the schema must refuse, and return the text without its heading."""

    def run(values):
        result = template(values)
        assert result.returncode == 1, result.stdout
        return result.stderr.strip().splitlines()[2]

    return run
