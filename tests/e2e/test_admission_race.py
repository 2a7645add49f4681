"""Kueue admits a Job in the queue that it is just leaving: its write is held back until it is late.

Each Job meets one of the orders in which the writes may land; all end in the queue of the Job.
"""

import contextlib
import random
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from hack import paper
from hack.waiting import wait_for
from tests.conftest import FULL
from tests.e2e import courses
from tests.e2e.decisions import applied_policy, fill, queue_of
from tests.e2e.plane import has_condition

NAMES = paper.names_with("race", namespace="default")
WAYS = {"late": 6, "between": 3, "beside": 5, "first": 3, "undone": 3}
"""To how many Jobs of a round; Kueue looks at five Jobs at once, of which some must go on."""
ROUNDS = 10 if FULL else 1
FASTER = 10.0
MOVE_TO = "kueue-fallback.dev/move-to"


@pytest.fixture(scope="module")
def plane(own_plane, own_webhook, kueue_proxy):
    """A plane where light Jobs wait behind 4 that do not end, and none is moved unasked."""
    own_plane.client.apply_all(paper.queues(NAMES))
    policy = paper.policy(NAMES)
    policy["spec"]["strategy"]["threshold"] = [
        {"option": option, "orPendingBelow": 1000} for option in ("gpu", "cpu")
    ]
    policy["spec"]["reconsider"] = {"after": "1h"}
    with applied_policy(own_plane.client, policy, NAMES):
        fill(own_plane, NAMES, gpu=4, cpu=6)
        yield own_plane


def workloads_of(client):
    return courses.workloads(client, NAMES.namespace)


@pytest.mark.parametrize("number", range(ROUNDS))
def test_each_job_runs_once_in_the_queue_it_was_moved_to(plane, kueue_proxy, number):
    client = plane.client
    named = {way: [f"{way}-{number}-{each}" for each in range(n)] for way, n in WAYS.items()}
    names = [name for group in named.values() for name in group]
    courses.set_quotas(client, NAMES, gpu=4, cpu=6)
    client.create_all([job_named(name) for name in names])
    wait_for(lambda: set(names) <= set(workloads_of(client)), "all wait")

    with contextlib.ExitStack() as stack:
        stack.enter_context(courses.no_pod_ends(plane))
        holding = kueue_proxy.holding
        held = {way: stack.enter_context(holding(courses.admissions(f"{way}-"))) for way in WAYS}
        followed = stack.enter_context(holding(courses.updates("between-")))
        courses.set_quotas(client, NAMES, gpu=4 + len(names), cpu=6 + len(names))
        wait_for(
            lambda: sum(len(each.calls) for each in held.values()) == len(names),
            "Kueue would admit them all",
        )
        land(client, named, held, followed, random.Random(number))
        wait_for(
            lambda: are_settled(client, names),
            "what landed late is taken back",
        )

    found = courses.wait_until_all_complete(client, NAMES, names)
    print(f"seed {number}: all are complete, in {queues_of(found)}")
    assert courses.wrong(client, NAMES, names) == {}
    assert {queue_of(found[name]) for name in named["late"]} == {NAMES.cpu_queue}
    assert {queue_of(found[name]) for name in named["undone"]} == {NAMES.gpu_queue}
    wait_for(
        lambda: courses.reserved(client, NAMES.gpu_cluster_queue)[paper.GPU] == "4", "GPUs are free"
    )
    wait_for(
        lambda: courses.reserved(client, NAMES.cpu_cluster_queue)["cpu"] == "24", "CPUs are free"
    )


def land(client, named, held, followed, seed):
    """Move each Job, and let Kueue's admission of where it was before land as its way says."""
    # It lands first: the Job is moved no more, or its Workload is made anew.
    held["first"].release()
    ask_all(client, named["first"], "cpu")
    # It lands when the Workload has followed.
    ask_all(client, named["late"], "cpu")
    ask_all(client, named["undone"], "none")
    wait_for(lambda: have_followed(client, named["late"], NAMES.cpu_queue), "they are followed")
    wait_for(lambda: have_followed(client, named["undone"], NAMES.gpu_queue), "they are followed")
    held["late"].release()
    held["undone"].release()
    # It lands when the Job was moved, and before its Workload follows.
    ask_all(client, named["between"], "cpu")
    wait_for(lambda: len(followed.calls) == WAYS["between"], "their Workloads would follow")
    held["between"].release()
    wait_for(lambda: have_quota(client, named["between"]), "they are admitted")
    followed.release()
    # It lands at about the same time.
    acts = [partial(ask, client, name, "cpu") for name in named["beside"]]
    acts.insert(seed.randrange(len(acts)), held["beside"].release)
    with ThreadPoolExecutor(len(acts)) as pool:
        for act in acts:
            pool.submit(act)


def job_named(name):
    job = paper.light_job(name, NAMES, faster=FASTER)
    if name.startswith("undone"):
        # Sent to CPU at its creation, so that there is something to undo.
        job["metadata"]["annotations"] = {"kueue-fallback.dev/allow": "cpu"}
    return job


def are_settled(client, names):
    """Tell whether none has quota where it does not belong; Kueue makes some Workloads anew."""
    found = workloads_of(client)
    return all(name in found and courses.is_settled(found[name], NAMES) for name in names)


def queues_of(found):
    """Count in which queues the Jobs of each way have ended."""
    return dict(Counter(f"{name.partition('-')[0]} {queue_of(job)}" for name, job in found.items()))


def ask_all(client, names, option):
    with ThreadPoolExecutor(len(names)) as pool:
        tuple(pool.map(lambda name: ask(client, name, option), names))


def ask(client, name, option):
    change = {"metadata": {"annotations": {MOVE_TO: option}}}
    client.patch("batch/v1", "Job", name, change, namespace=NAMES.namespace)


def have_followed(client, names, queue):
    found = workloads_of(client)
    return all(found[name]["spec"]["queueName"] == queue for name in names)


def have_quota(client, names):
    found = workloads_of(client)
    return all(has_condition(found[name], "QuotaReserved") for name in names)
