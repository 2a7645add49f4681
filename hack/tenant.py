"""Let a tenant with rights to Jobs and its own policies try everything; see who else notices.

usage: python -m hack.tenant [--seconds 600] [--rate 20] [--hostile-rate 5] [--seed 1] [-o json]

On a control plane of its own. Others create Jobs of two policies all the time: alone, then beside
the tenant, then beside the tenant while nobody calls the webhook. What differs between the first
two is what the tenant has done. Its large objects also keep the API server and Kueue busy, on the
same CPUs: so creates are compared with those of the third, which comes last, as others' Jobs that
were created without a review keep the controller busy, too.
Exits with 1 where something was started again, decided otherwise, slower or larger than it may be.
"""

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from bench import full_queues, report
from bench.plane import installed, say
from bench.report import Figures, Target
from hack import bodies, hostile, load, meters, paper
from hack.install import NAMESPACE, Installation, kubeconfig_of
from hack.kwok import GPU
from hack.plane import Plane
from webhook.controller import look_back_process
from webhook.decide.decision_record import from_object
from webhook.hindsight import journal
from webhook.hindsight.journal import JournalEntry, Slot

ACCOUNT: Final = "tenant"
POLICY_GROUP: Final = "kueue-fallback.dev"
TEAM_POLICIES: Final = "teamfallbackpolicies"
RELEASE: Final = "kueue-fallback"
"""The name of our webhook configuration."""
SLOWER: Final = 1.5
"""The p99 of others' creates beside the tenant, to that while nobody calls the webhook."""
LARGER: Final = 1.10
"""The memory of each process in the last third, to that without the tenant."""
KEPT: Final = 100
KEEP_EVERY: Final = 10
"""Even, so that what is kept is of the policy by thresholds: one of forecasts has no guests."""
MOST_SAMPLES: Final = 20
COUNTED: Final = ("failures_total", "patch_verification_failures_total")
CHART_VALUES: Final = ("teamPolicies.enabled=true",)
"""What the tenant needs for its own policies, which is off by default."""
_QUOTAS: Final = {
    "own": {"cpu": "4", "memory": "6Gi", GPU: "1"},
    "spare": {"cpu": "10000", "memory": "10000Gi", GPU: "0"},
}
"""Of two more queues: one full of others' Jobs alone, one with room for all."""
_FORECAST: Final = {"workload-type": "forecast"}
_DAY: Final = 86_400.0


def main() -> None:
    given = _arguments()
    figures = {"machine": report.machine(), "seed": given.seed}
    say(f"seed {given.seed}")
    with installed(chart_values=CHART_VALUES) as installation:
        figures |= hour(
            installation,
            seconds=given.seconds,
            rates=(given.rate, given.hostile_rate),
            seed=given.seed,
        )
    wanted = targets(figures)
    if given.folder:
        given.folder.mkdir(parents=True, exist_ok=True)
        (given.folder / "tenant.json").write_text(json.dumps(figures, indent=1))
    print(json.dumps(figures, indent=1) if given.output == "json" else _text(figures, wanted))
    sys.exit(0 if all(target.is_met for target in wanted) else 1)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make tenant", description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=600.0, help="of each of the three runs")
    parser.add_argument("--rate", type=float, default=20.0, help="creates a second of others")
    parser.add_argument("--hostile-rate", type=float, default=5.0, help="and of the tenant")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")
    parser.add_argument("--folder", type=Path, help="for tenant.json")
    return parser.parse_args()


def hour(
    installation: Installation,
    *,
    seconds: float,
    rates: tuple[float, float],
    seed: int,
    alone_seconds: float | None = None,
    is_compared: bool = True,
) -> Figures:
    """Run others alone, for *alone_seconds* or as long, and then beside the tenant.

    *rates*: creates a second, others' and the tenant's. *is_compared*: also beside the tenant while
    nobody calls the webhook.
    """
    plane = installation.plane
    rate, hostile_rate = rates
    prepare(plane)
    found = {"alone": _run(installation, seconds=alone_seconds or seconds, rate=rate)}
    say("now beside the tenant")
    with _tenant(installation, seconds=seconds, rate=hostile_rate, seed=seed) as process:
        found["beside"] = _run(installation, seconds=seconds, rate=rate)
        tried, _ = process.communicate(timeout=seconds + 120)
    if is_compared:
        say("now beside the tenant, and nobody calls the webhook")
        with (
            _nobody_calling(plane),
            _tenant(installation, seconds=seconds, rate=hostile_rate, seed=seed + 1) as process,
        ):
            found["uncalled"] = _run(installation, seconds=seconds, rate=rate)
            process.communicate(timeout=seconds + 120)
    return {**found, "tried": json.loads(tried.splitlines()[-1])}


@contextlib.contextmanager
def _nobody_calling(plane: Plane) -> Iterator[None]:
    """Take our webhook configuration away meanwhile."""
    api, kind = "admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration"
    (ours,) = (each for each in plane.client.list(api, kind) if each["metadata"]["name"] == RELEASE)
    kept = ("name", "labels", "annotations")
    metadata = {key: ours["metadata"][key] for key in kept if key in ours["metadata"]}
    plane.client.delete(api, kind, RELEASE)
    try:
        yield
    finally:
        plane.client.create({**ours, "apiVersion": api, "kind": kind, "metadata": metadata})


def prepare(plane: Plane) -> None:
    """Fill the queues that both share, and give the tenant its namespace and its rights."""
    full_queues.create(plane)
    names, client = full_queues.NAMES, plane.client
    for name, quota in _QUOTAS.items():
        client.apply(paper.resource_flavor(name))
        client.apply(paper.cluster_queue(f"{name}-cq", flavor=name, quota=quota))
        client.apply(paper.local_queue(f"{name}-lq", names.namespace, cluster_queue=f"{name}-cq"))
    client.create_all([_of_a_day(f"own-{number}") for number in range(3)])
    tenants = hostile.NAMES.namespace
    client.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": tenants}})
    queues = {"gpu-lq": "gpu-cq", "cpu-lq": "cpu-cq", "spare-lq": "spare-cq"}
    for name, target in queues.items():
        client.apply(paper.local_queue(name, tenants, cluster_queue=target))
    client.apply_all(_rights(tenants))
    client.apply_all(_policies(names, [names.namespace, tenants]))
    plane.wait("both policies to decide", lambda: _decides(plane))
    # The look back reads the newest entries of the journal. If these grew more from run to run, the
    # controller would, too, whoever created the Jobs.
    client.apply(_hour_before())


def _hour_before() -> Any:
    """Return the ConfigMap of the journal's last hour, with as many entries as are looked back."""
    hour = journal.slot_of(time.time()) - 1
    over = (_entry(number, hour) for number in range(look_back_process.MOST_ENTRIES))
    written = journal.config_map(Slot(number=hour, entries={entry.key: entry for entry in over}))
    return {**written, "metadata": {**written["metadata"], "namespace": NAMESPACE}}


def _entry(number: int, hour: int) -> JournalEntry:
    """Return a light Job that was sent to the queue with room, and deleted before it began."""
    created = hour * journal.SLOT_SECONDS + number // 2
    submitted = paper.light_job("light", full_queues.NAMES)["spec"]["template"]["spec"]
    return JournalEntry(
        key=str(uuid.UUID(int=number)),
        uid=str(uuid.UUID(int=number, version=4)),
        namespace=full_queues.NAMES.namespace,
        name=f"light-{number}",
        created=created,
        finished=created + 30,
        outcome=journal.GONE,
        queue="spare-lq",
        submitted=json.dumps(submitted),
        ran=json.dumps(submitted),
        labels={paper.QUEUE_LABEL: "own-lq", **_FORECAST},
        decision=from_object(
            {
                "version": 1,
                "policy": "forecast",
                "mode": "Enforce",
                "option": "spare",
                "from": {"queue": "own-lq"},
                "options": [{"name": name, "queue": f"{name}-lq"} for name in ("own", "spare")],
            }
        ),
    )


def _of_a_day(name: str) -> Any:
    """Return a Job of which it is known for how long it holds its quota."""
    made = paper.gpu_job(name, full_queues.NAMES, labels=paper.HEAVY, run={"gpu-run": _DAY})
    limit = {"kueue.x-k8s.io/max-exec-time-seconds": f"{_DAY:.0f}"}
    made["metadata"]["labels"] |= {paper.QUEUE_LABEL: "own-lq", **limit}
    return made


def _rights(namespace: str) -> list[Any]:
    metadata = {"name": ACCOUNT, "namespace": namespace}
    verbs = ["create", "get", "list", "patch", "update", "delete"]
    rbac = "rbac.authorization.k8s.io"
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata},
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "Role",
            "metadata": metadata,
            "rules": [
                {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": verbs},
                {"apiGroups": [POLICY_GROUP], "resources": [TEAM_POLICIES], "verbs": verbs},
            ],
        },
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": rbac, "kind": "Role", "name": ACCOUNT},
            "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": namespace}],
        },
    ]


def _policies(names: paper.Names, namespaces: Sequence[str]) -> list[Any]:
    """Let all policies hold in both namespaces; that of forecasts limits guests."""
    expression = {
        "key": "kubernetes.io/metadata.name",
        "operator": "In",
        "values": list(namespaces),
    }
    threshold, forecast = paper.policy(names), paper.policy(names)
    threshold["spec"]["strategy"]["threshold"][1] = {"option": "cpu", "orPendingBelow": 1_000_000}
    # A place in which a copied decision would put back what no Job may have.
    threshold["spec"]["options"][1]["adaptation"]["image"] = "diffusion-cpu"
    forecast["metadata"]["name"] = "forecast"
    forecast["spec"]["match"]["jobSelector"] = {"matchLabels": _FORECAST}
    forecast["spec"]["options"][0] |= {"name": "own", "queue": "own-lq"}
    forecast["spec"]["options"][1] |= {
        "name": "spare",
        "queue": "spare-lq",
        "slowdown": 1.5,
        "guests": {"maxJobs": 3},
    }
    forecast["spec"]["strategy"] = {"type": "FinishTime", "finishTime": {"runTime": "1h"}}
    # It matches nobody. Because of it the controller follows Jobs and Workloads from the start, as
    # it does where anybody has moved or undone a Job, which the tenant may do with its own.
    moving = paper.policy(names)
    moving["metadata"]["name"] = "moving"
    moving["spec"]["match"]["jobSelector"] = {"matchLabels": {"workload-type": "nobody"}}
    moving["spec"] |= {"strategy": forecast["spec"]["strategy"], "reconsider": {}}
    for policy in (threshold, forecast, moving):
        policy["spec"]["match"]["namespaceSelector"] = {"matchExpressions": [expression]}
    return [threshold, forecast, moving]


def _decides(plane: Plane) -> bool:
    found = [plane.client.create(job, dry_run=True) for job in _jobs("0" * 12)]
    queues = [job["metadata"]["labels"][paper.QUEUE_LABEL] for job in found]
    return queues == [full_queues.NAMES.cpu_queue, "spare-lq"]


def _jobs(number: str = bodies.NUMBER) -> list[Any]:
    """Return a Job of each policy."""
    threshold, forecast = (bodies.job(full_queues.NAMES, number) for _ in range(2))
    forecast["metadata"]["labels"] |= {paper.QUEUE_LABEL: "own-lq", **_FORECAST}
    return [threshold, forecast]


def _run(installation: Installation, *, seconds: float, rate: float) -> Figures:
    """Let others create Jobs; count what they got, what it cost, and what was started again."""
    plane = installation.plane
    target = full_queues.api_server(plane)
    target.bodies.write_text("\n".join(json.dumps(job) for job in _jobs()))
    metrics = installation.replicas[0].metrics
    counters = {name: meters.Counter(metrics, f"kueue_fallback_{name}") for name in COUNTED}
    starts = meters.Counter(metrics, "kueue_fallback_observer_starts_total")
    workers = _workers(installation)
    restarts: Counter[str] = Counter()
    every = max(5.0, seconds / MOST_SAMPLES)
    pace = (f"-rate={rate}", f"-seconds={seconds}", f"-every={every}s")
    flags = (*pace, f"-keep={KEPT}", f"-keep-every={KEEP_EVERY}", "-clean-up")
    samples: list[Figures] = []
    with contextlib.closing(load.jobs_meanwhile(target, *flags)) as results:
        for result in results:
            restarts.update(_started_again(installation))
            samples.append({**result, "memoryMegabytes": _memory(installation)})
            say(_line(samples[-1]))
    restarts.update(_started_again(installation))
    restarts["observer"] += int(_grown(starts))
    restarts["server"] += len(_workers(installation) - workers)
    return {
        "samples": samples,
        "restarts": dict(restarts),
        "counted": {name: _grown(counter) for name, counter in counters.items()},
    }


def _grown(counter: meters.Counter) -> float:
    """Tell by how much a counter has grown; one that began anew is told by its process."""
    with contextlib.suppress(OSError):
        return max(0.0, counter.grown())
    return 0.0


def _workers(installation: Installation) -> set[int]:
    pid = installation.plane.processes.pid(installation.replicas[0].name)
    return set(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))


def _started_again(installation: Installation) -> Iterator[str]:
    """Do what the kubelet does: start again what has ended."""
    processes = installation.plane.processes
    for name in processes.died():
        say(f"{name} has ended; starting it again")
        processes.start(name)
        yield name


def _memory(installation: Installation) -> dict[str, float]:
    processes = installation.plane.processes
    total: dict[str, float] = {}
    for name in ("controller", *(replica.name for replica in installation.replicas)):
        # One that ends meanwhile is counted as started again.
        with contextlib.suppress(OSError, StopIteration):
            for each, value in meters.memory_megabytes(processes.pid(name)).items():
                role = each.split(" ")[0]
                total[role] = round(total.get(role, 0.0) + value, 1)
    return total


def _line(sample: Figures) -> str:
    memory = ", ".join(f"{role} {value} MB" for role, value in sample["memoryMegabytes"].items())
    notes = ", ".join(f"{note} {count}" for note, count in sorted(sample["notes"].items()))
    return f"p99 {sample['latency']['p99']:.0f} ms; {notes}; {memory}"


@contextlib.contextmanager
def _tenant(
    installation: Installation, *, seconds: float, rate: float, seed: int
) -> Iterator["subprocess.Popen[str]"]:
    kubeconfig = kubeconfig_of(installation.plane, ACCOUNT, namespace=hostile.NAMES.namespace)
    command = [sys.executable, "-m", "hack.hostile", str(kubeconfig)]
    command.append(f"--webhook={installation.port}")
    flags = (f"--seconds={seconds}", f"--rate={rate}", f"--seed={seed}")
    with subprocess.Popen(
        [*command, *flags], stdout=subprocess.PIPE, text=True, cwd=report.ROOT
    ) as process:
        try:
            yield process
        finally:
            process.terminate()


def wrong_decisions(figures: Figures) -> int:
    """Count others' Jobs that were not decided, or not in the shares that they had alone."""
    alone, beside = (_notes(figures[name]["samples"]) for name in ("alone", "beside"))
    calls = [_sum(figures[name]["samples"], "calls") for name in ("alone", "beside")]
    queues = {note for note in {*alone, *beside} if note.startswith("queue ")}
    missing = sum(
        max(0, round(alone[queue] * calls[1] / calls[0]) - beside[queue] - 1) for queue in queues
    )
    return int(max(missing, calls[1] - beside["decided"]))


def growths(figures: Figures) -> dict[str, float]:
    """Return, by process, the median memory of the last third over that without the tenant."""
    alone, beside = (_last_third(figures[name]["samples"]) for name in ("alone", "beside"))
    return {role: round(beside.get(role, 0.0) / value, 3) for role, value in alone.items()}


def _last_third(samples: Sequence[Figures]) -> dict[str, float]:
    kept = [sample["memoryMegabytes"] for sample in samples[-max(1, len(samples) // 3) :]]
    roles = {role for sample in kept for role in sample}
    return {
        role: statistics.median(sample[role] for sample in kept if role in sample)
        for role in sorted(roles)
    }


def slowdown(figures: Figures, *, to: str) -> float:
    """Return the median of the samples' p99 beside the tenant over that in another run."""
    p99 = [
        statistics.median(sample["latency"]["p99"] for sample in figures[name]["samples"][:-1])
        for name in (to, "beside")
    ]
    return float(round(p99[1] / p99[0], 3))


def restarts(figures: Figures) -> int:
    return int(sum(figures["beside"]["restarts"].values()))


def errors(figures: Figures) -> int:
    return sum(
        sum(result["errors"].values())
        for sample in figures["beside"]["samples"]
        for result in (sample, sample["deleted"])
    )


def harms(figures: Figures) -> int:
    """Count what the tenant got that nobody may have."""
    wanted = ("refused because of a decision", "carried out by a forged decision")
    return sum(figures["tried"].get(name, 0) for name in wanted)


def targets(figures: Figures) -> list[Target]:
    return [
        Target(name="what was started again", value=restarts(figures), limit=0),
        Target(name="decisions otherwise than alone", value=wrong_decisions(figures), limit=0),
        Target(name="creates and deletes of others that failed", value=errors(figures), limit=0),
        Target(name="forged decisions carried out, and refusals", value=harms(figures), limit=0),
        *(
            Target(name=name, value=value, limit=0)
            for name, value in figures["beside"]["counted"].items()
        ),
        Target(
            name="p99 of others' creates, to beside the tenant without us",
            value=slowdown(figures, to="uncalled"),
            limit=SLOWER,
        ),
        *(
            Target(name=f"memory of the {role}, to alone", value=found, limit=LARGER)
            for role, found in growths(figures).items()
        ),
    ]


def _notes(samples: Sequence[Figures]) -> Counter[str]:
    found: Counter[str] = Counter()
    for sample in samples:
        found.update(sample["notes"])
    return found


def _sum(samples: Sequence[Figures], key: str) -> int:
    return sum(sample[key] for sample in samples)


def _text(figures: Figures, wanted: Sequence[Target]) -> str:
    lines = [", ".join(f"{key} {value}" for key, value in figures["machine"].items())]
    lines += [f"{count:6} {what}" for what, count in sorted(figures["tried"].items())]
    lines += ["", f"p99 of others' creates, to alone: {slowdown(figures, to='alone'):.2f} times"]
    return "\n".join([*lines, "", *(target.line() for target in wanted)])


if __name__ == "__main__":
    main()
