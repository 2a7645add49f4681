"""A minute of a tenant who tries everything that a right to Jobs allows: nobody else notices."""

import os

from hack import tenant

SEED = int(os.environ.get("FUZZ_SEED", "1"))
LARGER = 2.0
"""What a minute may add: others' first Jobs, beside the tenant's, still fill what is kept."""


def test_a_hostile_tenant_is_not_noticed(own_webhook):
    found = tenant.hour(
        own_webhook,
        seconds=60.0,
        alone_seconds=20.0,
        rates=(10.0, 5.0),
        seed=SEED,
        is_compared=False,
    )

    assert tenant.restarts(found) == 0
    assert tenant.wrong_decisions(found) == 0
    assert tenant.errors(found) == 0
    assert tenant.harms(found) == 0
    assert found["beside"]["counted"] == dict.fromkeys(tenant.COUNTED, 0.0)
    assert max(tenant.growths(found).values()) < LARGER
