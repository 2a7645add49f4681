"""What `kubectl fallback explain` says of costs: known figures, and `?` for what is not known."""

import json
from pathlib import Path

import pytest
import yaml

from tests.commands.calling import call
from tests.cost.tariffs import tariff_object

TYPE = {"apiVersion": "kueue-fallback.dev/v1alpha1"}
RENTED = tariff_object(
    "rented",
    rates=[
        {"flavors": ["gpu"], "resources": {"nvidia.com/gpu": "3.00"}},
        {"flavors": ["cpu"], "resources": {"cpu": "0.03"}},
    ],
    electricity=[{"price": "0.20"}],
    carbon=[{"intensity": "400"}],
)
L40S = {"metadata": {"name": "gpu"}, "spec": {"like": "NVIDIA-L40S", "flavors": ["gpu"]}}
NAMELESS = {"metadata": {"name": "gpu"}, "spec": {"flavors": ["gpu"]}}


@pytest.fixture
def files(tmp_path):
    """Return a function that writes a Job of 20 min (70 on CPUs), a policy and a cluster."""
    policy = yaml.safe_load(Path("examples/policy.yaml").read_text(encoding="utf-8"))
    policy["spec"]["options"][1]["slowdown"] = 3.5
    policy["spec"]["strategy"] = {"type": "FinishTime", "finishTime": {"runTime": "20m"}}
    given = {"policy.yaml": policy}
    for name, content in given.items():
        (tmp_path / name).write_text(json.dumps(content), encoding="utf-8")

    def written(tariff=None, profile=None, *others):
        cluster = json.loads(Path("examples/snapshot.json").read_text(encoding="utf-8"))
        # Where nobody waits, each start is known.
        cluster["items"] = [item for item in cluster["items"] if item["kind"] != "Workload"]
        for kind, source in {"Tariff": tariff, "AcceleratorProfile": profile}.items():
            if source is not None:
                cluster["items"].append({**TYPE, "kind": kind, **source})
        cluster["items"] += others
        (tmp_path / "cluster.json").write_text(json.dumps(cluster), encoding="utf-8")
        policy, snapshot = str(tmp_path / "policy.yaml"), str(tmp_path / "cluster.json")
        job = "examples/light-job.yaml"
        return ["explain", "-f", job, "--snapshot", snapshot, "--policy", policy]

    return written


def told(arguments):
    found = call(*arguments)
    assert found.exit_code == 0, found.output
    return found.output


def table(arguments):
    lines = told(arguments).splitlines()
    start = next(index for index, line in enumerate(lines) if line.startswith("Expected cost"))
    return [line.split() for line in lines[start + 1 :]]


def costs(arguments):
    options = json.loads(told([*arguments, "-o", "json"]))["decision"]["options"]
    return {option["name"]: option.get("cost") for option in options}


def test_each_option_has_its_money_energy_and_carbon(files):
    arguments = files(RENTED, L40S)

    # 21.6 min on average (12 to 33) of a GPU at 3.00; 245 W of it, 4 cores of 4 W, 6 GiB of 0.4 W.
    # 79 min on average (37 to 133) of 4 cores at 0.03.
    assert costs(arguments) == {
        "gpu": {
            "money": 1.08,
            "electricity": 0.019,
            "carbonGrams": 38.0,
            "kWh": 0.0951,
            "total": 1.1,
        },
        "cpu": {
            "money": 0.159,
            "electricity": 0.00487,
            "carbonGrams": 9.73,
            "kWh": 0.0243,
            "total": 0.164,
        },
    }
    assert table(arguments) == [
        ["OPTION", "RATES", "POWER", "KWH", "CO2", "TOTAL"],
        ["gpu", "1.08", "0.019", "0.0951", "38", "g", "1.1"],
        ["cpu", "0.159", "0.00487", "0.0243", "9.73", "g", "0.164"],
    ]


def test_the_energy_of_a_device_of_unknown_power_is_unknown_and_never_0(files):
    arguments = files(RENTED, NAMELESS)

    assert costs(arguments)["gpu"] == {"money": 1.08, "total": 1.08}
    assert table(arguments)[1:] == [
        ["gpu", "1.08", "?", "?", "?", "1.08"],
        ["cpu", "0.159", "0.00487", "0.0243", "9.73", "g", "0.164"],
    ]


def test_a_flavor_that_no_rate_names_has_no_known_money(files):
    only_gpu = tariff_object(rates=RENTED["spec"]["rates"][:1])
    arguments = files(only_gpu, L40S)

    assert costs(arguments) == {
        "gpu": {"money": 1.08, "kWh": 0.0951, "total": 1.08},
        "cpu": {"kWh": 0.0243},
    }
    assert table(arguments)[1:] == [
        ["gpu", "1.08", "?", "0.0951", "?", "1.08"],
        ["cpu", "?", "?", "0.0243", "?", "?"],
    ]


def test_a_rate_of_0_is_a_known_one(files):
    free = tariff_object(rates=[{"flavors": ["gpu", "cpu"], "resources": {"cpu": "0"}}])

    found = costs(files(free, L40S))

    assert {name: cost["money"] for name, cost in found.items()} == {"gpu": 0.0, "cpu": 0.0}


def test_without_tariffs_and_devices_no_cost_is_said(files):
    arguments = files()

    assert "Expected cost" not in told(arguments)
    assert costs(arguments) == {"gpu": None, "cpu": None}


def test_an_option_whose_run_is_not_known_has_no_cost_beside_one_that_has(files, tmp_path):
    arguments = files(RENTED, L40S)
    path = tmp_path / "policy.yaml"
    policy = json.loads(path.read_text(encoding="utf-8"))
    del policy["spec"]["options"][1]["slowdown"]
    path.write_text(json.dumps(policy), encoding="utf-8")

    assert table(arguments)[1:] == [
        ["gpu", "1.08", "0.019", "0.0951", "38", "g", "1.1"],
        ["cpu", "?", "?", "?", "?", "?"],
    ]
    assert costs(arguments)["cpu"] is None


def test_a_series_that_the_saved_state_has_counts_too(files):
    source = {"configMap": "day-ahead", "key": "kr.json"}
    named = tariff_object(electricity=[{"price": "0.20"}], series={"electricity": source})
    points = [{"from": f"{year}-01-01T00:00:00Z", "value": 1.0} for year in (2020, 2040)]
    metadata = {"name": "day-ahead", "namespace": "kueue-fallback"}
    written = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
    written["data"] = {"kr.json": json.dumps(points)}

    dear, usual = (costs(files(named, L40S, *more))["gpu"] for more in ([written], []))

    assert dear["electricity"] == dear["kWh"]
    assert usual["electricity"] == pytest.approx(0.019, rel=0.01)
