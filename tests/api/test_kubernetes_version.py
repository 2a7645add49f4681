"""From which version of Kubernetes on a suspended Job's resources can change."""

import pytest

from webhook.api.client import lets_resources_change


@pytest.mark.parametrize(
    ("version", "lets"),
    [
        ({"major": "1", "minor": "36"}, True),
        ({"major": "1", "minor": "36+"}, True),
        ({"major": "2", "minor": "0"}, True),
        ({"major": "1", "minor": "35"}, False),
        ({"major": "1", "minor": "36", "emulationMajor": "1", "emulationMinor": "35"}, False),
        ({"major": "v1", "minor": "x"}, False),
        ({}, False),
    ],
)
def test_it_is_so_from_1_36_on(version, lets):
    assert lets_resources_change(version) is lets
