"""What Kueue writes when it starts a Job stays, though it may equal what the decision took off."""

import copy

import pytest

from tests.flow.moves import pending
from tests.reviews import light_job
from tests.servers import Server, paper_snapshot
from webhook.jobs import BY_NAME
from webhook.jobs.pod import POD

KUEUE = {"username": "system:serviceaccount:kueue-system:kueue-controller-manager"}
GATE, TOPOLOGY = {"name": "kueue.x-k8s.io/admission"}, {"name": "kueue.x-k8s.io/topology"}
TOLERATION = {"key": "nvidia.com/gpu", "operator": "Exists"}
SELECTOR = {"nvidia.com/gpu.product": "NVIDIA-L40S"}


def pods_of(job):
    return job["spec"]["template"]["spec"]


def pinned_job():
    job = light_job()
    pods_of(job).update(nodeSelector=dict(SELECTOR), tolerations=[dict(TOLERATION)])
    return job


@pytest.fixture
def server():
    return Server(paper_snapshot())


@pytest.fixture
def stored(server):
    job = pending(server.create(pinned_job())[0])
    assert "tolerations" not in pods_of(job)
    assert not pods_of(job).get("nodeSelector")
    return job


def on_its_flavor(stored, *, suspend):
    """The Job as Kueue starts it on a flavor whose nodes the manifest named."""
    job = copy.deepcopy(stored)
    job["spec"]["suspend"] = suspend
    pods_of(job).update(nodeSelector=dict(SELECTOR), tolerations=[dict(TOLERATION)])
    return job


def test_the_flavors_node_selector_and_tolerations_stay_on_a_job_that_starts(server, stored):
    started = on_its_flavor(stored, suspend=False)

    assert server.update(stored, started) == (started, [])


def as_submitted(stored, *, suspend):
    """The stored Job with everything that its manifest says."""
    job, manifest = copy.deepcopy(stored), pinned_job()
    job["metadata"]["labels"] |= manifest["metadata"]["labels"]
    job["spec"] = {**manifest["spec"], "suspend": suspend}
    return job


@pytest.mark.parametrize("suspend", [True, False])
def test_nothing_is_put_back_in_what_kueues_account_writes(server, stored, suspend):
    new = as_submitted(stored, suspend=suspend)

    assert server.update(stored, new, userInfo=KUEUE) == (new, [])


@pytest.mark.parametrize("suspend", [True, False])
def test_what_a_person_applies_again_is_put_back(server, stored, suspend):
    # A server-side apply takes suspend off, if its manifest does not have it.
    kept, _ = server.update(stored, as_submitted(stored, suspend=suspend))

    assert kept["metadata"]["labels"] == stored["metadata"]["labels"]
    assert not pods_of(kept).get("nodeSelector")
    assert "tolerations" not in pods_of(kept)


def test_applied_again_while_it_runs_the_flavors_values_stay(server, stored):
    running = on_its_flavor(stored, suspend=False)

    kept, _ = server.update(running, as_submitted(running, suspend=False))

    assert pods_of(kept)["nodeSelector"] == SELECTOR
    assert pods_of(kept)["tolerations"] == [TOLERATION]
    assert pods_of(kept)["containers"] == pods_of(stored)["containers"]


def suspended(kind, value):
    source = {}
    node = source
    for part in kind.suspend[:-1]:
        node = node.setdefault(part, {})
    node[kind.suspend[-1]] = value
    return source


@pytest.mark.parametrize(
    "kind", [kind for kind in BY_NAME.values() if kind is not POD], ids=lambda kind: kind.kind
)
def test_clearing_the_field_that_keeps_it_waiting_starts_it(kind):
    waits, runs = suspended(kind, True), suspended(kind, None)

    assert kind.is_started(waits, runs)
    assert not kind.is_started(runs, waits)
    assert not kind.is_started(waits, waits)


@pytest.mark.parametrize(
    ("before", "after", "starts"),
    [
        ([GATE], None, True),
        ([GATE, TOPOLOGY], [TOPOLOGY], True),
        ([TOPOLOGY], [], True),
        ([GATE], [GATE], False),
        (None, None, False),
    ],
)
def test_each_gate_that_goes_starts_a_pod(before, after, starts):
    assert POD.is_started(suspended(POD, before), suspended(POD, after)) == starts
