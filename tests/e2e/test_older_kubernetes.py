"""The oldest Kubernetes that this API server can pass for: the chart's objects, and decisions."""

import urllib.request

import pytest
import yaml

from hack import paper
from hack.api import APPLY_PATCH
from hack.controlplane import ControlPlane, Options
from hack.install import PATIENT, Installation
from hack.waiting import wait_for
from tests.chart import helm
from tests.chart.values import EVERYTHING
from tests.e2e.chart_objects import NOT_SERVED
from tests.e2e.decisions import OPTION, applied_policy, fill, finish_time, queue_of
from tests.e2e.plane import job_of

EMULATED = "1.34"
# An unknown field is dropped, with a warning: as users' clients ask for it.
QUERY = {"fieldManager": "check", "force": "true", "dryRun": "All", "fieldValidation": "Warn"}


@pytest.fixture(scope="module")
def older(tmp_path_factory):
    options = Options(apiserver_flags=(f"--emulated-version={EMULATED}",))
    with ControlPlane(tmp_path_factory.mktemp("older"), options=options) as started:
        yield started


def test_it_is_older(older):
    version = older.client.send("GET", "/version").json()

    assert f"{version['emulationMajor']}.{version['emulationMinor']}" == EMULATED


def test_every_object_of_the_chart_is_accepted(older):
    objects = [each for each in yaml.safe_load_all(helm.template(EVERYTHING).stdout) if each]
    metadata = {"name": helm.NAMESPACE}
    older.client.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})

    for each in objects:
        if each["apiVersion"].split("/")[0] not in NOT_SERVED:
            path = older.client.path_of(each)
            older.client.send("PATCH", path, each, content_type=APPLY_PATCH, query=QUERY)


def test_jobs_are_decided_and_stay_where_their_resources_would_change_later(older):
    metadata = {"name": "stay"}
    older.client.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    names = paper.names_with("stay", namespace="stay")
    older.client.apply_all(paper.queues(names))
    policy = finish_time(names, runTime="20s")
    policy["spec"]["reconsider"] = {"after": "1s", "minimumGain": {"time": "5s", "percent": 5}}
    light = paper.light_job("light", names)
    light["metadata"]["annotations"] = {"kueue-fallback.dev/max-wait": "9h"}
    with (
        Installation(older, chart_values=PATIENT) as installation,
        applied_policy(older.client, policy, names),
    ):
        fill(older, names, gpu=24)
        job = older.client.create(light)

        def says_why():
            with urllib.request.urlopen(
                f"http://127.0.0.1:{installation.controller_metrics}/metrics"
            ) as answer:
                text = answer.read().decode()
            return (
                'controller_not_moved_jobs{policy="light-gpu-stay",reason="olderKubernetes"} 1'
                in text
            )

        wait_for(says_why, "the reason is counted")
        after = job_of(older.client, names.namespace, "light")

    assert job["metadata"]["labels"][OPTION] == "gpu"
    assert queue_of(after) == names.gpu_queue
