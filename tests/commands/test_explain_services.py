"""What `kubectl fallback explain` says of a service: replicas, use, latency and cost by option."""

import json
from pathlib import Path

import pytest
import yaml

from tests.commands.calling import call
from tests.learn.served import points_of
from webhook.jobs import BY_NAME
from webhook.learn import job_class
from webhook.learn.run_records import ClassRecord, config_map, shard_of

CASES = Path("tests/cases")
CASE = yaml.safe_load(
    (CASES / "a_service_goes_to_the_cheaper_device_that_meets_its_latency.yaml").read_text()
)


@pytest.fixture
def arguments(tmp_path):
    items = yaml.safe_load((CASES / "worlds" / "serving.yaml").read_text())
    cluster, service = tmp_path / "cluster.json", tmp_path / "service.json"
    cluster.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    service.write_text(json.dumps(CASE["job"]))
    return ["explain", "-f", str(service), "--snapshot", str(cluster)]


def told(arguments):
    found = call(*arguments)
    assert found.exit_code == 0, found.output
    return found.output


def test_each_option_has_its_replicas_their_use_latency_and_cost(arguments):
    lines = [line.split() for line in told(arguments).splitlines()]

    start = next(index for index, words in enumerate(lines) if words[:1] == ["OPTION"])
    header, *rows = lines[start : start + 4]
    head = "OPTION QUEUE REPLICAS USED LATENCY RATES POWER CO2 AN HOUR WHY"
    assert " ".join(header) == head
    assert rows[0] == ["h100", "h100-lq", "2", "75%", "178ms", "6", "?", "?", "6", "-"]
    assert rows[1] == [">", "l40s", "l40s-lq", "5", "80%", "280ms", "5", "?", "?", "5", "-"]
    assert rows[2][:9] == ["t4", "t4-lq", "-", "-", "-", "?", "?", "?", "?"]
    assert rows[2][9] == "latencyNotMet:"


def test_as_json_they_are_numbers_and_the_cost_is_of_an_hour(arguments):
    options = json.loads(told([*arguments, "-o", "json"]))["decision"]["options"]

    h100, l40s, t4 = options
    keys = ("name", "replicas", "utilisation", "latency")
    assert [h100[key] for key in keys] == ["h100", 2, 0.75, 0.178]
    assert [l40s[key] for key in keys] == ["l40s", 5, 0.8, 0.28]
    assert (h100["cost"]["total"], l40s["cost"]["total"]) == (6, 5)
    assert t4["rejected"].startswith("latencyNotMet: ")
    assert not t4.keys() & {"replicas", "latency", "cost"}


LEARNED = yaml.safe_load(
    (CASES / "a_service_is_sized_by_what_was_learned_of_a_replica.yaml").read_text()
)


def test_an_option_says_from_how_many_points_what_a_replica_does_is_learned(tmp_path):
    own = job_class.of_job(BY_NAME["Deployment"].read(LEARNED["job"]))
    served = {place: points_of(**speed) for place, speed in LEARNED["served"].items()}
    records = config_map(shard_of(own.key), {own.key: ClassRecord(served=served)})
    records["metadata"]["namespace"] = "kueue-fallback"
    items = yaml.safe_load((CASES / "worlds" / "serving.yaml").read_text())
    replaced = {(each["kind"], each["metadata"]["name"]) for each in LEARNED["objects"]}
    kept = [each for each in items if (each["kind"], each["metadata"]["name"]) not in replaced]
    cluster, service = tmp_path / "cluster.json", tmp_path / "service.json"
    cluster.write_text(json.dumps({"kind": "List", "items": [*kept, *LEARNED["objects"], records]}))
    service.write_text(json.dumps(LEARNED["job"]))
    arguments = ["explain", "-f", str(service), "--snapshot", str(cluster)]

    output = told(arguments)
    (row,) = [line.split() for line in output.splitlines() if line.split()[:2] == [">", "l40s"]]
    _, l40s = json.loads(told([*arguments, "-o", "json"]))["decision"]["options"]

    assert " ".join(row).endswith("198ms 2.8 ? ? 2.8 learned from 24 points")
    assert l40s["learnedFrom"] == 24
