"""Jobs that an older version decided, with annotations as it wrote them, go on as new ones do."""

import copy
import json
from pathlib import Path

import pytest

from tests.flow.moves import move, pending, plain, reconsidering
from tests.reviews import light_job
from tests.servers import Server
from webhook.flow import decided_job
from webhook.jobs import KINDS
from webhook.model.signatures import SigningKey, SigningKeys

KIND = KINDS["batch", "v1", "Job"]
KEYS = SigningKeys(
    keys=(SigningKey(id="a", made=1, secret=b"1" * 32),), signing="a", since=1_780_000_000
)
JOBS = json.loads((Path(__file__).parent / "decided_before.json").read_text())
"""Decided, moved, and decided with a signature."""


@pytest.mark.parametrize(("name", "keys"), [("created", None), ("moved", None), ("signed", KEYS)])
def test_what_an_older_version_decided_is_undone(name, keys):
    found = decided_job.read_stored(JOBS[name], KIND, keys)

    assert found.doubt is None
    assert plain(found.recovered().submitted_source["spec"]) == plain(pending(light_job())["spec"])
    assert found.recovered().submitted.labels == light_job()["metadata"]["labels"]


def test_what_an_older_version_moved_is_moved_on_and_keeps_its_stays():
    old = copy.deepcopy(JOBS["moved"])

    moved, _ = move(Server(reconsidering(pending=0)), old, "gpu")

    found = decided_job.read_stored(moved, KIND, None).believed
    before = decided_job.read_stored(old, KIND, None).believed
    assert found.history[:-1] == before.history
    assert (found.moves, found.from_queue) == (2, "gpu-lq")
    assert found.history[-1].reason == found.reason == "moved to gpu-lq (gpu): as asked"
