"""What all tests share: how many examples the property tests take (HYPOTHESIS_PROFILE)."""

import os

from hypothesis import HealthCheck, settings

# Time is no criterion here: the machine may be busy with a control plane meanwhile.
_SHARED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)

settings.register_profile("quick", _SHARED, max_examples=200)
settings.register_profile("full", _SHARED, max_examples=1_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "full"))

FULL = bool(os.environ.get("FULL"))
"""Take the time that `make test` does not have."""
THOROUGH = 200 if os.environ.get("HYPOTHESIS_PROFILE") == "quick" else 5_000
"""Examples for what must hold for every Job and every policy."""

# Tests that run beside others are given the width of somebody's terminal.
os.environ.pop("COLUMNS", None)
