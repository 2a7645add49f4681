"""Turns a scenario's document into the scenario: validated, everything random drawn.

Pure: the files that it names are read by a function that comes in.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from random import Random
from typing import Any, Final, TypeAlias, TypeVar

from webhook.cost.cluster_prices import PriceSources
from webhook.cost.service_level import ReplicaSpeed
from webhook.decide import match, wishes
from webhook.jobs import kind_of
from webhook.kueue import multikueue, requests
from webhook.model import fields
from webhook.model.costs.accelerator_profile import PROFILE_KIND, read_accelerator_profile
from webhook.model.costs.prices import HOUR, Prices
from webhook.model.costs.tariff import TARIFF_KIND, read_tariff
from webhook.model.fields import FieldError
from webhook.model.job import QUEUE_LABEL, Job, Requester
from webhook.model.policy.fallback_policy import (
    KIND,
    READ_BY_KIND,
    FallbackPolicy,
    PolicyError,
    seconds,
)
from webhook.simulate import arrivals, scenario_manifests, scenario_spec
from webhook.simulate.scenario import (
    EPOCH,
    ReplayedPrices,
    Scenario,
    ServiceRun,
    Submission,
    Worker,
)
from webhook.simulate.scenario_manifests import Object, Placed, ReadText, template, text
from webhook.simulate.scenario_spec import (
    ArrivalsSpec,
    ClusterSpec,
    JobTemplate,
    Objects,
    RateFrom,
    RunTimeSpec,
    ScenarioError,
    ScenarioSpec,
    ServiceSpec,
    validated,
)
from webhook.state.snapshot import Snapshot, updated
from webhook.state.snapshot_file import objects_in, snapshot_of

_Ours = TypeVar("_Ours")
_NAMESPACE_LABEL = "kubernetes.io/metadata.name"


def listed(spec: Objects, path: str, read_text: ReadText) -> Iterator[Placed]:
    """Yield objects, first the files'; Workloads in files are left out."""
    for number, file in enumerate(spec.files):
        content = text(read_text, file, f"{path}.files[{number}]")
        for source, place in objects_in(content, file):
            if source.get("kind") != "Workload":
                yield source, f"{file} {place}"
    for number, source in enumerate(spec.objects):
        yield source, f"{path}.objects[{number}]"


def policy(source: Object, place: str) -> FallbackPolicy:
    read = READ_BY_KIND.get(str(source.get("kind")))
    if read is None:
        raise FieldError(place, f"expected a {KIND}, got kind {source.get('kind')}")
    return _ours(read, source, place)


def _ours(read: Callable[[Object], _Ours], source: Object, place: str) -> _Ours:
    """Read an object of ours; its mistakes name *place*."""
    try:
        return read(source)
    except PolicyError as error:
        mistakes = tuple(
            FieldError(f"{place}.{mistake.path}".rstrip("."), mistake.message)
            for mistake in error.errors
        )
        raise ScenarioError(mistakes) from error


def with_namespaces(placed: Sequence[Placed], templates: Iterable[Object]) -> list[Placed]:
    """Add namespaces that are only named, and the label that every namespace has."""
    written = [entry for entry in placed if entry[0].get("kind") == "Namespace"]
    rest = [entry for entry in placed if entry[0].get("kind") != "Namespace"]
    named = {_metadata(source, place).get("name", "") for source, place in written}
    used = {str(_metadata(source, place).get("namespace", "")) for source, place in rest}
    used |= {job["metadata"]["namespace"] for job in templates}
    missing = sorted(used - named - {""})
    bare = [({"metadata": {"name": name}}, f"namespace {name}") for name in missing]
    return [(_labelled(*namespace), namespace[1]) for namespace in (*written, *bare)] + rest


def _labelled(source: Object, place: str) -> Object:
    metadata = _metadata(source, place)
    name = fields.text(metadata, "name", f"{place}.metadata")
    labels = {**fields.mapping(metadata, "labels", place), _NAMESPACE_LABEL: name}
    labelled = {**metadata, "labels": labels}
    return {**source, "apiVersion": "v1", "kind": "Namespace", "metadata": labelled}


def _metadata(source: Object, place: str) -> Object:
    return fields.mapping(source, "metadata", place)


def read_worker_clusters(
    given: Sequence[ClusterSpec],
    manager: Snapshot,
    templates: Collection[Object],
    read_text: ReadText,
) -> Mapping[str, Worker]:
    """Read all worker clusters; without any, the manager's quota is all there is.

    Raises:
        FieldError: one cannot be read, no queue leads to it, or one is missing.

    """
    workers: dict[str, Worker] = {}
    for number, spec in enumerate(given):
        path = f"clusters[{number}]"
        _check_name(spec.name, workers, manager, f"{path}.name")
        workers[spec.name] = _worker(spec, path, templates, read_text)
    if workers:
        _check_all(workers, manager)
    return workers


def _worker(
    spec: ClusterSpec, path: str, templates: Collection[Object], read_text: ReadText
) -> Worker:
    # Decisions are made at the manager: policies of a worker apply to its own users.
    placed = [entry for entry in listed(spec, path, read_text) if entry[0].get("kind") != KIND]
    snapshot = snapshot_of(with_namespaces(placed, templates))
    return Worker(snapshot=snapshot.with_policies(()), watched=spec.watched)


def _check_name(name: str, before: Collection[str], manager: Snapshot, path: str) -> None:
    if name in before:
        raise FieldError(path, f"{name} is there twice")
    reached = multikueue.reached(manager.setup)
    if name not in reached:
        there = ", ".join(reached) or "none"
        message = f"no ClusterQueue in `cluster` leads to {name} through MultiKueue; there is "
        raise FieldError(path, message + there)
    if name not in manager.setup.worker_clusters:
        there = ", ".join(manager.setup.worker_clusters) or "none"
        raise FieldError(path, f"no MultiKueueCluster {name} in `cluster`; there is {there}")


def _check_all(described: Collection[str], manager: Snapshot) -> None:
    """Reject a scenario with a worker cluster that Jobs would go to and that is not described."""
    for queue in manager.setup.cluster_queues.values():
        for name in multikueue.unknown(queue, manager.setup, described):
            raise FieldError("clusters", f"expected {name} too: a ClusterQueue leads there")


Plan: TypeAlias = Sequence[tuple[str, RunTimeSpec]]
"""Keys with their distributions; each comes after the one that it is relative to."""


def plan(run_times: Mapping[str, RunTimeSpec], path: str) -> Plan:
    """Return run times in the order in which they can be drawn.

    Raises:
        FieldError: one is relative to a missing one, or to itself.

    """
    for key, spec in run_times.items():
        if spec.of is not None and spec.of not in run_times:
            known = ", ".join(run_times)
            raise FieldError(f"{path}.{key}.of", f"expected one of {known}, got {spec.of}")
    ordered: dict[str, RunTimeSpec] = {}
    while len(ordered) < len(run_times):
        ready = {
            key: spec
            for key, spec in run_times.items()
            if key not in ordered and (spec.of is None or spec.of in ordered)
        }
        if not ready:
            around = ", ".join(key for key in run_times if key not in ordered)
            raise FieldError(path, f"expected no circle, found one among {around}")
        ordered |= ready
    return tuple(ordered.items())


def draw(planned: Plan, given: float | None, random: Random, path: str) -> Mapping[str, float]:
    """Draw a Job's run times in seconds; *given* came with its arrival.

    Raises:
        FieldError: a run time is relative to one that did not come with the arrival.

    """
    drawn: dict[str, float] = {}
    for key, spec in planned:
        spread = math.exp(random.gauss(0.0, spec.sigma)) if spec.sigma else 1.0
        drawn[key] = _middle(spec, drawn, given, f"{path}.{key}") * spread
    return drawn


def _middle(spec: RunTimeSpec, drawn: Mapping[str, float], given: float | None, path: str) -> float:
    if spec.median is not None:
        return seconds(spec.median)
    base = given if spec.of is None else drawn[spec.of]
    if base is None:
        raise FieldError(
            f"{path}.times", "expected a run time with each arrival, or `of` another one here"
        )
    return base * (spec.times or 1.0)


DEFAULT_QUEUE = "default"
"""Kueue sends Jobs that name no LocalQueue here, if it exists."""


def read_scenario(
    document: Any,
    *,
    read_text: ReadText,
    given: Mapping[str, scenario_spec.Parameter] | None = None,
    seed: int = 0,
) -> Scenario:
    """Read a whole scenario; the same document, parameters and seed give the same one.

    Raises:
        ScenarioError: with the mistakes found, each naming its path.

    """
    try:
        source = fields.as_mapping(document, "")
        spec = validated(scenario_spec.fill(source, given or {}))
        return _scenario(spec, read_text, seed)
    except FieldError as error:
        raise ScenarioError([error]) from error


def _scenario(spec: ScenarioSpec, read_text: ReadText, seed: int) -> Scenario:
    in_cluster = list(listed(spec.cluster, "cluster", read_text))
    ruling = list(listed(spec.policies, "policies", read_text))
    ruling = ruling or [entry for entry in in_cluster if entry[0].get("kind") in READ_BY_KIND]
    templates = {name: template(job, f"jobs.{name}", read_text) for name, job in spec.jobs.items()}
    services = {name: _service(name, each, read_text, seed) for name, each in spec.services.items()}
    submitted = {
        **{f"jobs.{name}": job for name, job in templates.items()},
        **{f"services.{name}": service.source for name, service in services.items()},
    }
    rest = [entry for entry in in_cluster if entry[0].get("kind") not in READ_BY_KIND]
    placed = with_namespaces(rest, submitted.values())
    snapshot = _queueing(submitted, snapshot_of(placed))
    devices = [*in_cluster, *listed(spec.accelerators, "accelerators", read_text)]
    prices = _prices([*devices, *listed(spec.tariffs, "tariffs", read_text)], spec.start, snapshot)
    billed = list(listed(spec.billed, "billed", read_text))
    policies = tuple(policy(*entry) for entry in ruling)
    _check_templates(submitted, snapshot)
    workers = read_worker_clusters(spec.clusters, snapshot, templates.values(), read_text)
    _check_keys(spec, snapshot, workers, policies)
    actual = _prices([*devices, *billed], spec.start, snapshot) if billed else None
    submissions = _submissions(spec, read_text, seed)
    if (true_prices := actual or prices) is not None:
        submissions = _interrupted(submissions, templates, true_prices, seed)
    _check_rows(submissions, templates, snapshot)
    return Scenario(
        name=spec.name,
        snapshot=snapshot.with_policies(()),
        objects=tuple(source for source, _ in placed),
        policies=policies,
        policy_objects=tuple(source for source, _ in ruling),
        templates=templates,
        requesters={
            name: Requester(name=job.user, groups=frozenset(job.groups))
            for name, job in spec.jobs.items()
            if job.user is not None
        },
        submissions=submissions,
        services=tuple(services.values()),
        prices=prices,
        billed=actual,
        holding=spec.holding,
        workers=workers,
    )


def _interrupted(
    submissions: tuple[Submission, ...],
    templates: Mapping[str, Object],
    prices: ReplayedPrices,
    seed: int,
) -> tuple[Submission, ...]:
    """Return the submissions with the interruptions that come where they may run."""
    rates: dict[str, float] = {}
    # Of several clusters, each flavor counts with the most interruptions of any.
    for cluster in prices.at(prices.start).values():
        for flavor, rate in cluster.interruptions.items():
            rates[flavor] = max(rate, rates.get(flavor, 0.0))
    if not rates:
        return submissions
    interruptions = Prices(interruptions=rates)
    checkpoints = {name: _checkpoint(source, f"jobs.{name}") for name, source in templates.items()}
    return tuple(
        submission.interrupted(interruptions, checkpoints[submission.template], seed)
        for submission in submissions
    )


def _checkpoint(source: Object, path: str) -> float | None:
    annotations = fields.texts(source["metadata"], "annotations", path)
    return wishes.read_wishes(annotations, 0.0).checkpoint


def _prices(
    placed: Sequence[Placed], begins: str | None, snapshot: Snapshot
) -> ReplayedPrices | None:
    """Read what resources cost from the scenario's start on; None: nothing has a price.

    Raises:
        FieldError: an object is not valid, or there are tariffs and no start.

    """
    tariffs = [_ours(read_tariff, *entry) for entry in placed if _is(entry, TARIFF_KIND)]
    profiles = [
        _ours(read_accelerator_profile, *entry) for entry in placed if _is(entry, PROFILE_KIND)
    ]
    start = None if begins is None else _start(begins)
    if not (tariffs or profiles):
        return None
    if tariffs and start is None:
        raise FieldError("start", "expected with tariffs: they are by the clock")
    return ReplayedPrices(
        start=EPOCH if start is None else start,
        sources=PriceSources(
            tariffs={tariff.name: tariff for tariff in tariffs},
            profiles=tuple(profiles),
            flavors=snapshot.setup.flavors,
            series=dict(_series(*entry) for entry in placed if _is(entry, "ConfigMap")),
        ),
    )


def _series(source: Object, place: str) -> tuple[str, Mapping[str, str]]:
    """Return the name and the texts of a ConfigMap."""
    metadata = fields.mapping(source, "metadata", place)
    return fields.text(metadata, "name", f"{place}.metadata"), fields.texts(source, "data", place)


def _is(entry: Placed, kind: str) -> bool:
    return entry[0].get("kind") == kind


def _start(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise FieldError(
            "start", f"expected a time such as 2026-01-05T00:00Z, got {text!r}"
        ) from None
    return int(moment.replace(tzinfo=moment.tzinfo or UTC).timestamp())


def _queueing(submitted: Mapping[str, Object], snapshot: Snapshot) -> Snapshot:
    """Return a snapshot in which Kueue queues objects of all these kinds, which are by path.

    Raises:
        FieldError: its configuration is in the scenario and switches one of them off.

    """
    snapshot = match.queueing_all(snapshot)
    for path, source in submitted.items():
        kind = kind_of(source)
        if kind.framework not in snapshot.setup.kueue.frameworks:
            message = f"{kind.framework} is not among the frameworks of Kueue's configuration"
            raise FieldError(path, message)
    # Where the scenario has no configuration, Kueue's defaults are what it is replayed with.
    return updated(snapshot, kueue=replace(snapshot.setup.kueue, is_read=True))


def _check_templates(submitted: Mapping[str, Object], snapshot: Snapshot) -> None:
    """Reject what names a queue or a priority class that the cluster does not have."""
    for path, source in submitted.items():
        metadata = source["metadata"]
        queue = fields.texts(metadata, "labels", path).get(QUEUE_LABEL)
        _check_queue((metadata["namespace"], queue or DEFAULT_QUEUE), snapshot, path)
        if missing := requests.unknown_class(kind_of(source).read(source), snapshot.cluster):
            raise FieldError(path, f"no {missing} in `cluster`")


def _check_queue(key: tuple[str, str], snapshot: Snapshot, path: str) -> None:
    if key not in snapshot.setup.local_queues:
        there = [queue_name for space, queue_name in snapshot.setup.local_queues if space == key[0]]
        message = f"no LocalQueue {key[1]} in namespace {key[0]}; there is "
        raise FieldError(path, message + (", ".join(there) or "none"))


def _check_rows(
    submissions: Iterable[Submission], templates: Mapping[str, Object], snapshot: Snapshot
) -> None:
    """Reject rows with a queue or a priority that the cluster does not have.

    Also those with a resource that no pods of a Job of several pod sets ask for.
    """
    jobs = {name: kind_of(source).read(source) for name, source in templates.items()}
    asked_for = {name: _asked_for(job) for name, job in jobs.items() if len(job.pod_sets) > 1}
    for submission in submissions:
        changes = submission.changes
        for name, _ in changes.requests if submission.template in asked_for else ():
            if name not in asked_for[submission.template]:
                kind = jobs[submission.template].kind
                raise FieldError(changes.place, f"no pods of the {kind} ask for {name}")
        if changes.queue:
            namespace = templates[submission.template]["metadata"]["namespace"]
            _check_queue((namespace, changes.queue), snapshot, changes.place)
        name = changes.priority_class
        if name and name not in snapshot.cluster.priority_classes:
            known = ", ".join(snapshot.cluster.priority_classes) or "none"
            message = f"no WorkloadPriorityClass {name} in `cluster`; there is {known}"
            raise FieldError(changes.place, message)


def _asked_for(job: Job) -> frozenset[str]:
    resources = [pod_set.template.containers[0].resources for pod_set in job.pod_sets]
    return frozenset(name for each in resources for name in (*each.requests, *each.limits))


def _check_keys(
    spec: ScenarioSpec,
    snapshot: Snapshot,
    workers: Mapping[str, Worker],
    policies: Sequence[FallbackPolicy],
) -> None:
    """Reject run times and speeds that nothing could ever have."""
    options = {option.name for policy in policies for option in policy.spec.options}
    clusters = (snapshot, *(worker.snapshot for worker in workers.values()))
    flavors = list(dict.fromkeys(name for cluster in clusters for name in cluster.setup.flavors))
    keys = [
        f"jobs.{name}.runTimes.{key}" for name, job in spec.jobs.items() for key in job.run_times
    ]
    keys += [
        f"services.{name}.serves.{key}" for name, of in spec.services.items() for key in of.serves
    ]
    for path in keys:
        key = path.split(".", 3)[3]
        if key not in options and not set(key.split(",")) <= set(flavors):
            known = ", ".join([*flavors, *sorted(options - set(flavors))])
            raise FieldError(path, f"expected a ResourceFlavor or an option; there is {known}")


def _service(name: str, spec: ServiceSpec, read_text: ReadText, seed: int) -> ServiceRun:
    """Read a service, and draw the requests that it gets in each hour.

    Raises:
        FieldError: its manifest cannot be read, or does not say its rate and its latency.

    """
    path = f"services.{name}"
    source, place = scenario_manifests.service_manifest(spec, path, read_text)
    try:
        wished = wishes.read_wishes(fields.texts(source["metadata"], "annotations", place), 0.0)
    except FieldError as error:
        raise FieldError(f"{place}.{error.path}", error.message) from error
    if wished.request_rate is None or wished.target_latency is None:
        expected = f"expected {wishes.REQUEST_RATE} and {wishes.TARGET_LATENCY}"
        raise FieldError(f"{place}.metadata.annotations", expected)
    created = seconds(spec.created)
    ends, by_hour = created + seconds(spec.lasts), _by_hour(spec, wished.request_rate)
    random = Random(f"{seed}/{path}/rates")  # noqa: S311 - no secret
    rates = {}
    for hour in range(int(created // HOUR), math.ceil(ends / HOUR)):
        spread = math.exp(random.gauss(0.0, spec.sigma)) if spec.sigma else 1.0
        rates[max(created, hour * HOUR)] = by_hour[hour % len(by_hour)] * spread
    return ServiceRun(
        name=name,
        source=source,
        created=created,
        ends=ends,
        startup=seconds(spec.startup),
        rates=rates,
        stated=wished.request_rate,
        target=wished.target_latency,
        most=wished.max_replicas,
        serves={
            key: ReplicaSpeed(
                per_second=float(each.requests_per_second), latency=seconds(each.latency)
            )
            for key, each in spec.serves.items()
        },
    )


def _by_hour(spec: ServiceSpec, stated: float) -> Sequence[float]:
    """Return the requests a second in each hour of a day."""
    if spec.curve is None:
        return (stated,)
    curve: Iterable[float | RateFrom] = spec.curve
    rates = {each.hour: each.rate for each in curve if isinstance(each, RateFrom)}
    if not rates:
        return [part * stated for part in curve if not isinstance(part, RateFrom)]
    by_hour, rate = [], rates[max(rates)]
    for hour in range(24):
        rate = rates.get(hour, rate)
        by_hour.append(rate)
    return by_hour


def _submissions(spec: ScenarioSpec, read_text: ReadText, seed: int) -> tuple[Submission, ...]:
    plans = {name: _plan(job, f"jobs.{name}") for name, job in spec.jobs.items()}
    submissions: list[Submission] = []
    for number, entry in enumerate(spec.arrivals):
        path = f"arrivals[{number}]"
        # One random stream for each entry: a change to one leaves the others unchanged.
        arrived = _arrived(entry, path, read_text, Random(f"{seed}/{number}/arrivals"))  # noqa: S311 - no secret
        submissions += _drawn(arrived, plans, Random(f"{seed}/{number}/run-times"), path)  # noqa: S311
    return _numbered(
        sorted(submissions, key=lambda submission: submission.at), seconds(spec.overhead)
    )


_SAID: Final = "(said)"
"""Stands among run times for what the Job's owner expects; no flavor has such a name."""


def _plan(job: JobTemplate, path: str) -> Plan:
    said = {} if job.said is None else {_SAID: job.said}
    return plan({**job.run_times, **said}, f"{path}.runTimes")


def _arrived(
    entry: ArrivalsSpec, path: str, read_text: ReadText, random: Random
) -> Sequence[Submission]:
    if entry.csv is None:
        return tuple(arrivals.generate(entry, random))
    content = text(read_text, entry.csv.file, f"{path}.csv.file")
    return arrivals.read_arrivals(entry.csv, content.splitlines(), f"{path}.csv")


def _drawn(
    arrived: Sequence[Submission], plans: Mapping[str, Plan], random: Random, path: str
) -> Iterator[Submission]:
    """Yield what has arrived with the run times that are drawn for it."""
    for submission in arrived:
        job = submission.template
        if job not in plans:
            known = ", ".join(plans)
            raise FieldError(path, f"no Job {job} in jobs; there is {known}")
        run = dict(draw(plans[job], submission.given_seconds, random, f"jobs.{job}.runTimes"))
        said, changes = run.pop(_SAID, None), submission.changes
        if said is not None:
            changes = replace(changes, run_time=f"{max(1.0, said):.0f}s")
        yield replace(submission, given_seconds=None, run_seconds=run, changes=changes)


def _numbered(submissions: Sequence[Submission], overhead: float) -> tuple[Submission, ...]:
    """Name Jobs by their kind and number, in the order in which they arrive."""
    counts: Counter[str] = Counter()
    named = []
    for submission in submissions:
        counts[submission.template] += 1
        name = f"{submission.template}-{counts[submission.template]}"
        run = {key: value + overhead for key, value in submission.run_seconds.items()}
        named.append(replace(submission, name=name, run_seconds=run))
    return tuple(named)
