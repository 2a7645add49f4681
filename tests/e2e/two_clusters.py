"""Jobs by cost over two clusters, the dearer of which holds data: on planes and simulated."""

from pathlib import Path

import yaml

from hack import paper
from tests.e2e.decisions import POLICY_API
from webhook.simulate.replay import replay
from webhook.simulate.scenario_file import read_scenario

RUN_SECONDS = 3.0
COST = {"runTime": f"{RUN_SECONDS:.0f}s", "timeValue": "180"}
RATES = {"holding": 3600, "near": 2400}
"""Money for an hour of a GPU: 3 and 2 for a Job."""
GIB, TRANSFER = 140, 0.03
"""Of the data, and money for one: 4.2 for a Job where it is not held."""
DATA = {"kueue-fallback.dev/data": f"llama3-70b={GIB}Gi"}
TURNS = ("reads", "trains", "reads")
SCENARIO = Path("examples/scenarios/data.yaml")


def tariff(name, role, flavor):
    """Return what a cluster costs in one of the roles, holding and near."""
    spec = {
        "clusters": [name],
        "rates": [{"flavors": [flavor], "resources": {paper.GPU: str(RATES[role])}}],
        "transfer": str(TRANSFER),
    }
    held = {"holds": ["llama3-70b"]} if role == "holding" else {}
    return {
        "apiVersion": POLICY_API,
        "kind": "Tariff",
        "metadata": {"name": name},
        "spec": {**spec, **held},
    }


def job(number, names, *, kind):
    """Return the light Job that reads the data, or the one that does not."""
    faster = paper.LIGHT_SECONDS / RUN_SECONDS
    found = paper.light_job(f"{kind}-{number}", names, faster=faster)
    if kind == "reads":
        # Each of a class of its own: runs of one class would leave its data where they were.
        found["metadata"]["annotations"] = dict(DATA)
        found["spec"]["template"]["spec"]["containers"][0]["image"] = f"llama3-{number}"
    return found


def cost_of(kind, role):
    """Return what a Job costs in a cluster, without the value of time."""
    carried = TRANSFER * GIB if (kind, role) == ("reads", "near") else 0.0
    return RATES[role] * RUN_SECONDS / 3600 + carried


def simulated_cost(number, *, gpus):
    """Return what so many Jobs cost if each cluster has so many GPUs, for few who wait."""
    scenario = _scenario(number, gpus)
    (by_cost,) = scenario.arms(["Cost"])
    costs = replay(scenario, by_cost).totals.costs
    return costs.money + (costs.transfer or 0.0)


def _scenario(number, gpus):
    source = yaml.safe_load(SCENARIO.read_text())
    source["parameters"] = {"data": f"llama3-70b={GIB}Gi"}
    for cluster in source["clusters"]:
        queue = next(each for each in cluster["objects"] if each["kind"] == "ClusterQueue")
        queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] = gpus
    source["tariffs"]["objects"] = [tariff(role, role, "h100") for role in RATES]
    (policy,) = (each for each in source["policies"]["objects"] if _is_by_cost(each))
    policy["spec"]["strategy"]["cost"] = COST
    source["policies"]["objects"] = [policy]
    reads = {**source["jobs"].pop("batch"), "runTimes": {"h100": f"{RUN_SECONDS:.0f}s"}}
    trains = yaml.safe_load(yaml.safe_dump(reads))
    del trains["job"]["metadata"]["annotations"]
    trains["job"]["spec"]["template"]["spec"]["containers"][0]["image"] = "train"
    source["jobs"] = {"reads": reads, "trains": trains}
    source["arrivals"] = [{"every": {"interval": "300ms", "count": number, "jobs": list(TURNS)}}]
    return read_scenario(source, read_text=lambda file: (SCENARIO.parent / file).read_text())


def _is_by_cost(policy):
    return policy["spec"]["strategy"]["type"] == "Cost"
