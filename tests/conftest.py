"""What all tests share: how many examples the property tests take (HYPOTHESIS_PROFILE)."""

import functools
import os
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Time is no criterion here: the machine may be busy with a control plane meanwhile.
_SHARED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)

# A change is judged by the same examples wherever it is tested; `make verify` draws new ones.
settings.register_profile("quick", _SHARED, max_examples=25, derandomize=True)
settings.register_profile("usual", _SHARED, max_examples=200, derandomize=True)
settings.register_profile("full", _SHARED, max_examples=1_000)
_WORLDS = int(os.environ.get("WORLDS", "100000"))
settings.register_profile("worlds", _SHARED, max_examples=_WORLDS)
_PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "usual")
settings.load_profile(_PROFILE)

FULL = bool(os.environ.get("FULL"))
"""Take the time that `make test` does not have."""
THOROUGH = {"quick": 25, "usual": 300, "full": 5_000, "worlds": _WORLDS}[_PROFILE]
"""Examples for what must hold for every Job and every policy."""

# Else each of hundreds of processes compiles all modules, and each worker all tests, every time.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Tests that run beside others are given the width of somebody's terminal.
os.environ.pop("COLUMNS", None)

HERE = Path(__file__).parent
SLOW = (
    "alerts",
    "api/test_connection.py",
    "api/test_hand_over.py",
    "bench",
    "certs",
    "chart",
    "commands",
    "console",
    "contract",
    "controller",
    "docs/test_commands.py",
    "e2e",
    "fuzz",
    "hack",
    "hindsight",
    "image",
    "kueue/test_preemption_properties.py",
    "learn/test_record_shards.py",
    "learn/test_run_times.py",
    "model/test_recall.py",
    "observer/test_imports.py",
    "properties",
    "server/test_probes.py",
    "serving/test_cost.py",
    "serving/test_observer_link.py",
    "simulate/test_examples.py",
    "simulate/test_expected_arrivals.py",
    "simulate/test_left_out_looks.py",
    "simulate/test_moving.py",
    "simulate/test_plot.py",
    "simulate/test_side_by_side.py",
    "simulate/test_worker_properties.py",
    "state/test_cluster_watches.py",
    "test_packaging.py",
    "test_regret.py",
)
"""Where tests start programs or take seconds: `make quick` leaves these out."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if _is_slow(item.path):
            item.add_marker(pytest.mark.slow)


@functools.cache
def _is_slow(path: Path) -> bool:
    return any(path.is_relative_to(HERE / name) for name in SLOW)
