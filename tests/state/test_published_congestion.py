"""What others use beside held Jobs, as one leader leaves it for the next."""

import json
from math import inf

import pytest

from webhook.learn.others_use import HOURS, OthersUse, ReleasedJob
from webhook.model.costs.prices import NO_CONGESTION, CongestionPrices, ScarceCell
from webhook.model.fields import FieldError
from webhook.state.published_congestion import (
    MOST_USES,
    config_map_of,
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


def test_prices_of_worker_clusters_are_read_back_beside_those_of_this_one():
    here = ScarceCell("queue gpu-cq", *GPU)
    there = here._replace(cluster="far")
    known = CongestionPrices(at=60.0, prices={here: 1.0, there: 2.0}, waits={here: 9.0, there: inf})

    published = config_map_of(known)
    written = json.loads(published["data"]["prices.json"])["prices"]

    assert read_congestion(published) == known
    assert [entry.get("cluster") for entry in written] == [None, "far"]


def test_prices_from_before_there_were_those_of_worker_clusters_are_read():
    cell = {"tree": "queue gpu-cq", "flavor": "t4", "resource": "nvidia.com/gpu"}
    text = json.dumps({"at": "1970-01-01T00:01:00Z", "prices": [{**cell, "price": 1.5}]})

    found = read_congestion({"data": {"prices.json": text}})

    assert found.prices == {ScarceCell("queue gpu-cq", *GPU): 1.5}


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
