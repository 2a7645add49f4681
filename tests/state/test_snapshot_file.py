import json
from pathlib import Path

import pytest
import yaml

from tests.state.objects import (
    CREATED,
    PENDING,
    cluster_queue,
    counted,
    local_queue,
    named,
    workload,
)
from webhook.api.kubernetes_api import Forbidden, NotServed
from webhook.model.fields import FieldError
from webhook.model.queues import Held
from webhook.state.snapshot_file import fetch_snapshot, read_snapshot

EXAMPLE = Path(__file__).parents[2] / "examples" / "snapshot.json"
OBJECTS = [cluster_queue(), local_queue(), workload(conditions=(PENDING,)), named("Pod", "n")]


def written(tmp_path, text):
    path = tmp_path / "snapshot"
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"kind": "List", "items": OBJECTS}),
        yaml.safe_dump({"kind": "List", "items": OBJECTS}),
        yaml.safe_dump_all(OBJECTS),
        yaml.safe_dump_all([{"kind": "List", "items": OBJECTS[:2]}, None, *OBJECTS[2:]]),
        yaml.safe_dump_all(OBJECTS).replace(f"'{CREATED}'", CREATED),
    ],
    ids=["JSON list", "YAML list", "YAML documents", "lists and documents", "times unquoted"],
)
def test_a_file_is_read_whatever_its_form(tmp_path, text):
    snapshot = read_snapshot(written(tmp_path, text), 7.0, 0.0)

    assert list(snapshot.setup.cluster_queues) == ["gpu-cq"]
    assert list(snapshot.setup.local_queues) == [("team", "gpu-lq")]
    assert counted(snapshot) == {"gpu-cq": Held(pending=1)}
    assert (snapshot.as_of, snapshot.fallback.runs_before_kueue) == (7.0, True)


def test_the_example_holds_a_full_queue():
    snapshot = read_snapshot(str(EXAMPLE), 0.0, 0.0)

    held = {name: (held.pending, held.reserving) for name, held in counted(snapshot).items()}
    assert held == {"gpu-cq": (11, 4)}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"items": [', "{path} line 1: expected JSON: Expecting value"),
        ("a: b\n- c", "{path} line 2: expected YAML: did not find expected key"),
        ("[]", "{path}: expected an object, got a list"),
        ('{"items": 3}', "{path} items: expected a list, got a number"),
        (
            json.dumps({"items": [{"kind": "LocalQueue", "metadata": {"name": 3}}]}),
            "{path} items[0].metadata.name: expected a string, got a number",
        ),
        (
            yaml.safe_dump_all([named("Pod", "n"), cluster_queue(stopPolicy="x")]),
            "{path} document 2.spec.stopPolicy: expected one of None, Hold, HoldAndDrain, got 'x'",
        ),
    ],
)
def test_a_mistake_names_the_file_and_the_place(tmp_path, text, message):
    path = written(tmp_path, text)

    with pytest.raises(FieldError) as caught:
        read_snapshot(path, 0.0, 0.0)

    assert str(caught.value) == message.format(path=path)


def test_a_file_that_is_not_there(tmp_path):
    path = str(tmp_path / "none")

    with pytest.raises(FieldError) as caught:
        read_snapshot(path, 0.0, 0.0)

    assert str(caught.value) == f"{path}: No such file or directory"


class Cluster:
    """A transport that answers lists by resource; an exception is raised."""

    def __init__(self, **answers):
        self.answers = answers

    def get(self, path, params=None):
        found = self.answers.get(path.rsplit("/", 1)[1], [])
        if isinstance(found, Exception):
            raise found
        return {"metadata": {}, "items": found}

    def watch(self, path, params, *, read_seconds):
        raise NotImplementedError

    def kueue_version(self):
        return "v1beta2"

    def forget_versions(self):
        raise NotImplementedError


def test_a_live_cluster_is_listed_once():
    cluster = Cluster(
        clusterqueues=[cluster_queue()],
        localqueues=[local_queue()],
        workloads=[workload(conditions=(PENDING,))],
        cohorts=NotServed("cohorts"),
        configmaps=Forbidden("configmaps"),
        mutatingwebhookconfigurations=Forbidden("mutatingwebhookconfigurations"),
    )

    snapshot = fetch_snapshot(cluster, now=0.0, unix=0.0)

    assert counted(snapshot) == {"gpu-cq": Held(pending=1)}
    assert (snapshot.fallback.off, snapshot.fallback.runs_before_kueue) == (None, True)


def test_what_may_not_be_listed_is_named():
    with pytest.raises(Forbidden, match="clusterqueues"):
        fetch_snapshot(Cluster(clusterqueues=Forbidden("clusterqueues")), now=0.0, unix=0.0)


@pytest.mark.parametrize(
    "text",
    ["[" * 200_000, "- " * 200_000, '{"a":' * 200_000, "a: don't\nb: " + "{a: " * 200_000],
    ids=["brackets", "dashes", "JSON", "after an apostrophe"],
)
def test_a_file_of_any_depth_is_refused(tmp_path, text):
    with pytest.raises(FieldError, match="nested more than 128 deep"):
        read_snapshot(written(tmp_path, text), 0.0, 0.0)


def test_brackets_in_texts_are_no_depth(tmp_path):
    text = yaml.safe_dump_all([*OBJECTS, {"kind": "Pod", "metadata": {"name": "[" * 500}}])

    assert read_snapshot(written(tmp_path, text), 0.0, 0.0).setup.cluster_queues
