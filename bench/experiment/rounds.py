"""One round: every arm submits a scenario's Jobs at once, and all are watched to their end."""

import contextlib
import dataclasses
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from bench.experiment import objects
from bench.experiment.arms import Arm
from bench.experiment.course import Course, decided, seen
from hack.api import ApiError
from hack.plane import Plane
from webhook.model.job import QUEUE_LABEL
from webhook.simulate.scenario import Scenario, Submission

Say = Callable[[str], None]
Courses = dict[tuple[str, str], Course]
Show = Callable[[Mapping[str, Sequence[Course]], float], None]

LEAD_SECONDS: Final = 1.0
# Between the beginnings of two arms, whole: two cores do not create several bursts at once in time.
STAGGER_SECONDS: Final = 6.0
# Of a second of the clock, when arms begin: Burst's heavy Jobs, 50 ms apart, then come within one,
# and its light ones after it. Kueue draws the order of those that were created within one second.
PHASE_SECONDS: Final = 0.2
SAY_EVERY_SECONDS: Final = 15.0
REMOVAL_SECONDS: Final = 300.0


class RoundError(Exception):
    """A round did not come to its end; the text says why."""


class Round:
    """One scenario under several arms; `run` once."""

    def __init__(
        self,
        plane: Plane,
        scenarios: Mapping[str, tuple[Arm, Scenario]],
        *,
        name: str,
        stagger_seconds: float = STAGGER_SECONDS,
        before: Callable[[Arm, objects.Object], None] = lambda _arm, _job: None,
    ) -> None:
        """*before* is called with each Job before it is created, in a thread of its arm."""
        self._plane = plane
        self._before = before
        self._scenarios = scenarios
        self._name = name
        self._offsets = {
            objects.namespace_of(arm): number * stagger_seconds
            for number, (arm, _) in enumerate(scenarios.values())
        }
        self._lock = threading.Lock()
        self._changed = threading.Event()
        self._failed: Exception | None = None
        self._courses: Courses = {}
        self._submissions: dict[tuple[str, str], tuple[Scenario, Submission]] = {}
        self._began = 0.0

    def run(
        self,
        *,
        timeout_seconds: float,
        say: Say,
        show: Show = lambda _courses, _now: None,
    ) -> dict[str, tuple[Course, ...]]:
        """Return every arm's Jobs in order of submission, when all have ended.

        *show* is called at each change and once a second, with the courses so far and the seconds
        since the beginning.
        """
        self._began = time.monotonic() + lead(time.time())
        for arm, scenario in self._scenarios.values():
            for submission in scenario.submissions:
                course = self._expected(scenario, submission)
                self._courses[objects.namespace_of(arm), course.name] = course
                self._submissions[objects.namespace_of(arm), course.name] = scenario, submission
        stop = threading.Event()
        threads = [
            threading.Thread(target=self._submit, args=(arm, scenario, stop), daemon=True)
            for arm, scenario in self._scenarios.values()
        ]
        with _watching(self._plane, self._note):
            try:
                for thread in threads:
                    thread.start()
                self._wait(timeout_seconds, say, show)
            finally:
                stop.set()
                for thread in threads:
                    thread.join()
        return self._by_arm(self._courses)

    def _by_arm(self, courses: Courses) -> dict[str, tuple[Course, ...]]:
        return {
            key: tuple(
                course
                for (namespace, _), course in courses.items()
                if namespace == objects.namespace_of(arm)
            )
            for key, (arm, _) in self._scenarios.items()
        }

    def _expected(self, scenario: Scenario, submission: Submission) -> Course:
        labels = scenario.templates[submission.template]["metadata"]["labels"]
        return Course(
            name=f"{self._name}-{submission.name}",
            template=submission.template,
            submitted_to=labels[QUEUE_LABEL],
            due=submission.at,
        )

    def _now(self, namespace: str = "") -> float:
        """Return the seconds since the round began, or since one arm did."""
        return time.monotonic() - self._began - self._offsets.get(namespace, 0.0)

    def _submit(self, arm: Arm, scenario: Scenario, stop: threading.Event) -> None:
        namespace = objects.namespace_of(arm)
        for submission in scenario.submissions:
            if stop.wait(max(0.0, submission.at - self._now(namespace))):
                return
            job = objects.job(scenario, submission, arm, round_name=self._name)
            try:
                self._before(arm, job)
                self._created(arm, scenario, submission, self._plane.client.create(job))
            except (ApiError, OSError) as error:
                self._fail(error)
                return

    def _fail(self, error: Exception) -> None:
        self._failed = error
        self._changed.set()

    def _created(
        self, arm: Arm, scenario: Scenario, submission: Submission, job: Mapping[str, Any]
    ) -> None:
        key = (objects.namespace_of(arm), job["metadata"]["name"])
        now = self._now(key[0])
        option, starts_in = decided(job)
        queue = job["metadata"]["labels"][QUEUE_LABEL]
        with self._lock:
            self._courses[key] = dataclasses.replace(
                self._courses[key],
                created=now,
                queue=queue,
                option=option,
                starts_in=starts_in,
                run_seconds=submission.seconds_on(flavors_of(scenario, submission, queue), option),
            )

    def _note(self, job: Mapping[str, Any]) -> None:
        metadata = job["metadata"]
        key = (metadata["namespace"], metadata["name"])
        now = self._now(key[0])
        with self._lock:
            if key in self._courses:
                before = self._courses[key]
                after = seen(before, job, now)
                is_moved = before.created is not None and after.queue != before.queue
                self._courses[key] = self._moved(key, after, job) if is_moved else after
        self._changed.set()

    def _moved(self, key: tuple[str, str], course: Course, job: Mapping[str, Any]) -> Course:
        """Let what was forecast at its creation count no more: it went elsewhere."""
        scenario, submission = self._submissions[key]
        option, _ = decided(job)
        run = submission.seconds_on(flavors_of(scenario, submission, course.queue), option)
        return dataclasses.replace(course, option=option, starts_in=None, run_seconds=run)

    def _wait(self, timeout_seconds: float, say: Say, show: Show) -> None:
        say_next = SAY_EVERY_SECONDS
        while True:
            self._changed.wait(1.0)
            self._changed.clear()
            if self._failed:
                raise RoundError(f"a Job could not be created: {self._failed}")
            courses = dict(self._courses)
            show(self._by_arm(courses), self._now())
            if all(each.is_over for each in courses.values()):
                return
            if self._now() > timeout_seconds + max(self._offsets.values()):
                raise RoundError(f"Jobs did not end within {timeout_seconds:.0f} s")
            if self._now() > say_next:
                say_next += SAY_EVERY_SECONDS
                say(self._progress(courses))

    def _progress(self, courses: Courses) -> str:
        over = Counter(namespace for (namespace, _), each in courses.items() if each.is_over)
        done = (
            f"{key} {over[objects.namespace_of(arm)]}" for key, (arm, _) in self._scenarios.items()
        )
        return f"  {self._now():4.0f} s, ended: {', '.join(done)}"


def lead(unix: float) -> float:
    """Say in how many seconds from then a round begins, at the same moment of a second."""
    return LEAD_SECONDS + (PHASE_SECONDS - unix - LEAD_SECONDS) % 1.0


def flavors_of(scenario: Scenario, submission: Submission, queue: str) -> str:
    """Name the flavor of a queue that has one."""
    namespace = scenario.templates[submission.template]["metadata"]["namespace"]
    local_queue = scenario.snapshot.setup.local_queues[namespace, queue]
    (group,) = scenario.snapshot.setup.cluster_queues[local_queue.cluster_queue].groups
    return ",".join(group.flavors)


@contextlib.contextmanager
def _watching(plane: Plane, note: Callable[[Mapping[str, Any]], None]) -> Iterator[None]:
    """Pass on each state of each of the experiment's Jobs as it comes."""
    label = ",".join(f"{key}={value}" for key, value in objects.PART_OF.items())
    with ThreadPoolExecutor(max_workers=1) as pool:
        with plane.client.watching("batch/v1", "Job", selector=label) as events:
            jobs = (event["object"] for event in events)
            reading = pool.submit(lambda: deque(map(note, jobs), maxlen=0))
            yield
        reading.result()


def remove_jobs(plane: Plane, arms: Sequence[Arm]) -> None:
    """Delete what a round left, and wait until no Workload is there that could hold quota."""
    for arm in arms:
        path = plane.client.path("batch/v1", "Job", namespace=objects.namespace_of(arm))
        plane.client.send("DELETE", path, {"propagationPolicy": "Background"})
    deadline = time.monotonic() + REMOVAL_SECONDS
    for arm in arms:
        namespace = objects.namespace_of(arm)
        while plane.client.list("kueue.x-k8s.io/v1beta2", "Workload", namespace=namespace):
            if time.monotonic() > deadline:
                raise RoundError(f"Workloads are left in {namespace}")
            time.sleep(0.5)
