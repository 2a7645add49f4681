"""What all tests share: examples of the property tests (HYPOTHESIS_PROFILE), logs of planes."""

import os
import sys
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

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

LOG_LINES = 25
PLANE_FIXTURES = ("plane", "own_plane")


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
