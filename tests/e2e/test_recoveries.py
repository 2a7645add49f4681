"""After the same faults the processes recover beside a real API server, too."""

import pytest

from tests import recoveries


@pytest.mark.parametrize("fault", recoveries.ON_ANY_PLANE, ids=lambda each: each.__name__)
def test_the_processes_recover_beside_the_real_api_server(own_plane, own_webhook, fault):
    recoveries.recovers(own_plane, own_webhook, fault)
