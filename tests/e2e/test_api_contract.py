"""The real API server does what the embedded one does, too."""

import pytest

from tests import api_contract


@pytest.mark.parametrize("holds", api_contract.ALL, ids=lambda each: each.__name__)
def test_the_real_api_server_keeps_the_contract(plane, namespace, holds):
    holds(plane, namespace)
