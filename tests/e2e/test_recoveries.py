"""After the same faults the processes recover beside a real API server, too."""

import pytest

from hack import paper
from tests import recoveries

NAMES = paper.names_with("recoveries", namespace="default")


@pytest.fixture(scope="module")
def recovering(own_plane, own_webhook):
    own_plane.client.apply_all(paper.queues(NAMES))
    return own_plane


@pytest.mark.parametrize("fault", recoveries.ON_ANY_PLANE, ids=lambda each: each.__name__)
def test_the_processes_recover_beside_the_real_api_server(recovering, own_webhook, fault):
    recoveries.recovers(recovering, own_webhook, NAMES, fault)
