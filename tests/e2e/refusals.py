"""Jobs of every kind as people write them, and options that change all that options can change.

Without this project each is taken by the API server, Kueue and the kind's own webhooks, or not;
what is taken without it has to be taken with it.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from hack import paper
from hack.api import ApiClient, ApiError, Object
from hack.kwok import GPU
from tests.e2e import many_jobs
from tests.e2e.decisions import decision_of
from tests.e2e.job_specs import SPECS, made

_COUNTED: Final = ("cpu", GPU, "nvidia.com/mig-1g.10gb")
RACK: Final = "example.com/rack"
_PREFIX: Final = "kueue.x-k8s.io/podset-"
_OFFERED: Final = (*many_jobs.RESOURCES, "nvidia.com/mig-1g.10gb")
SCALED: Final[Mapping[str, tuple[str, ...]]] = {
    "more": ("JobSet",),
    "few": ("JobSet", "RayCluster", "RayJob"),
    "more-of-one": ("JAXJob", "MPIJob", "PaddleJob", "PyTorchJob", "TFJob", "XGBoostJob"),
}
"""The kinds that have what these scale."""
NO_CLASS: Final = "missing"
"""A RuntimeClass that does not exist, so that no pod may name it."""
ALLOW_ALL: Final = {"option": "cpu", "orPendingBelow": 1_000_000}

ADAPTATIONS: Final[Mapping[str, Object]] = {
    **many_jobs.ADAPTATIONS,
    "queue-alone": {},
    "slices": {"accelerator": "Replace", "by": {"nvidia.com/mig-1g.10gb": 1}},
    "a-part": {**many_jobs.REMOVE, "podSets": ["workers", "worker", "main"]},
    "more": {**many_jobs.REMOVE, "replicas": {"workers": 12}},
    "more-of-one": {**many_jobs.REMOVE, "replicas": {"worker": 12}},
    "few": {"replicas": {"workers": 1}},
    "missing-class": {**many_jobs.REMOVE, "runtimeClassName": NO_CLASS},
    "placed-auto": {"topology": {"mode": "Auto", "level": RACK}},
    "placed-required": {"topology": {"mode": "Required", "level": RACK}},
    "placed-preferred": {**many_jobs.REMOVE, "topology": {"mode": "Preferred", "level": RACK}},
    "placed-anywhere": {"topology": {"mode": "Unconstrained"}},
    "placed-nowhere": {**many_jobs.REMOVE, "topology": {"mode": "Remove"}},
}


UNTAKEN: Final = frozenset({"huge", "missing-class"})
"""What hardly any Job can take."""


def kinds(adaptation: str) -> tuple[str, ...]:
    """Return the kinds of Jobs whose policy may have an option that changes this."""
    return SCALED.get(adaptation, ("Job", *SPECS))


def policies(names: paper.Names, namespace: str) -> Iterator[Object]:
    """Yield one for each adaptation, which sends the Jobs with its label to CPU in any case."""
    for name, adaptation in ADAPTATIONS.items():
        policy = paper.policy(names)
        policy["metadata"]["name"] = f"{names.policy}-{name}"
        spec = policy["spec"]
        spec["match"] = {
            "kinds": list(kinds(name)),
            "withoutQueue": True,
            "jobSelector": {"matchLabels": {many_jobs.LABEL: name}},
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        }
        spec["options"][1]["adaptation"] = adaptation
        spec["strategy"]["threshold"] = [ALLOW_ALL]
        yield policy


def queues(names: paper.Names) -> Iterator[Object]:
    """Yield two without bounds, of which that for CPUs places pods by a Topology, and classes."""
    levels = [{"nodeLabel": RACK}, {"nodeLabel": "kubernetes.io/hostname"}]
    topology = {"apiVersion": paper.KUEUE, "kind": "Topology", "metadata": {"name": names.policy}}
    pool = {"example.com/pool": names.namespace}
    flavor = paper.resource_flavor(names.cpu_flavor, node_labels=pool)
    flavor["spec"]["topologyName"] = names.policy
    quota = {name: "1000" if name in _COUNTED else "1000Ti" for name in _OFFERED}
    for name in ("nvidia", "gvisor"):
        version, kind = "node.k8s.io/v1", "RuntimeClass"
        found = {"apiVersion": version, "kind": kind, "metadata": {"name": name}}
        yield {**found, "handler": name}
    yield {**topology, "spec": {"levels": levels}}
    yield paper.resource_flavor(names.gpu_flavor)
    yield flavor
    for queue, cluster_queue, flavor_name in (
        (names.gpu_queue, names.gpu_cluster_queue, names.gpu_flavor),
        (names.cpu_queue, names.cpu_cluster_queue, names.cpu_flavor),
    ):
        yield paper.cluster_queue(cluster_queue, flavor=flavor_name, quota=quota)
        yield paper.local_queue(queue, names.namespace, cluster_queue=cluster_queue)


def admission_policy(namespace: str) -> Iterator[Object]:
    """Yield what many clusters have: each container of a Job must ask for something."""
    group = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": namespace}}
    rule = {
        "apiGroups": ["batch"],
        "apiVersions": ["v1"],
        "operations": ["CREATE", "UPDATE"],
        "resources": ["jobs"],
    }
    asks = "has(c.resources.{0}) && c.resources.{0}.size() > 0"
    either = " || ".join(f"({asks.format(block)})" for block in ("limits", "requests"))
    each = f"object.spec.template.spec.containers.all(c, has(c.resources) && ({either}))"
    where = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    yield {
        **group,
        "kind": "ValidatingAdmissionPolicy",
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [rule], "namespaceSelector": where},
            "validations": [{"expression": each, "message": "each container must ask for some"}],
        },
    }
    binding = {"policyName": namespace, "validationActions": ["Deny"]}
    yield {**group, "kind": "ValidatingAdmissionPolicyBinding", "spec": binding}


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One Job, and how it came about."""

    variations: tuple[str, ...]
    adaptation: str
    job: Object

    def __str__(self) -> str:
        """Return what tells it from the others."""
        return f"{self.job['kind']} {'+'.join(self.variations)}, option {self.adaptation}"

    def without_us(self) -> Object:
        """Return the same Job, which opts out."""
        found = copy.deepcopy(self.job)
        found["metadata"].setdefault("annotations", {})["kueue-fallback.dev/policy"] = "none"
        return found


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What became of a Job, which only the API server was asked about."""

    trial: Trial
    option: str = ""
    """Which it got; empty: none, or it is refused without us, too."""
    otherwise: str = ""
    """Why it did not get an option that changes something."""
    because_of_us: str = ""
    """Why it is refused with us, where it is taken without."""


def tried(client: ApiClient, trial: Trial) -> Verdict:
    """Ask whether a Job is taken without us and with us; nothing is created."""
    try:
        client.create(trial.without_us(), dry_run=True)
    except ApiError as error:
        return Verdict(trial=trial, otherwise=f"refused without us, too: {error}")
    try:
        found = decision_of(client.create(trial.job, dry_run=True)) or {}
    except ApiError as error:
        return Verdict(trial=trial, because_of_us=f"{trial}: {error}\n{json.dumps(trial.job)}")
    why = [option.get("rejected", "") for option in found.get("options", ())]
    return Verdict(trial=trial, option=found.get("option", ""), otherwise=str(why or found))


def probe(names: paper.Names, adaptation: str) -> Object:
    """Return a Job that some option's policy matches."""
    return _of_any_kind(names, kinds(adaptation)[0], adaptation, random.Random(0))


def trials(names: paper.Names, count: int, seed: int) -> Iterator[Trial]:
    """Yield each kind in each variation, each option as it is, and so many random ones."""
    source = random.Random(seed)
    for kind in ("Job", *SPECS):
        for variation in VARIATIONS:
            yield _trial(names, kind, (variation,), source)
    for adaptation in ADAPTATIONS:
        kind = source.choice(kinds(adaptation)[-3:])
        job = _of_any_kind(names, kind, adaptation, source)
        yield Trial(variations=(), adaptation=adaptation, job=job)
    for _ in range(count):
        several = tuple(source.sample(sorted(VARIATIONS), source.randint(1, 4)))
        yield _trial(names, source.choice(["Job", *SPECS]), several, source)


def _trial(
    names: paper.Names, kind: str, variations: tuple[str, ...], source: random.Random
) -> Trial:
    fitting = [name for name in ADAPTATIONS if kind in kinds(name)]
    adaptation = source.choice(fitting)
    job = _of_any_kind(names, kind, adaptation, source)
    for variation in variations:
        VARIATIONS[variation](job, source)
    return Trial(variations=variations, adaptation=adaptation, job=job)


def _of_any_kind(names: paper.Names, kind: str, adaptation: str, source: random.Random) -> Object:
    labels = {many_jobs.LABEL: adaptation}
    if kind == "Job":
        job = many_jobs.job(source.randrange(10**6), names.namespace, source)
        job["metadata"]["labels"] = {paper.QUEUE_LABEL: names.gpu_queue, **labels}
    else:
        job = made(kind, names, labels=labels)
    job["metadata"].setdefault("annotations", {})["kueue-fallback.dev/gpu-memory"] = "4Gi"
    return job


def _templates(part: object) -> Iterator[Object]:
    """Yield all pod templates of a spec."""
    if isinstance(part, dict):
        if "containers" in part.get("spec", {}) and "kind" not in part:
            yield part
        for each in part.values():
            yield from _templates(each)
    elif isinstance(part, list):
        for each in part:
            yield from _templates(each)


def _annotated(job: Object, annotations: Mapping[str, str]) -> None:
    for template in _templates(job["spec"]):
        template.setdefault("metadata", {}).setdefault("annotations", {}).update(annotations)


def _as_it_is(_job: Object, _source: random.Random) -> None:
    """Change nothing."""


def _without_queue(job: Object, _source: random.Random) -> None:
    del job["metadata"]["labels"][paper.QUEUE_LABEL]


def _long_name(job: Object, source: random.Random) -> None:
    job["metadata"]["name"] = "t" * source.choice([30, 40, 44, 45, 46, 50, 52, 53, 54, 58, 60, 63])


def _generated_name(job: Object, source: random.Random) -> None:
    del job["metadata"]["name"]
    job["metadata"]["generateName"] = "t" * source.choice([10, 38, 40, 45, 50, 58])


def _group(job: Object, _source: random.Random) -> None:
    _annotated(job, {f"{_PREFIX}group-name": "pair", f"{_PREFIX}required-topology": RACK})


def _slices(job: Object, source: random.Random) -> None:
    level = {f"{_PREFIX}slice-required-topology": "kubernetes.io/hostname"}
    size = {f"{_PREFIX}slice-size": source.choice(["1", "2", "4"])}
    _annotated(job, {f"{_PREFIX}required-topology": RACK, **level, **size})


def _placed(job: Object, source: random.Random) -> None:
    mode, value = source.choice(
        [("required", RACK), ("preferred", RACK), ("unconstrained", "true")],
    )
    _annotated(job, {f"{_PREFIX}{mode}-topology": value})


def _devices_alone(job: Object, _source: random.Random) -> None:
    """Ask for nothing but devices."""
    for template in _templates(job["spec"]):
        for container in template["spec"]["containers"]:
            blocks = container.get("resources", {})
            for block in blocks:
                found = {key: text for key, text in blocks[block].items() if key == GPU}
                blocks[block] = found


def _many(job: Object, source: random.Random) -> None:
    """Have more replicas than one where there are any."""
    count = source.choice([2, 4, 9])
    spec = job["spec"]
    for each in _parts_with(spec, "replicas"):
        each["replicas"] = count
        each |= {key: count for key in ("minReplicas", "maxReplicas") if key in each}
    if job["kind"] == "Job":
        spec |= {"parallelism": count, "completions": count}


def _parts_with(part: object, key: str) -> Iterator[Object]:
    if isinstance(part, dict):
        if key in part:
            yield part
        for each in part.values():
            yield from _parts_with(each, key)
    elif isinstance(part, list):
        for each in part:
            yield from _parts_with(each, key)


def _elastic(job: Object, _source: random.Random) -> None:
    job["metadata"].setdefault("annotations", {})["kueue.x-k8s.io/elastic-job"] = "true"


def _partial(job: Object, _source: random.Random) -> None:
    annotations = job["metadata"].setdefault("annotations", {})
    annotations["kueue.x-k8s.io/job-min-parallelism"] = "1"


def _as_its_kind_has_it(job: Object, source: random.Random) -> None:
    """Use what some kinds alone have, and what some take only without a queue."""
    spec = job["spec"]
    cluster = spec.get("rayClusterSpec", spec)
    if "headGroupSpec" in cluster and source.random() < 0.5:
        cluster["enableInTreeAutoscaling"] = True
    if "shutdownAfterJobFinishes" in spec:
        spec["shutdownAfterJobFinishes"] = source.random() < 0.5
    if job["kind"] == "SparkApplication":
        spec["dynamicAllocation"] = {"enabled": True, "minExecutors": 1, "maxExecutors": 4}
    if job["kind"] == "MPIJob":
        spec["runLauncherAsWorker"] = True
    if job["kind"] == "TrainJob":
        spec["trainer"]["resourcesPerNode"] = {"limits": {GPU: "1"}, "requests": {"cpu": "2"}}
    if job["kind"] == "Job":
        spec["completionMode"] = "Indexed"


VARIATIONS: Final[Mapping[str, Callable[[Object, random.Random], None]]] = {
    "as-it-is": _as_it_is,
    "without-queue": _without_queue,
    "long-name": _long_name,
    "generated-name": _generated_name,
    "group": _group,
    "slices": _slices,
    "placed": _placed,
    "devices-alone": _devices_alone,
    "many": _many,
    "elastic": _elastic,
    "partial": _partial,
    "of-its-kind": _as_its_kind_has_it,
}
