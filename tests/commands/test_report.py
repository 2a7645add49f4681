"""`kubectl fallback report --run-times` on files, and where on a cluster its records are."""

import json

import pytest
import yaml

from tests.commands.calling import call, call_on
from tests.learn.runs import begun as run_begun
from tests.learn.runs import ended, failure, success
from tests.model.policies import VALID
from webhook.learn.device_runs import UNKNOWN_BOUND, DeviceRun, pack
from webhook.learn.estimates import RunTimeLearner
from webhook.learn.run_records import ClassRecord, config_map, shard_of
from webhook.learn.service_points import ServicePoint, pack_points
from webhook.state.readers import OUR_WEBHOOK

NOW = 1_795_240_800
NAME = "registry/stable-diffusion:2 python run.py --steps 20 --prompt something"


@pytest.fixture
def snapshot(tmp_path):
    """A policy, and records of a class that keeps failing on CPUs and of one that runs."""
    policy = json.loads(json.dumps(VALID))
    policy["metadata"] = {"name": "light-gpu", "generation": 1}
    for option, name in zip(policy["spec"]["options"], ("gpu", "cpu"), strict=True):
        option["name"] = name
    runs = RunTimeLearner()
    for number in range(5):
        place = {"name": NAME, "key": "44eea1809923263b", "uid": number}
        runs.add(success(NOW - 1000 + number, seconds=20, **place))
    for number in range(3):
        runs.add(failure(NOW - number, seconds=3, uid=number, key="44eea1809923263b", name=NAME))
    runs.add(ended("model=llama-7b", NOW - 5000, seconds=7200, name="llama"))
    items = [policy]
    for key, record in runs.records.items():
        items.append(config_map(shard_of(key), {key: record}))
        items[-1]["metadata"]["namespace"] = "kueue-fallback"
    path = tmp_path / "snapshot.json"
    path.write_text(json.dumps({"kind": "List", "items": items}))
    return str(path)


def report(*arguments):
    return call("report", "--run-times", *arguments)


def test_each_class_has_a_line_for_its_flavors_and_what_keeps_failing_is_named(snapshot):
    found = report("--snapshot", snapshot)

    lines = [line.split() for line in found.output.splitlines()]
    assert found.exit_code == 0
    assert lines[0][:4] == ["CLASS", "WHAT", "FLAVORS", "RUNS"]
    assert [(line[0], line[-6:]) for line in lines[1:4]] == [
        ("44eea1809923263b", ["plain", "0", "-", "-", "3", "-"]),
        ("44eea1809923263b", ["t4", "5", "20s", "11s-36s", "0", "learned"]),
        ("model=llama-7b", ["t4", "1", "2h", "40m27s-5h56m", "0", "learned"]),
    ]
    assert lines[-1][0] == "44eea1809923263b"
    assert lines[-1][-3:-1] == ["light-gpu", "cpu"]


@pytest.mark.parametrize(("form", "read"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_programs_get_the_same_with_seconds_as_numbers(snapshot, form, read):
    found = read(report("--snapshot", snapshot, "-o", form).output)

    first, second, _ = found["runTimes"]
    assert (first["flavors"], first["seconds"], first["failed"]) == ("plain", None, 3)
    assert (second["flavors"], second["seconds"], second["runs"]) == ("t4", 20.0, 5)
    assert second["low"] < 20 < second["high"]
    assert found["keepsFailing"] == [
        {
            "class": "44eea1809923263b",
            "name": NAME,
            "policy": "light-gpu",
            "option": "cpu",
            "until": "2026-11-22T05:43:24Z",
        }
    ]


@pytest.fixture
def begun(tmp_path):
    """Records of a class whose runs tell how they began."""
    runs = RunTimeLearner()
    for number in range(3):
        beginning = run_begun(reserved=95, admitted=100, ready=130)
        runs.add(ended(finished=NOW - number, uid=number, begun=beginning))
    records = config_map(shard_of("k"), runs.records)
    records["metadata"]["namespace"] = "kueue-fallback"
    path = tmp_path / "snapshot.json"
    path.write_text(json.dumps({"kind": "List", "items": [records]}))
    return str(path)


def test_how_long_runs_took_to_begin_is_told_below(begun):
    found = report("--snapshot", begun)

    assert found.output.splitlines()[2:] == [
        "",
        "From admission until all pods are ready:",
        "FLAVORS  RUNS  MEDIAN  8 OF 10",
        "t4       3     30s     14s-1m2s",
        "",
        "From quota until AdmissionChecks are passed:",
        "CLUSTERQUEUE  RUNS  MEDIAN  8 OF 10",
        "gpu-cq        3     5s      2s-10s",
    ]


def test_where_nothing_has_ended_it_says_so():
    found = report("--snapshot", "examples/snapshot.json")

    assert found.output == "No Workload with a run time has ended yet.\n"


def test_records_are_read_where_the_api_server_sends_reviews_to(tmp_path):
    service = {"clientConfig": {"service": {"namespace": "elsewhere"}}}
    hook = {"metadata": {"name": "ours"}, "webhooks": [{"name": OUR_WEBHOOK, **service}]}
    asked = []

    def answer(method, path, body):
        asked.append(path.partition("?")[0])
        items = [hook] if "mutatingwebhookconfigurations" in path else []
        return 200, [("Content-Type", "application/json")], {"metadata": {}, "items": items}

    for words in (("report",), ("report", "--run-times")):
        call_on(answer, tmp_path, *words)

    assert asked.count("/api/v1/namespaces/elsewhere/configmaps") >= 2
    assert not any("/namespaces/kueue-fallback/" in path for path in asked)


@pytest.fixture
def measured(tmp_path):
    """Records of a class that was measured, and of one that takes all memory at once."""
    runs = RunTimeLearner()
    for key, peaks, part in (("k", range(8000, 8005), 100), ("jax", range(61440, 61445), 805)):
        runs.add(ended(key))
        of_model = pack(
            DeviceRun(NOW + peak, peak, peak, part, 300, 75 if key == "k" else UNKNOWN_BOUND)
            for peak in peaks
        )
        runs.merge(key, ClassRecord(measured={"NVIDIA-A100-SXM4-80GB": of_model}))
    items = [config_map(shard_of(key), {key: record}) for key, record in runs.records.items()]
    for item in items:
        item["metadata"]["namespace"] = "kueue-fallback"
    path = tmp_path / "snapshot.json"
    path.write_text(json.dumps({"kind": "List", "items": items}))
    return str(path)


def test_what_was_measured_of_devices_is_shown(measured):
    found = report("--snapshot", measured)

    assert found.output.splitlines()[-4:] == [
        "Measured of one device:",
        "CLASS  WHAT     RUNS  MEMORY  NEEDS         WATTS  BOUND",
        "jax    trainer  5     60.0Gi  preallocates  300    -",
        "k      trainer  5     7.8Gi   9.5Gi         300    75% compute",
    ]


def test_programs_get_what_was_measured_in_bytes(measured):
    _, use = json.loads(report("--snapshot", measured, "-o", "json").output)["deviceUse"]

    assert use == {
        "class": "k",
        "name": "trainer",
        "runs": 5,
        "peakMemory": 8004 << 20,
        "neededMemory": int((8004 << 20) * 1.15) + (512 << 20),
        "preallocates": False,
        "watts": {"NVIDIA-A100-SXM4-80GB": 300},
        "computeBound": 0.75,
    }


@pytest.fixture
def served(tmp_path):
    """Records of a class of services of which enough is known, and of one of which it is not."""
    seen = [
        ServicePoint(NOW + 900 * hour, 7, 2, 4.0 + 6.0 * (hour % 2), 0.08) for hour in range(12)
    ]
    records = {
        "team/k": ClassRecord(name="deployment/chat", served={"a100/gpu": pack_points(seen)}),
        "team/l": ClassRecord(name="deployment/new", served={"h100/gpu": pack_points(seen[:2])}),
    }
    items = [config_map(shard_of(key), {key: record}) for key, record in records.items()]
    for item in items:
        item["metadata"]["namespace"] = "kueue-fallback"
    path = tmp_path / "snapshot.json"
    path.write_text(json.dumps({"kind": "List", "items": items}))
    return str(path)


def test_what_a_replica_of_a_service_was_learned_to_do_is_shown_with_its_points(served):
    found = report("--snapshot", served)

    assert found.output.splitlines() == [
        "No Workload with a run time has ended yet.",
        "",
        "Observed of one replica of services:",
        "CLASS   WHAT             DEVICE  OPTION  POINTS  REQUESTS/S  LATENCY",
        "team/k  deployment/chat  a100    gpu     12      10          0.08s",
        "team/l  deployment/new   h100    gpu     2       -           -",
    ]


def test_programs_get_what_a_replica_was_learned_to_do(served):
    one, other = json.loads(report("--snapshot", served, "-o", "json").output)["serving"]

    assert one == {
        "class": "team/k",
        "name": "deployment/chat",
        "device": "a100",
        "option": "gpu",
        "points": 12,
        "requestsPerSecond": 10,
        "latency": 0.08,
    }
    assert (other["points"], other["requestsPerSecond"], other["latency"]) == (2, None, None)
