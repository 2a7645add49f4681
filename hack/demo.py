"""Show what a policy saves: thirty Jobs, once all for the GPU queue and once with the policy.

The published experiment's Uniform scenario, with all times divided by a factor. It runs on a
control plane of its own, or on a cluster that has Kueue and this webhook, and removes all that
it created, also when it is interrupted.
"""

import argparse
import contextlib
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from hack import paper, timeline, tools
from hack.controlplane import ControlPlane, NotReadyError
from hack.install import Installation
from hack.live import View

NAMESPACE: Final = "kueue-fallback-demo"
NAMES: Final = paper.names_with("kueue-fallback-demo", namespace=NAMESPACE)
PART_OF: Final = {"app.kubernetes.io/part-of": NAMESPACE}
DECISION: Final = "kueue-fallback.dev/decision"
PAIRS: Final = 15
SPACING_SECONDS: Final = 1.0
READY_SECONDS: Final = 60.0
# The published run took 229 s at full length; three times that is an error, not a slow day.
RUN_SECONDS: Final = 700.0
OVERHEAD_SECONDS: Final = 120.0
REDRAW_SECONDS: Final = 0.5


class DemoError(Exception):
    """Something is missing or does not come; the text says what."""


class Cluster:
    """A cluster, through kubectl."""

    def __init__(self, kubectl: str, kubeconfig: Path) -> None:
        self._command = (kubectl, "--kubeconfig", str(kubeconfig))

    def run(self, *arguments: str, given: object = None) -> str:
        result = subprocess.run(
            [*self._command, *arguments],
            input=None if given is None else json.dumps(given),
            capture_output=True,
            text=True,
            check=False,
        )
        if result.returncode:
            raise DemoError(result.stderr.strip())
        return result.stdout

    def create(self, item: Mapping[str, Any], *more: str) -> str:
        metadata = item["metadata"]
        labels = {**metadata.get("labels", {}), **PART_OF}
        labelled = {**item, "metadata": {**metadata, "labels": labels}}
        return self.run("create", "-f", "-", *more, given=labelled)

    @contextlib.contextmanager
    def watching(self, note: Callable[[dict[str, Any]], None]) -> Iterator[None]:
        """Pass on each state of each of the demonstration's Jobs as it comes."""
        command = [*self._command, "get", "jobs", "--namespace", NAMESPACE]
        watch = subprocess.Popen(
            [*command, "--watch", "--output", "json"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        reader = threading.Thread(target=_read_objects, args=(watch.stdout, note), daemon=True)
        reader.start()
        try:
            yield
        finally:
            watch.terminate()
            watch.wait()
            reader.join()


def _read_objects(lines: Iterator[str], note: Callable[[dict[str, Any]], None]) -> None:
    """Cut kubectl's stream into objects: each ends with a brace in the first column."""
    text = ""
    for line in lines:
        text += line
        if line.startswith("}"):
            note(json.loads(text))
            text = ""


class Experiment:
    """One run: Jobs are submitted, watched and awaited."""

    def __init__(self, cluster: Cluster, *, faster: float) -> None:
        self._cluster = cluster
        self._faster = faster
        self._courses: dict[str, timeline.Course] = {}
        self._changed = threading.Event()
        self._began = 0.0
        self._refused: DemoError | None = None

    def run(self, title: str) -> timeline.Run:
        print(f"\n{title}", flush=True)
        view = View((NAMES.gpu_queue, NAMES.cpu_queue))
        self._began = time.monotonic()
        with self._cluster.watching(self._note):
            submitter = threading.Thread(target=self._submit_all, daemon=True)
            submitter.start()
            while not self._is_over():
                self._changed.wait(REDRAW_SECONDS)
                self._changed.clear()
                view.show(tuple(self._courses.values()), self._now())
        submitted = sorted(self._courses.values(), key=lambda course: course.submitted)
        return timeline.since_first(timeline.Run(title=title, courses=tuple(submitted)))

    def _now(self) -> float:
        return time.monotonic() - self._began

    def _note(self, job: dict[str, Any]) -> None:
        name = job["metadata"]["name"]
        before = self._courses.get(name)
        # A new mapping each time: the view reads it meanwhile.
        course = timeline.read_course(job, before, self._now())
        self._courses = {**self._courses, name: course}
        self._changed.set()

    def _submit_all(self) -> None:
        for number, job in enumerate(_jobs(self._faster)):
            due = self._began + number * SPACING_SECONDS / self._faster
            time.sleep(max(0.0, due - time.monotonic()))
            try:
                self._cluster.create(job)
            except DemoError as error:
                self._refused = error
                return

    def _is_over(self) -> bool:
        if self._refused:
            raise self._refused
        if self._now() > RUN_SECONDS / self._faster + OVERHEAD_SECONDS:
            raise DemoError("the Jobs did not finish in time")
        finished = [course for course in self._courses.values() if course.finished is not None]
        return len(finished) == 2 * PAIRS


def _jobs(faster: float) -> Iterator[dict[str, Any]]:
    for number in range(1, PAIRS + 1):
        yield _sleeping(paper.heavy_job(f"heavy-{number}", NAMES, faster=faster), faster)
        yield _sleeping(paper.light_job(f"light-{number}", NAMES, faster=faster), faster)


def _sleeping(job: dict[str, Any], faster: float) -> dict[str, Any]:
    """Make the Job take its time on real nodes too, as long as the device asks for."""
    on_gpu = paper.HEAVY_SECONDS if "heavy" in job["metadata"]["name"] else paper.LIGHT_SECONDS
    seconds = f"gpu) sleep {on_gpu / faster} ;; cpu) sleep {paper.LIGHT_SECONDS_ON_CPU / faster}"
    (container,) = job["spec"]["template"]["spec"]["containers"]
    container["image"] = "busybox"
    container["command"] = ["sh", "-c", f'case "$RUN_ENV" in {seconds} ;; esac']
    return job


def demonstrate(cluster: Cluster, *, faster: float, simulated: bool) -> tuple[timeline.Run, ...]:
    """Run the scenario without and with the policy; remove all that was created."""
    cluster.run("create", "namespace", NAMESPACE)
    try:
        for item in _queues(simulated=simulated):
            cluster.create(item)
        _wait_for_queues(cluster)
        without = Experiment(cluster, faster=faster).run("Without a policy")
        # Workloads too: the second run must not begin while the first still holds quota.
        cluster.run("delete", "jobs,workloads", "--all", "--namespace", NAMESPACE, "--wait")
        cluster.create(paper.policy(NAMES))
        _wait_for_decisions(cluster, faster)
        with_policy = Experiment(cluster, faster=faster).run("With the policy")
        return without, with_policy
    finally:
        _remove(cluster)


def _queues(*, simulated: bool) -> Iterator[dict[str, Any]]:
    for item in paper.queues(NAMES):
        # The label of the simulated nodes means nothing elsewhere.
        if item["kind"] == "ResourceFlavor" and not simulated:
            item["spec"].pop("nodeLabels", None)
        yield item


def _wait_for_queues(cluster: Cluster) -> None:
    wait = ("wait", "--for=condition=Active", f"--timeout={READY_SECONDS:.0f}s")
    for queue in (NAMES.gpu_cluster_queue, NAMES.cpu_cluster_queue):
        cluster.run(*wait, f"clusterqueue/{queue}")
    for queue in (NAMES.gpu_queue, NAMES.cpu_queue):
        cluster.run(*wait, "--namespace", NAMESPACE, f"localqueue/{queue}")


def _wait_for_decisions(cluster: Cluster, faster: float) -> None:
    """Ask with dry runs until the webhook decides by the new policy."""
    deadline = time.monotonic() + READY_SECONDS
    job = paper.light_job("probe", NAMES, faster=faster)
    while time.monotonic() < deadline:
        answer = json.loads(cluster.create(job, "--dry-run=server", "--output", "json"))
        if DECISION in answer["metadata"].get("annotations", {}):
            return
        time.sleep(0.2)
    raise DemoError("no decision came back: is the webhook installed and reachable?")


def _remove(cluster: Cluster) -> None:
    """Delete what carries our label; the policy first, so that nothing is decided any more."""
    label = ",".join(f"{key}={value}" for key, value in PART_OF.items())
    quiet = ("--ignore-not-found", "--wait=false", "--selector", label)
    for kinds in ("fallbackpolicies", "clusterqueues", "resourceflavors"):
        with contextlib.suppress(DemoError):
            cluster.run("delete", kinds, *quiet)
    with contextlib.suppress(DemoError):
        cluster.run("delete", "namespace", NAMESPACE, "--ignore-not-found", "--wait=false")


@contextlib.contextmanager
def _own_cluster() -> Iterator[Cluster]:
    with tempfile.TemporaryDirectory(prefix="kueue-fallback-demo-") as folder:
        plane = ControlPlane(
            Path(folder), report=lambda what: print(f"starting {what}", flush=True)
        )
        with plane, Installation(plane):
            yield Cluster(str(plane.programs.path("kubectl")), plane.kubeconfig)


@contextlib.contextmanager
def _given_cluster(kubeconfig: Path) -> Iterator[Cluster]:
    if not kubeconfig.is_file():
        raise DemoError(f"{kubeconfig}: no such file")
    kubectl = shutil.which("kubectl") or str(tools.ensure().path("kubectl"))
    yield Cluster(kubectl, kubeconfig)


def _report(runs: Sequence[timeline.Run], *, faster: float, picture: Path) -> None:
    print(f"\n{'':18}{'makespan':>10}{'turnaround':>12}{'on CPU':>8}")
    for run in runs:
        makespan, turnaround = run.makespan_seconds, run.turnaround_seconds
        moved = run.moved(NAMES.cpu_queue)
        print(f"{run.title:18}{makespan:>8.1f} s{turnaround:>10.1f} s{moved:>8}")
    before, after = (run.makespan_seconds for run in runs)
    print(f"The policy saved {100 * (before - after) / before:.1f} % of the makespan.")
    print(f"Times are 1/{faster:g}; what Kubernetes takes to start and end a pod is not shortened.")
    timeline.draw(runs, picture, cpu_queue=NAMES.cpu_queue, faster=faster)
    print(f"Both timelines are drawn in {picture}.")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kubeconfig", type=Path, help="a cluster with Kueue and the webhook")
    parser.add_argument("--faster", type=float, default=4.0, help="divides all times; default 4")
    parser.add_argument("--output", type=Path, default=Path("demo.png"), help="the picture's file")
    return parser.parse_args()


def main() -> int:
    given = _arguments()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    print(f"30 Jobs, twice; run times and arrivals are 1/{given.faster:g} of the experiment's.")
    place = _given_cluster(given.kubeconfig) if given.kubeconfig else _own_cluster()
    try:
        with place as cluster:
            runs = demonstrate(cluster, faster=given.faster, simulated=not given.kubeconfig)
    except KeyboardInterrupt:
        print("\nInterrupted; everything that was created is removed.", file=sys.stderr)
        return 130
    except (DemoError, NotReadyError) as error:
        print(f"\n{error}", file=sys.stderr)
        return 3
    _report(runs, faster=given.faster, picture=given.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
