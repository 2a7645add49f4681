"""A move that cannot be made whole: nothing changes but the wish, and a warning says why."""

import json
from dataclasses import replace

import pytest

from tests.builders import policy
from tests.flow.moves import asking, decision, move, pending, reconsidering, with_spec
from tests.reviews import light_job
from tests.servers import Server, paper_snapshot
from webhook.model.job import DECISION, OPTION_LABEL
from webhook.model.policy.fallback_policy import Mode
from webhook.model.queues import MULTIKUEUE, AdmissionCheck, StopPolicy, WorkerCluster
from webhook.model.snapshot_parts import OffSwitch
from webhook.state.snapshot import updated

GPU = {"name": "gpu", "queue": "gpu-lq"}


def cpu(**adaptation):
    return {"name": "cpu", "queue": "cpu-lq", "adaptation": {"accelerator": "Remove", **adaptation}}


def stored(server, job=None):
    return pending(server.create(job or light_job())[0])


def refused(server, before, asked=None):
    """Ask; returns the obstacle and the warnings, once nothing else has changed."""
    after, warnings = server.update(before, asked or asking(before, "cpu", "a reason"))
    assert after == before
    return str(server.considered[-1].outcome.obstacle), "\n".join(warnings)


def test_a_job_that_runs_is_not_moved():
    server = Server(reconsidering(pending=0))
    before = stored(server)
    before["spec"]["suspend"] = False

    found = refused(server, before)

    text = "kueue-fallback: not moved to cpu: it is no longer suspended"
    assert found == ("notSuspended", text)
    assert server.considered[-1].outcome.audit == {"not-moved": "notSuspended"}


@pytest.mark.parametrize(
    ("snapshot", "obstacle"),
    [
        (reconsidering(off=OffSwitch()), "off"),
        (reconsidering(as_of=0.0), "stale"),
        (reconsidering(generation=0), "stale"),
        (updated(reconsidering(), policies=()), "noPolicy"),
        (with_spec(reconsidering(), mode=Mode.ADVISE), "notEnforced"),
        (with_spec(reconsidering(), options=policy(GPU).spec.options), "noSuchOption"),
    ],
)
def test_what_has_changed_since_the_decision_is_obeyed(snapshot, obstacle):
    before = stored(Server(reconsidering(pending=0)))

    assert refused(Server(snapshot), before)[0] == obstacle


@pytest.mark.parametrize(
    ("adaptation", "job", "obstacle"),
    [
        (cpu(image="sd-cpu"), {}, "immutableImage"),
        (cpu(env={"NVIDIA_VISIBLE_DEVICES": "void"}), {}, "immutableEnv"),
        (cpu(runtimeClassName="gvisor"), {}, "immutableRuntimeClass"),
        (cpu(affinity="Remove"), {"affinity": {"podAntiAffinity": {}}}, "immutableAffinity"),
        (
            {**GPU, "name": "cpu", "adaptation": {"nodeSelector": {"set": {"pool": "b"}}}},
            {},
            "kueueWouldNotNotice",
        ),
    ],
)
def test_what_kubernetes_or_kueue_would_not_take_is_refused(adaptation, job, obstacle):
    found = policy(GPU, adaptation).spec.options
    snapshot = updated(reconsidering(pending=0), overheads={"gvisor": {}})
    server = Server(with_spec(snapshot, options=found))
    source = light_job()
    source["spec"]["template"]["spec"] |= job

    assert refused(server, stored(server, source))[0] == obstacle


def test_affinity_to_nodes_may_go():
    found = policy(GPU, cpu(affinity="Remove")).spec.options
    server = Server(with_spec(reconsidering(pending=0), options=found))
    source = light_job()
    source["spec"]["template"]["spec"]["affinity"] = {"nodeAffinity": {}}

    moved, _ = move(server, stored(server, source), "cpu")

    assert decision(moved)["option"] == "cpu"


def test_a_job_of_a_policy_that_did_not_reconsider_keeps_its_environment():
    before = stored(Server(paper_snapshot(pending=0)))

    assert refused(Server(reconsidering()), before)[0] == "immutableEnv"


def test_an_option_that_would_be_refused_to_a_new_job_is_refused_with_its_reason():
    server = Server(reconsidering(pending=0))
    before = stored(server)
    snapshot = reconsidering()
    queue = replace(snapshot.setup.cluster_queues["cpu-cq"], stop_policy=StopPolicy.HOLD)
    stopped = updated(snapshot, cluster_queues={**snapshot.setup.cluster_queues, "cpu-cq": queue})

    obstacle, warning = refused(Server(stopped), before)

    assert obstacle == "optionRefused"
    assert warning == (
        "kueue-fallback: not moved to cpu: stopped: ClusterQueue cpu-cq has stopPolicy Hold"
    )


def test_a_job_is_not_moved_to_another_cluster_as_who_runs_it_is_fixed_at_its_creation():
    before = stored(Server(reconsidering(pending=0)))
    snapshot = reconsidering(
        checks={"remote": AdmissionCheck(controller=MULTIKUEUE, parameters="all")},
        multikueue_configs={"all": ("worker",)},
        worker_clusters={"worker": WorkerCluster()},
    )
    queue = replace(snapshot.setup.cluster_queues["cpu-cq"], checks=("remote",))
    remote = updated(snapshot, cluster_queues={**snapshot.setup.cluster_queues, "cpu-cq": queue})

    obstacle, warning = refused(Server(remote), before)

    assert obstacle == "optionRefused"
    assert warning == (
        "kueue-fallback: not moved to cpu\n"
        "kueue-fallback: multiKueueBoundary\n"
        "kueue-fallback: ClusterQueue cpu-cq uses MultiKueue,"
        " and the Job's managedBy is kubernetes.io/job-controller"
    )


def test_what_the_job_says_is_obeyed():
    server = Server(reconsidering(pending=0))
    before = stored(server)

    for said, obstacle in (
        ({"kueue-fallback.dev/policy": "none"}, "optedOut"),
        ({"kueue-fallback.dev/allow": "gpu"}, "optionRefused"),
        ({"kueue-fallback.dev/deadline": "soon"}, "unreadable"),
    ):
        after, _ = server.update(before, asking(before, "cpu", **said))

        assert server.considered[-1].outcome.obstacle == obstacle
        annotations = {**before["metadata"]["annotations"], **said}
        assert after["metadata"]["annotations"] == annotations


def test_where_it_is_already_it_is_not_moved_to():
    server = Server(reconsidering())
    before = stored(server)

    found = refused(server, before)

    assert found == ("alreadyThere", "kueue-fallback: not moved to cpu: it is there already")


def test_a_decision_that_the_same_update_changes_is_left_to_its_owner():
    server = Server(reconsidering(pending=0))
    before = stored(server)
    changed = asking(before, "cpu")
    changed["metadata"]["annotations"][DECISION] = "{}"

    after, _ = server.update(before, changed)

    assert server.considered[-1].outcome.obstacle == "decisionChanged"
    assert after["metadata"]["annotations"] == {**before["metadata"]["annotations"], DECISION: "{}"}
    assert after["spec"] == before["spec"]


@pytest.mark.parametrize(
    ("text", "obstacle"),
    [
        ("{}", "unreadable"),
        ('{"version":2}', "newerDecision"),
        (json.dumps({"version": 1, "original": {"/spec/suspend": True}}), "unreadable"),
    ],
)
def test_a_decision_that_cannot_be_undone_is_not_built_upon(text, obstacle):
    server = Server(reconsidering(pending=0))
    before = stored(server)
    before["metadata"]["annotations"][DECISION] = text

    assert refused(server, before)[0] == obstacle


def test_a_job_that_is_not_adopted_loses_the_label_by_which_it_was_sent():
    server = Server(reconsidering())
    before = pending(light_job())
    asked = asking(before, "cpu")
    asked["metadata"]["labels"][OPTION_LABEL] = "cpu"

    after, warnings = server.update(before, asked)

    assert {**after["metadata"], "annotations": None} == {**before["metadata"], "annotations": None}
    assert server.considered[-1].outcome.obstacle == "immutableEnv"
    assert len(warnings) == 1


def test_a_long_name_makes_no_long_warning():
    server = Server(reconsidering(pending=0))
    before = stored(server)

    _, warning = refused(server, before, asking(before, "x\n" * 500))

    assert warning.endswith(" x... x x x x x x x x x: its policy has no such option")
