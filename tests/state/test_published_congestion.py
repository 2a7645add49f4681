"""What others use beside held Jobs, as one leader leaves it for the next."""

import json

import pytest

from webhook.learn.others_use import HOURS, OthersUse, ReleasedJob
from webhook.model.costs.prices import NO_CONGESTION
from webhook.model.fields import FieldError
from webhook.state.published_congestion import (
    MOST_USES,
    patch_of_use,
    read_congestion,
    read_use,
)

GPU, CPU = ("t4", "nvidia.com/gpu"), ("t4", "cpu")


def many(number):
    others = OthersUse()
    for each in range(number):
        name = f"cluster-queue-{each:04}-" + "of-a-team" * 4
        others.typical[name, GPU] = [1234.5678 + hour for hour in range(HOURS)]
        others.released.append(ReleasedJob(2e9 + each, name, {GPU: 8, CPU: 64_000}))
    return others


def test_what_is_published_is_read_back():
    others = OthersUse()
    others.typical["gpu-cq", GPU] = [float(hour) for hour in range(HOURS)]
    others.released = [ReleasedJob(2e9, "gpu-cq", {GPU: 2})]

    found = read_use(patch_of_use(others))

    assert (found.typical, found.released) == (others.typical, others.released)


def test_however_many_there_are_a_config_map_holds_them():
    published = patch_of_use(many(3 * MOST_USES))
    found = read_use(published)

    assert len(found.typical) == MOST_USES
    # Those of which most is to come.
    assert min(job.until for job in found.released) == 2e9 + 2.5 * MOST_USES
    assert len(json.dumps(published)) < 500_000


def test_beside_it_nothing_is_scarce_until_prices_are_published():
    assert read_congestion(patch_of_use(many(1))) == NO_CONGESTION


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        json.dumps({"cells": [{"queue": "q", "flavor": "f", "resource": "r", "hours": [1]}]}),
        json.dumps({"cells": [{"queue": "q", "flavor": "f", "resource": "r", "hours": [-1] * 24}]}),
        json.dumps({"released": [{"until": "soon"}]}),
    ],
)
def test_what_somebody_else_wrote_there_is_refused(text):
    with pytest.raises(FieldError):
        read_use({"data": {"others-use.json": text}})
