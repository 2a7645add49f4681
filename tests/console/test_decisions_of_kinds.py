"""Decisions on Jobs of every kind are shown with it, to those who may list Jobs of it."""

import json
from dataclasses import replace

import pytest

from tests import kinds
from tests.console import views
from tests.console.viewers import Only
from tests.servers import Server
from webhook.console import quota_api
from webhook.console.access import Everybody
from webhook.console.collect import restricted
from webhook.console.decisions import from_job, from_line

WORLD = views.view(
    decisions=(
        views.decision(1, namespace="team", job="train"),
        views.decision(2, namespace="team", job="rayjob/train", kind="RayJob"),
        views.decision(3, namespace="other", job="jobset/train", kind="JobSet"),
    )
)


def shown(view):
    return [decision.job for decision in view.decisions]


def test_the_log_and_a_job_tell_its_kind():
    server = Server(kinds.snapshot())
    source = kinds.made("RayJob")
    after, _ = server.create(source, kind=kinds.kind_of_review(source))
    (line,) = server.logged()
    created = line["decision"]["time"]

    found = from_line(json.dumps(line))
    itself = from_job(
        {**after, "metadata": {**after["metadata"], "creationTimestamp": created}}, "RayJob"
    )

    assert (found.namespace, found.job, found.kind) == ("team", "rayjob/train", "RayJob")
    assert itself == replace(found, is_unverified=True)


@pytest.mark.parametrize(
    ("rights", "wanted"),
    [
        (["team"], ["train"]),
        (["team", "RayJob in team"], ["train", "rayjob/train"]),
        (["RayJob in other", "JobSet in other"], ["jobset/train"]),
        ([], []),
    ],
)
def test_who_may_list_jobs_of_a_kind_sees_its_decisions(rights, wanted):
    assert shown(restricted(WORLD, Only(*rights))) == wanted


@pytest.mark.parametrize(
    ("asked", "wanted"),
    [
        ({}, ["train", "rayjob/train", "jobset/train"]),
        ({"kind": "RayJob"}, ["rayjob/train"]),
        ({"kind": "RayJob", "namespace": "other"}, []),
        ({"kind": "Job", "limit": "1"}, ["train"]),
    ],
)
def test_decisions_are_asked_for_by_kind(asked, wanted):
    answer = quota_api.decisions(WORLD, asked, Everybody())

    assert [decision["job"] for decision in answer["decisions"]] == wanted
