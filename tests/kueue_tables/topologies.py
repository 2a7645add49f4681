"""Replays where Kueue places the pods of a topology."""

import json
from collections import Counter

from webhook.kueue import topology_placement
from webhook.kueue.topology_placement import FlavorDomains, tree_of
from webhook.model.pods import PodTemplate, read_toleration
from webhook.model.quantity import parse
from webhook.model.queues import PodSetNeeds, ResourceFlavor
from webhook.model.topologies import Topology, read_node
from webhook.state.snapshot import Snapshot, updated

_OVER = frozenset({"Failed", "Succeeded"})


def placed(case):
    """Replay TestFindTopologyAssignments: map each pod set to the pods that each domain gets."""
    fields = case.fields
    levels = tuple(fields["levels"])
    pod_sets = [(f"{n}", each) for n, each in enumerate(fields["podSets"])]
    want = {name: _counted(each.get("wantAssignment")) for name, each in pod_sets}
    # Kueue admits none of them where one has no room.
    want = want if all(want.values()) else dict.fromkeys(want)
    domains = _domains(case, levels)
    needs = [_needs(name, each) for name, each in pod_sets]
    free = domains and topology_placement.free_of(domains, _occupied(fields, domains))
    found = domains and topology_placement.placed(needs, domains, free)
    if not found:
        return dict.fromkeys(want), want
    of_leaf = {leaf: domain for domain, leaf in domains.tree.leaves.items()}
    ours = {
        need.name: {of_leaf[leaf]: count for leaf, count in given}
        for need, given in zip(needs, found, strict=True)
    }
    return ours, want


def _counted(assignment):
    if not assignment:
        return None
    return {tuple(each["Values"]): each["Count"] for each in assignment["Domains"]}


def _domains(case, levels):
    flavor = ResourceFlavor(
        name="default",
        topology="default",
        node_labels=case.fields.get("nodeLabels", {}),
        tolerations=tuple(
            read_toleration(each, "")
            for each in case.fields.get("flavorInformation", {}).get("Tolerations", ())
        ),
    )
    used = _used(case.fields.get("pods", ()))
    read = [_node(source, used) for source in case.fields["nodes"]]
    nodes = tuple(node for node in read if node and node.labels.keys() >= set(levels))
    topology = Topology(name="default", levels=levels, nodes=nodes)
    tree = tree_of(flavor, updated(Snapshot(), topologies={"default": topology}).setup)
    return tree and FlavorDomains(flavor=flavor, tree=tree, takes_fullest=True)


def _used(pods):
    """Return what pods that Kueue has not placed take of each Node."""
    used = {}
    for pod in pods:
        name, over = pod["spec"].get("nodeName"), pod.get("status", {}).get("phase") in _OVER
        if name and not over:
            of_node = used.setdefault(name, Counter())
            of_node["pods"] += 1
            for container in pod["spec"]["containers"]:
                asked = container.get("resources", {}).get("requests", {})
                of_node.update({key: parse(text, resource=key) for key, text in asked.items()})
    return used


def _node(source, used):
    labels = source["metadata"].get("labels", {})
    taken = used.get(source["metadata"]["name"], {})
    status = source["status"]
    left = {
        name: f"{parse(text, resource=name) - taken.get(name, 0)}{'m' if name == 'cpu' else ''}"
        for name, text in status.get("allocatable", {}).items()
    }
    return read_node({**source, "status": {**status, "allocatable": left}}, labels)


def _occupied(fields, domains):
    name = "" if domains.tree.is_by_node else "default"
    occupied = {}
    for each in (*fields.get("priorFlavorUsage", ()), *fields.get("priorOwnUsage", ())):
        amounts = {key: n * each["Count"] for key, n in each["SinglePodRequests"].items()}
        occupied[name, tuple(each["Values"])] = {**amounts, "pods": each["Count"]}
    return occupied


def _needs(name, pod_set):
    asked = pod_set.get("topologyRequest", {})
    prefix = "kueue.x-k8s.io/podset-"
    annotations = {
        f"{prefix}{key}-topology": str(asked[key]).lower() if key == "unconstrained" else asked[key]
        for key in ("required", "preferred", "unconstrained")
        if key in asked
    }
    if "podSetSliceRequiredTopology" in asked:
        annotations[f"{prefix}slice-required-topology"] = asked["podSetSliceRequiredTopology"]
        annotations[f"{prefix}slice-size"] = str(asked.get("podSetSliceSize", 0))
    if layers := asked.get("podsetSliceRequiredTopologyConstraints"):
        annotations[f"{prefix}slice-required-topology-constraints"] = json.dumps(layers)
    affinity = pod_set.get("nodeAffinity")
    template = PodTemplate(
        annotations=annotations,
        node_selector=pod_set.get("nodeSelector", {}),
        tolerations=tuple(pod_set.get("tolerations", ())),
        affinity={"nodeAffinity": affinity} if affinity else None,
    )
    return PodSetNeeds(
        name=name,
        count=pod_set["count"],
        per_pod=pod_set["requests"],
        template=template,
        group=pod_set.get("podSetGroupName", ""),
    )
