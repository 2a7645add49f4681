"""A minute of many creates: none fails, each is decided, and the cluster stays the same size."""

import pytest

from bench import soak
from tests.conftest import FULL

pytestmark = pytest.mark.skipif(not FULL, reason="needs the machine for itself; FULL=1 runs it")


def test_a_minute_of_creates_goes_without_an_error(own_webhook):
    found = soak.soak(own_webhook, seconds=60.0, rate=50.0)

    results = [*found["samples"], found["rest"]]
    assert sum(result["calls"] for result in results) == 3000
    assert sum(result["notes"].get("decided", 0) for result in results) == 3000
    assert [each["errors"] for result in results for each in (result, result["deleted"])] == (
        [{}] * 2 * len(results)
    )
    assert sum(result["deleted"]["calls"] for result in results) == (
        3000 // soak.KEEP_EVERY - soak.KEPT
    )
    assert found["counted"] == dict.fromkeys(soak.COUNTED, 0.0)
    assert found["observerRestarts"] == 0.0
    assert set(found["rest"]["memoryMegabytes"]) == {"server", "observer", "controller"}
