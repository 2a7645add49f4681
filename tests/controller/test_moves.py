"""What the controller writes for a move, and what it makes of the answers."""

from __future__ import annotations

import pytest

from tests.controller.moving import (
    LATER,
    Cluster,
    Deaf,
    arrive,
    eight,
    feed,
    job,
    mover,
    step,
    tell,
)
from webhook.api import resources as kinds
from webhook.api.kubernetes_api import Cause, Forbidden, NotServed, Refused, Unreachable
from webhook.controller.mover import CONFIRM_SECONDS

__all__ = ["feed"]


def test_a_move_is_one_annotation_with_the_resource_version(feed):
    cluster = Cluster()

    step(mover(cluster, *eight()), feed)

    ((path, body),) = cluster.patched
    assert path.startswith("/apis/batch/v1/namespaces/team/jobs/job-")
    assert body["metadata"]["resourceVersion"] == "1"
    annotations = body["metadata"]["annotations"]
    assert annotations["kueue-fallback.dev/move-to"] == "cpu"
    assert annotations["kueue-fallback.dev/move-reason"].startswith("done in ")
    assert set(body) == {"metadata"}
    assert "labels" not in body["metadata"]


def test_no_more_are_in_flight_than_were_seen_to_arrive(feed):
    cluster = Cluster()
    found = mover(cluster, *eight())

    step(found, feed)
    step(found, feed, now=LATER)
    first = len(cluster.patched)
    arrive(feed, cluster, found)
    stepped = step(found, feed, now=2 * LATER)

    assert first == 1
    assert stepped.counts == {("light-gpu", "moved"): 1}
    assert len(cluster.patched) == 3


@pytest.mark.parametrize(
    ("cluster", "outcome"),
    [
        (Cluster(refuses=Refused(409, "changed")), "conflict"),
        (Cluster(refuses=Refused(422, "field is immutable")), "refused"),
        (Cluster(refuses=Forbidden("jobs", "denied by another policy")), "refused"),
        (Cluster(refuses=NotServed("jobs")), "refused"),
        (Cluster(refuses=Unreachable("away")), "failed"),
        (Deaf(), "refused"),
    ],
)
def test_a_move_that_does_not_come_off_is_counted(feed, cluster, outcome):
    found = mover(cluster, *eight())

    stepped = step(found, feed)

    assert stepped.counts == {("light-gpu", outcome): 1}
    assert found.in_flight == 0


@pytest.mark.parametrize(
    ("field", "is_asked_again"), [("spec.template", False), ("spec.template.spec", True)]
)
def test_only_where_no_template_may_change_is_no_resource_changed_for_a_while(
    feed, field, is_asked_again
):
    causes = (Cause(field, "FieldValueInvalid"),)
    cluster = Cluster(refuses=Refused(422, "the field is immutable", causes))
    found = mover(cluster, *eight())
    step(found, feed)

    step(found, feed, now=LATER)

    obstacles = {obstacle for _, obstacle in found.obstacles}
    assert ("olderKubernetes" not in obstacles) is is_asked_again


@pytest.mark.parametrize("cluster", [Deaf, lambda: Cluster(refuses=Forbidden("jobs", "denied"))])
def test_a_refused_job_is_left_for_a_while(feed, cluster):
    cluster = cluster()
    found = mover(cluster, job(7))

    step(found, feed)
    step(found, feed, now=LATER)

    assert len(cluster.patched) == 1


@pytest.mark.parametrize(("namespaces", "moves"), [("", 0), ("team", 0), ("another", 1)])
def test_the_off_switch_stops_moves_where_it_covers(feed, namespaces, moves):
    cluster = Cluster()
    switch = {"metadata": {"name": "kueue-fallback-off"}, "data": {"namespaces": namespaces}}
    tell(feed, kinds.OFF_SWITCH, switch)

    step(mover(cluster, *eight()), feed)

    assert len(cluster.patched) == moves


def test_who_may_not_write_moves_nothing(feed):
    cluster = Cluster()

    step(mover(cluster, *eight(), may_write=lambda: False), feed)

    assert not cluster.patched


@pytest.mark.parametrize(
    "version",
    [
        {"minor": "35"},
        {"minor": "35+"},
        {"emulationMajor": "1", "emulationMinor": "33"},
        {"minor": ""},
    ],
)
def test_older_kubernetes_is_not_asked(feed, version):
    cluster = Cluster(**version)

    found = mover(cluster, *eight())
    step(found, feed)

    assert not cluster.patched
    assert {obstacle for _, obstacle in found.obstacles} == {"olderKubernetes"}


def test_what_no_workload_shows_is_given_up(feed):
    found = mover(Cluster(), *eight())
    step(found, feed)

    stepped = step(found, feed, now=CONFIRM_SECONDS + 1)

    assert stepped.counts["light-gpu", "lost"] == 1


def test_old_state_moves_nothing(feed):
    cluster = Cluster()
    found = mover(cluster, *eight())
    feed.expect(kinds.WORKLOADS, 0.0)

    step(found, feed, now=60.0)

    assert not cluster.patched
