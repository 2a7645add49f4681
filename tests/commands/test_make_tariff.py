"""`kubectl fallback tariff`: what it prints is a Tariff that `check` takes."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml

from tests.commands.apiserver import serving
from tests.commands.calling import call
from webhook.cost.rates import read_series
from webhook.model.costs.tariff import SeriesFormat, read_tariff

DIRECT = "Carbon intensity gCO₂eq/kWh (direct)"
LIFE_CYCLE = "Carbon intensity gCO₂eq/kWh (Life cycle)"
FLAVORS = "/resourceflavors"
GAUGES = {
    "node_cpu_hourly_cost": {"gpu-0": "0.03", "gpu-1": "0.05", "cpu-0": "0.02"},
    "node_ram_hourly_cost": {"gpu-0": "0.004", "gpu-1": "0.004", "cpu-0": "0.003"},
    "node_gpu_hourly_cost": {"gpu-0": "2.5", "gpu-1": "3.5", "cpu-0": "0"},
}


GPU_RATES = {"cpu": "0.04", "memory": "0.004", "nvidia.com/gpu": "3"}
WEEK = 7 * 24


def told(*arguments, code=0):
    found = call("tariff", *arguments)
    assert found.exit_code == code, found.output
    return found


def csv(tmp_path, rows, header=f"Datetime (UTC),Country,{DIRECT},{LIFE_CYCLE}"):
    path = tmp_path / "electricitymaps.csv"
    path.write_text("\n".join([header, *rows]), encoding="utf-8")
    return str(path)


def hours(count, **values):
    """Return rows of a file, of which each hour has 100 directly but for some, and 120 in all."""
    first = datetime(2025, 1, 1, tzinfo=UTC)
    return [
        f"{first + timedelta(hours=n):%Y-%m-%d %H:%M:%S},KR,{values.get(f'h{n}', 100)},120"
        for n in range(count)
    ]


def test_the_hours_of_a_file_become_a_series_and_its_config_map(tmp_path):
    path = csv(tmp_path, hours(WEEK + 1, h0="268", h1=""))

    found = told("series", "-f", path, "--name", "carbon", "--cluster", "korea")

    tariff, config = yaml.safe_load_all(found.stdout)
    assert found.stdout.startswith(f"# {WEEK} hours.\n")
    assert read_tariff(tariff).name == "carbon"
    assert tariff["spec"] == {
        "clusters": ["korea"],
        "carbon": [{"intensity": "101.0"}],
        "series": {"carbon": {"configMap": "carbon", "key": "points.json"}},
    }
    assert (config["kind"], config["metadata"]) == ("ConfigMap", {"name": "carbon"})
    points = read_series(config["data"]["points.json"], SeriesFormat.POINTS, "carbon")
    assert list(points.steps.values()) == [268.0] + [100.0] * (WEEK - 1)


def test_a_column_is_named_by_its_beginning(tmp_path):
    path = csv(tmp_path, hours(WEEK))

    found = told("series", "-f", path, "--column", LIFE_CYCLE[:36])

    tariff, _ = yaml.safe_load_all(found.stdout)
    assert tariff["spec"]["carbon"] == [{"intensity": "120.0"}]


@pytest.mark.parametrize(
    ("rows", "header", "message"),
    [
        (hours(WEEK), "hour,zone,a,b", ":1: expected a column that begins with datetime, got "),
        (hours(3), None, ": expected the hours of a week at least, got 3"),
        (hours(WEEK, h2="-5"), None, f":4 {DIRECT}: expected an amount of at least 0, got '-5'"),
        (["soon,KR,1,1"], None, ":2 Datetime (UTC): expected "),
    ],
    ids=["no time", "few hours", "below zero", "no moment"],
)
def test_a_file_that_has_no_hours_is_refused_with_its_line(tmp_path, rows, header, message):
    path = csv(tmp_path, rows, *([header] if header else []))

    found = told("series", "-f", path, code=2)

    place, _, why = message.partition(": ")
    assert place in found.stderr
    assert why in found.stderr


def flavor(name, **labels):
    return {"metadata": {"name": name}, "spec": {"nodeLabels": labels}}


def node(name, allocatable, **labels):
    return {"metadata": {"name": name, "labels": labels}, "status": {"allocatable": allocatable}}


def prices(gauges):
    """Answer as an API server with Nodes and flavors, and as a Prometheus with OpenCost's."""
    gpus = {"nvidia.com/gpu": "8", "nvidia.com/mig-1g.10gb": "0", "cpu": "64"}
    nodes = [node(f"gpu-{number}", gpus, pool="gpu") for number in range(2)]
    nodes.append(node("cpu-0", {"cpu": "32"}, pool="cpu"))
    flavors = [flavor("gpu", pool="gpu"), flavor("spot", pool="gpu"), flavor("cpu", pool="cpu")]
    flavors += [flavor("gone", pool="gone"), flavor("any")]

    def answer(method, path, _body):
        if path.startswith("/api/v1/query"):
            gauge = path.partition("query=")[2]
            if gauges is None:
                return 503, [], "no storage"
            result = [
                {"metric": {"node": name}, "value": [1, value]}
                for name, value in gauges.get(gauge, {}).items()
            ]
            return (
                200,
                [],
                {"status": "success", "data": {"resultType": "vector", "result": result}},
            )
        if path.startswith("/api/v1/nodes"):
            return 200, [], {"items": nodes, "metadata": {}}
        if FLAVORS in path:
            items = flavors
            return 200, [], {"items": items, "metadata": {}}
        if path.startswith("/apis/kueue.x-k8s.io"):
            version = {"version": "v1beta2", "groupVersion": "kueue.x-k8s.io/v1beta2"}
            return 200, [], {"versions": [version], "preferredVersion": version}
        return 404, [], {"message": "not found"}

    return answer


def from_opencost(tmp_path, gauges=GAUGES, *, code=0):
    with serving(prices(gauges), tmp_path) as kubeconfig:
        config = yaml.safe_load(Path(kubeconfig).read_text(encoding="utf-8"))
        url = config["clusters"][0]["cluster"]["server"]
        return told("from-opencost", "--prometheus", url, "--kubeconfig", kubeconfig, code=code)


def test_flavors_cost_what_their_nodes_cost_on_average(tmp_path):
    found = from_opencost(tmp_path)

    written = yaml.safe_load(found.stdout)
    assert read_tariff(written).name == "opencost"
    assert written["spec"]["rates"] == [
        {"flavors": ["cpu"], "resources": {"cpu": "0.02", "memory": "0.003"}},
        {"flavors": ["gpu"], "resources": GPU_RATES},
        {"flavors": ["spot"], "resources": GPU_RATES},
    ]
    assert found.stderr.splitlines() == [
        "ResourceFlavor any: no price of a Node with its nodeLabels",
        "ResourceFlavor gone: no price of a Node with its nodeLabels",
    ]


@pytest.mark.parametrize(
    ("gauges", "message"),
    [
        ({}, "no price of any ResourceFlavor"),
        (None, "it answers 503"),
    ],
    ids=["no prices", "no answer"],
)
def test_a_prometheus_that_knows_nothing_is_told(tmp_path, gauges, message):
    assert message in from_opencost(tmp_path, gauges, code=1).stderr
