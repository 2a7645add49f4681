"""What all tests share: how many examples the property tests take (HYPOTHESIS_PROFILE)."""

import os
import sys

import pytest
from hypothesis import HealthCheck, settings

pytest.register_assert_rewrite("tests.api_contract", "tests.recoveries")

# Time is no criterion here: the machine may be busy with a control plane meanwhile.
_SHARED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)

# A change is judged by the same examples wherever it is tested; `make verify` draws new ones.
settings.register_profile("usual", _SHARED, max_examples=200, derandomize=True)
settings.register_profile("full", _SHARED, max_examples=1_000)
_WORLDS = int(os.environ.get("WORLDS", "100000"))
settings.register_profile("worlds", _SHARED, max_examples=_WORLDS)
_PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "usual")
settings.load_profile(_PROFILE)

FULL = bool(os.environ.get("FULL"))
"""Take the time that `make test` does not have."""
THOROUGH = {"usual": 300, "full": 5_000, "worlds": _WORLDS}[_PROFILE]
"""Examples for what must hold for every Job and every policy."""

# Else each of hundreds of processes compiles all modules, and each worker all tests, every time.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Tests that run beside others are given the width of somebody's terminal.
os.environ.pop("COLUMNS", None)
