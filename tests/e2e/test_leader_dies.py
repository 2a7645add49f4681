"""The controller dies while a move, or its repair, is under way; another one goes on from there."""

import pytest

from hack import paper
from hack.waiting import wait_for
from tests.e2e import courses
from tests.e2e.decisions import POLICY_API, applied_policy, decision_of, fill, finish_time
from tests.e2e.moving import RULES, hold, is_refused, moved_to
from tests.e2e.plane import workload_of

NAMES = paper.names_with("dies", namespace="dies")
FASTER = 10.0


@pytest.fixture(scope="module")
def plane(own_plane, own_webhook, kueue_proxy):
    """Whose GPU queue is long, so that a light Job is moved to CPU as soon as it may."""
    client = own_plane.client
    client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "dies"}})
    client.apply_all(paper.queues(NAMES))
    policy = finish_time(NAMES, runTime="20s")
    policy["spec"]["reconsider"] = {**RULES, "maxMoves": 5}
    with applied_policy(client, policy, NAMES):
        fill(own_plane, NAMES, gpu=24)
        yield own_plane


def light_in_gpu(client, name):
    """Create a light Job while the CPU queue is stopped."""
    hold(client, NAMES.cpu_cluster_queue, "Hold")
    wait_for(lambda: is_refused(client, NAMES, "cpu"), "the CPU queue is known to be stopped")
    job = client.create(paper.light_job(name, NAMES, faster=FASTER))
    wait_for(lambda: workload_of(client, job), "its Workload")
    return job


def let_cpu_go_on(client):
    hold(client, NAMES.cpu_cluster_queue, "None")
    wait_for(lambda: not is_refused(client, NAMES, "cpu"), "the CPU queue is known to go on")


def replace_controller(webhook):
    """Let another one lead; returns when it does."""
    name = webhook.controllers[0].name
    log = webhook.plane.processes.log(name)
    before = log.read_text().count("leads: writes")
    webhook.plane.kill(name)
    webhook.plane.start(name)
    wait_for(
        lambda: log.read_text().count("leads: writes") > before,
        "another one leads",
    )


def completed(client, name):
    found = courses.wait_until_all_complete(client, NAMES, [name])
    assert courses.wrong(client, NAMES, [name]) == {}
    return found[name]


def test_a_move_that_no_workload_showed_yet_stands_and_is_not_made_again(
    plane, own_webhook, kueue_proxy
):
    client = plane.client
    with kueue_proxy.holding(courses.updates("moving")) as held:
        light_in_gpu(client, "moving")
        let_cpu_go_on(client)
        moved = wait_for(lambda: moved_to(client, NAMES, "moving", "cpu"), "it is moved")
        wait_for(lambda: held.calls, "its Workload would follow")

        replace_controller(own_webhook)

    done = completed(client, "moving")
    assert decision_of(moved)["moves"] == 1
    assert decision_of(done) == decision_of(moved)


def test_a_repair_is_finished_by_the_next_one_though_no_policy_reconsiders_any_more(
    plane, own_webhook, kueue_proxy
):
    client = plane.client
    # Where Kueue admits it in the queue that it belongs to first, nothing is to be repaired.
    with (
        courses.no_pod_ends(plane),
        kueue_proxy.holding(evicts_racing),
        kueue_proxy.holding(admits_racing_in(NAMES.cpu_cluster_queue)),
    ):
        with kueue_proxy.holding(admits_racing_in(NAMES.gpu_cluster_queue)) as admitted:
            job = light_in_gpu(client, "racing")
            courses.set_quotas(client, NAMES, gpu=30, cpu=6)
            wait_for(lambda: admitted.calls, "Kueue would admit it")
            let_cpu_go_on(client)
            change = {"metadata": {"annotations": {"kueue-fallback.dev/move-to": "cpu"}}}
            client.patch("batch/v1", "Job", "racing", change, namespace=NAMES.namespace)
            wait_for(
                lambda: workload_of(client, job)["spec"]["queueName"] == NAMES.cpu_queue,
                "its Workload has followed",
            )
        # The mark is all that the next one knows of it; it may be done before it is looked at.
        wait_for(
            lambda: is_being_repaired(workload_of(client, job)),
            "its Workload is deactivated, with the mark of a repair",
        )
        no_more = {"spec": {"reconsider": None}}
        client.patch(POLICY_API, "FallbackPolicy", NAMES.policy, no_more)

        replace_controller(own_webhook)

    assert decision_of(completed(client, "racing"))["moves"] == 1


def is_being_repaired(workload):
    marks = workload["metadata"].get("annotations", {})
    return workload["spec"].get("active") is False and courses.REPAIR in marks


def admits_racing_in(cluster_queue):
    admits = courses.admissions("racing")
    return lambda call: admits(call) and f'"{cluster_queue}"'.encode() in call.body


def evicts_racing(call):
    return "/job-racing-" in call.path and b'"Evicted"' in call.body
