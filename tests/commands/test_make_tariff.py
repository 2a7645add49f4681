"""`kubectl fallback tariff`: what it prints is a Tariff that `check` takes."""

from pathlib import Path

import pytest
import yaml

from tests.commands.apiserver import serving
from tests.commands.calling import call
from webhook.model.costs.tariff import read_tariff

DIRECT = "Carbon intensity gCO₂eq/kWh (direct)"
LIFE_CYCLE = "Carbon intensity gCO₂eq/kWh (Life cycle)"
FLAVORS = "/resourceflavors"
GAUGES = {
    "node_cpu_hourly_cost": {"gpu-0": "0.03", "gpu-1": "0.05", "cpu-0": "0.02"},
    "node_ram_hourly_cost": {"gpu-0": "0.004", "gpu-1": "0.004", "cpu-0": "0.003"},
    "node_gpu_hourly_cost": {"gpu-0": "2.5", "gpu-1": "3.5", "cpu-0": "0"},
}


def told(*arguments, code=0):
    found = call("tariff", *arguments)
    assert found.exit_code == code, found.output
    return found


def csv(tmp_path, rows, header=f"Datetime (UTC),Country,{DIRECT},{LIFE_CYCLE}"):
    path = tmp_path / "electricitymaps.csv"
    path.write_text("\n".join([header, *rows]), encoding="utf-8")
    return str(path)


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
        {
            "flavors": ["gpu", "spot"],
            "resources": {"cpu": "0.04", "memory": "0.004", "nvidia.com/gpu": "3"},
        },
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
