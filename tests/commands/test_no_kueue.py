"""Where the API server serves no Kueue, or none that is understood, no path is made up."""

import pytest

from tests.controller.moving import Cluster
from webhook.api.kubernetes_api import NotServed
from webhook.api.resources import kueue_path
from webhook.commands import status_parts
from webhook.commands.status_parts import StatusPart
from webhook.controller import mover
from webhook.state import live_workload


class WithoutKueue(Cluster):
    """Nothing is asked of it."""

    def kueue_version(self):
        return None

    def get(self, path, params=None):
        raise AssertionError(path)

    patch = post = get


def test_a_path_has_the_version_that_is_served():
    assert kueue_path("v1beta1", "workloads") == "/apis/kueue.x-k8s.io/v1beta1/workloads"


def test_commands_say_that_there_are_no_queues_and_no_clusters():
    client = WithoutKueue()

    assert status_parts.clusters(client) == StatusPart(shown=[])
    assert status_parts.local_queues(client, "team") == StatusPart(unknown="Kueue is not installed")


def test_no_workload_is_written_or_read_anew():
    class Workload:
        namespace, name = "team", "w"

    with pytest.raises(NotServed, match=r"not found: kueue\.x-k8s\.io"):
        mover.to_workload(WithoutKueue(), Workload(), {})
    with pytest.raises(NotServed, match=r"not found: kueue\.x-k8s\.io"):
        live_workload.read_anew(WithoutKueue(), Workload())
