"""The API server's own view of every object that the chart can make: no unknown or wrong field."""

import pytest
import yaml

from hack.api import APPLY_PATCH
from tests.chart import helm
from tests.chart.values import EVERY_RENDERING
from tests.e2e.chart_objects import NOT_SERVED

QUERY = {"fieldManager": "check", "force": "true", "dryRun": "All", "fieldValidation": "Strict"}


@pytest.fixture(scope="module")
def ours(plane):
    """The namespace for which the chart is rendered."""
    metadata = {"name": helm.NAMESPACE}
    plane.client.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})


@pytest.mark.parametrize("values", EVERY_RENDERING.values(), ids=EVERY_RENDERING)
def test_the_api_server_accepts_every_object_of_every_rendering(plane, ours, values):
    rendered = helm.template(values)
    objects = [each for each in yaml.safe_load_all(rendered.stdout) if each]
    served = [each for each in objects if each["apiVersion"].split("/")[0] not in NOT_SERVED]

    warnings = {
        (each["kind"], each["metadata"]["name"]): plane.client.send(
            "PATCH", plane.client.path_of(each), each, content_type=APPLY_PATCH, query=QUERY
        ).warnings
        for each in served
    }

    assert len(warnings) >= 11
    assert {key: found for key, found in warnings.items() if found} == {}
