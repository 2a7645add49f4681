"""Server, observer and controller after all that an API server can do to them."""

import pytest

from tests import recoveries


@pytest.mark.parametrize("fault", recoveries.ON_AN_EMBEDDED_PLANE, ids=lambda each: each.__name__)
def test_the_processes_recover_beside_the_embedded_api_server(own_plane, own_webhook, fault):
    recoveries.recovers(own_plane, own_webhook, fault)
