"""Reading a Job's course from sights of it, and what the demonstration shows of a run."""

from hack import live
from hack.timeline import Course, Run, draw, read_course, since_first


def job(*, suspend=False, started=False, over=False, **metadata):
    status = {"startTime": "2026-01-01T00:00:00Z"} if started else {}
    if over:
        status["conditions"] = [{"type": "Complete", "status": "True"}]
    return {
        "metadata": {"name": "light-1", "labels": {"kueue.x-k8s.io/queue-name": "gpu-lq"}}
        | metadata,
        "spec": {"suspend": suspend},
        "status": status,
    }


def course(name="light-1", **given):
    return Course(**{"name": name, "queue": "gpu-lq", "submitted": 0.0} | given)


def test_a_job_that_waits_has_been_submitted_and_no_more():
    assert read_course(job(suspend=True), None, 2.0) == course(submitted=2.0)


def test_a_job_starts_and_finishes_when_it_is_first_seen_so():
    waiting = read_course(job(suspend=True), None, 2.0)
    running = read_course(job(started=True), waiting, 5.0)
    still = read_course(job(started=True), running, 6.0)

    over = read_course(job(started=True, over=True), still, 9.0)

    assert over == course(submitted=2.0, started=5.0, finished=9.0)


def test_the_reason_is_the_one_on_the_job_without_our_name():
    reason = {"kueue-fallback.dev/reason": "kueue-fallback: starts now"}

    seen = read_course(job(annotations=reason), None, 0.0)

    assert seen.reason == "starts now"


def test_times_are_counted_from_the_first_submission():
    run = Run(
        title="x",
        courses=(
            course(submitted=2.0, started=3.0, finished=7.0),
            course("heavy-1", submitted=4.0, started=4.0, finished=10.0),
        ),
    )

    shifted = since_first(run)

    assert shifted.courses[0] == course(submitted=0.0, started=1.0, finished=5.0)
    assert (shifted.makespan_seconds, shifted.turnaround_seconds) == (8.0, 5.5)
    assert (shifted.moved("gpu-lq"), shifted.moved("cpu-lq")) == (2, 0)


def test_the_view_has_a_line_for_each_queue_and_the_newest_decisions():
    courses = [
        course("heavy-1", started=0.0),
        course("heavy-2"),
        course("light-1", queue="cpu-lq", started=1.0, finished=4.0, reason="starts now"),
    ]

    assert live.lines(courses, ("gpu-lq", "cpu-lq"), 4.0) == [
        "   4.0 s  3 submitted, 1 finished",
        "  gpu-lq   #.                              1 running  1 waiting  0 finished",
        "  cpu-lq                                   0 running  0 waiting  1 finished",
        "  light-1   starts now",
    ]


def test_both_timelines_are_drawn_into_one_picture(tmp_path):
    run = Run(title="Alone", courses=(course(started=1.0, finished=2.0),))

    draw((run, run), tmp_path / "demo.png", cpu_queue="cpu-lq", faster=4.0)

    assert (tmp_path / "demo.png").read_bytes().startswith(b"\x89PNG")
