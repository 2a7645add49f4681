"""What all tests share: examples of the property tests (HYPOTHESIS_PROFILE), what is on planes."""

import itertools
import os
import sys
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from hack import paper
from hack.install import PATIENT, Installation
from hack.plane import Plane

pytest.register_assert_rewrite("tests.api_contract", "tests.recoveries")

# Time is no criterion here: the machine may be busy with a control plane meanwhile.
_SHARED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)

# A change is judged by the same examples wherever it is tested; `make verify` draws new ones.
settings.register_profile("usual", _SHARED, max_examples=50, derandomize=True)
settings.register_profile("full", _SHARED, max_examples=1_000)
_WORLDS = int(os.environ.get("WORLDS", "100000"))
settings.register_profile("worlds", _SHARED, max_examples=_WORLDS)
_PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "usual")
settings.load_profile(_PROFILE)

FULL = bool(os.environ.get("FULL"))
"""Take the time that `make test` does not have."""
THOROUGH = {"usual": 75, "full": 5_000, "worlds": _WORLDS}[_PROFILE]
"""Examples for what must hold for every Job and every policy."""

# Else each of hundreds of processes compiles all modules, and each worker all tests, every time.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Tests that run beside others are given the width of somebody's terminal.
os.environ.pop("COLUMNS", None)

HERE = Path(__file__).parent
LOG_LINES = 25
PLANE_FIXTURES = ("plane", "own_plane")
"""Of the folders in which processes run: `tests/e2e` has real control planes, the other not."""
_numbers = itertools.count(1)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let one worker run the tests of a module of processes, in their order: they share a plane."""
    for item in items:
        if item.path.parent in (HERE / "e2e", HERE / "processes"):
            item.add_marker(pytest.mark.xdist_group(item.path.stem))


@pytest.fixture(scope="module")
def own_webhook(own_plane: Plane) -> Iterator[Installation]:
    with Installation(own_plane, chart_values=PATIENT) as installed:
        yield installed


@pytest.fixture
def namespace(plane: Plane) -> Iterator[str]:
    """A namespace of the shared plane for one test."""
    name = f"test-{next(_numbers)}"
    plane.client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    yield name
    plane.client.delete("v1", "Namespace", name)


@pytest.fixture
def queues(plane: Plane, namespace: str) -> Iterator[paper.Names]:
    """The paper's queues, under names of which the cluster-scoped ones are this test's alone."""
    names = paper.names_with(namespace, namespace=namespace)
    items = paper.queues(names)
    plane.client.apply_all(items)
    yield names
    plane.client.delete_all(items)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the end of each program's log below a failure."""
    report = yield
    if report.failed:
        for name in PLANE_FIXTURES:
            found = getattr(item, "funcargs", {}).get(name)
            if isinstance(found, Plane):
                report.sections.extend(_ends_of_logs(found.state / "logs"))
    return report


def _ends_of_logs(folder: Path) -> Iterator[tuple[str, str]]:
    """Read the ends of the logs; KWOK's says nothing but that its nodes are alive."""
    for path in sorted(folder.glob("*.log")):
        lines = path.read_text(errors="replace").splitlines()[-LOG_LINES:]
        if lines and path.stem != "kwok":
            yield str(path), "\n".join(line[:500] for line in lines)
