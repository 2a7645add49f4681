"""Creates and updates through the handler: what is decided, remembered, and given back."""

import copy
import json

import pytest

from tests.reviews import light_job, review
from tests.servers import Server, paper_snapshot
from webhook.decide import decision_record
from webhook.state.workload import SeenWorkload

QUEUE = "kueue.x-k8s.io/queue-name"
DECISION = "kueue-fallback.dev/decision"
OPTION = "kueue-fallback.dev/option"
REASON = "kueue-fallback.dev/reason"
WARNING = "kueue-fallback: runs in cpu-lq without nvidia.com/gpu: starts now; gpu-lq has 10 pending"
TO_OBJECT = (
    "kueue-fallback: to object: kubectl fallback undo JOB -n team --recreate",
    "kueue-fallback: or delete it and submit with annotation kueue-fallback.dev/policy=none",
)


def queue(job):
    return job["metadata"]["labels"].get(QUEUE)


def decision(job):
    return decision_record.parsed(job["metadata"]["annotations"])


def reservations(server, total, **metadata):
    return [queue(server.create(light_job(f"job-{n}", **metadata))[0]) for n in range(total)]


@pytest.mark.parametrize("mark", ["undone", "undone-from", "decision", "move-to", "class"])
def test_a_mark_among_the_labels_keeps_no_job_from_its_decision(mark):
    server = Server(paper_snapshot())
    job = light_job()
    job["metadata"]["labels"][f"kueue-fallback.dev/{mark}"] = "x"

    decided, _ = server.create(job)

    assert queue(decided) == "cpu-lq"
    assert f"kueue-fallback.dev/{mark}" not in decided["metadata"]["labels"]
    assert server.count("kueue_fallback_patch_verification_failures_total") == 0


def test_a_burst_counts_its_own_decisions():
    server = Server(paper_snapshot())

    assert reservations(server, 5) == ["cpu-lq"] * 3 + ["gpu-lq"] * 2


def test_a_placement_leaves_the_ledger_once_its_workload_is_seen():
    server = Server(paper_snapshot())
    first, _ = server.create(light_job("first"))
    before = server.handler.placements()

    server.show(paper_snapshot(cpu_reserving=1), seen=[SeenWorkload(key=decision(first)["id"])])

    assert (before, server.handler.placements()) == (1, 0)
    assert reservations(server, 3) == ["cpu-lq"] * 2 + ["gpu-lq"]


def test_a_placement_whose_workload_never_comes_is_forgotten():
    server = Server(paper_snapshot(as_of=100.0))
    reservations(server, 3)

    server.now = 131.0
    server.show(paper_snapshot(as_of=131.0))

    assert reservations(server, 1) == ["cpu-lq"]


def expired(server, reason):
    return server.count("kueue_fallback_placements_expired_total", reason=reason)


def test_jobs_that_were_never_created_steer_others_for_some_seconds_only():
    server = Server(paper_snapshot(as_of=100.0))
    reservations(server, 3)

    server.now = 105.0

    assert reservations(server, 1) == ["cpu-lq"]
    assert expired(server, "unseen") == 3


def test_with_a_silent_watch_a_placement_stays_as_long_as_it_may():
    server = Server(paper_snapshot(as_of=100.0))
    reservations(server, 3)

    server.now = 112.0
    silent = reservations(server, 1)
    server.now = 131.0
    server.show(paper_snapshot(as_of=120.0))

    assert silent == ["gpu-lq"]
    assert (expired(server, "unseen"), expired(server, "blind")) == (0, 3)


def test_a_dry_run_is_decided_and_not_remembered():
    server = Server(paper_snapshot())

    shown = [queue(server.create(light_job(f"dry-{n}"), dry_run=True)[0]) for n in range(5)]

    assert shown == ["cpu-lq"] * 5
    assert server.handler.placements() == 0
    assert server.count("kueue_fallback_placements_total") == 0


def test_a_reinvocation_changes_nothing_says_nothing_again_and_is_counted_once():
    server = Server(paper_snapshot())
    first, warnings = server.create(light_job(name=""))
    suspended = {**first, "spec": {**first["spec"], "suspend": True}}

    again, repeated = server.create(suspended)

    assert (again, repeated) == (suspended, [])
    assert warnings == [WARNING, *TO_OBJECT]
    assert server.handler.placements() == 1


def test_a_reinvocation_at_another_replica_tells_it_of_the_placement():
    first, second = Server(paper_snapshot()), Server(paper_snapshot())
    jobs = [first.create(light_job(f"job-{n}"))[0] for n in range(2)]

    for job in (*jobs, *jobs):
        again, _ = second.create({**job, "spec": {**job["spec"], "suspend": True}})
        assert queue(again) == "cpu-lq"

    assert second.handler.placements() == 2
    assert reservations(second, 2) == ["cpu-lq", "gpu-lq"]


def test_a_stale_state_leaves_the_job_with_that_reason():
    server = Server(paper_snapshot(as_of=80.0))

    job, warnings = server.create(light_job())

    text = "left as submitted: stale: the queues were last seen 20s ago (limit 15s)"
    assert queue(job) == "gpu-lq"
    assert job["spec"] == light_job()["spec"]
    assert warnings == []
    assert job["metadata"]["annotations"][REASON] == f"kueue-fallback: {text}"
    assert "option" not in decision(job)
    assert decision(job)["reason"] == text


@pytest.mark.parametrize("mode", ["Observe", "Advise", "Enforce"])
def test_a_job_that_stays_is_told_nothing_and_carries_the_reason(mode):
    server = Server(paper_snapshot(pending=9, mode=mode))

    job, warnings = server.create(light_job())

    assert warnings == []
    assert job["spec"]["template"]["spec"] == light_job()["spec"]["template"]["spec"]
    assert (REASON in job["metadata"].get("annotations", {})) == (mode != "Observe")
    assert server.considered[0].outcome.decision.option == "gpu"
    assert server.considered[0].outcome.decision.changed == ()


def test_a_copy_that_gets_its_gpu_back_is_told_so():
    server = Server(paper_snapshot())
    first, _ = server.create(light_job("first"))
    reservations(server, 2)

    _, warnings = server.create({**first, "metadata": {**first["metadata"], "name": "copy"}})

    assert warnings[0] == (
        "kueue-fallback: runs in gpu-lq with nvidia.com/gpu: 10 pending there;"
        " cpu-lq has 3 with quota"
    )


def test_before_the_first_sync_nothing_is_touched():
    server = Server()

    assert server.create(light_job()) == (light_job(), [])
    assert server.considered[0].outcome.skip == "notSynced"


def test_a_manifest_applied_again_keeps_what_was_decided():
    server = Server(paper_snapshot())
    stored, _ = server.create(light_job())
    again = light_job(annotations=copy.deepcopy(stored["metadata"]["annotations"]))
    again["metadata"]["labels"][OPTION] = "cpu"

    restored, warnings = server.update(stored, again)

    assert (restored, warnings) == (stored, [])
    assert server.considered[-1].outcome.edits


@pytest.mark.parametrize("state", ["stale", "no policy", "off", "unsynced"])
def test_restoration_depends_on_the_jobs_own_decision_alone(state):
    server = Server(paper_snapshot())
    stored, _ = server.create(light_job())
    again = light_job(annotations=stored["metadata"]["annotations"])
    later = {
        "stale": Server(paper_snapshot(as_of=0.0)),
        "no policy": Server(paper_snapshot(mode="Observe")),
        "off": Server(paper_snapshot()),
        "unsynced": Server(),
    }[state]

    restored, _ = later.update(stored, again)

    assert restored == stored


def test_an_update_that_changes_the_decision_passes():
    server = Server(paper_snapshot())
    stored, _ = server.create(light_job())
    undone = light_job(annotations={"kueue-fallback.dev/policy": "none"})

    assert server.update(stored, undone) == (undone, [])


def test_a_copy_under_another_name_is_decided_anew():
    server = Server(paper_snapshot(), now=100.0)
    first, _ = server.create(light_job("first"))
    reservations(server, 2)
    copied = {**first, "metadata": {**first["metadata"], "name": "copy"}}

    job, _ = server.create(copied)

    assert queue(job) == "gpu-lq"
    assert decision(job)["id"] != decision(first)["id"]
    assert job["spec"]["template"]["spec"] == light_job()["spec"]["template"]["spec"]


@pytest.mark.parametrize("mode", ["Observe", "Advise"])
def test_before_enforce_the_spec_stays_as_submitted(mode):
    server = Server(paper_snapshot(mode=mode))

    job, warnings = server.create(light_job())

    assert job["spec"] == light_job()["spec"]
    assert job["metadata"]["labels"] == light_job()["metadata"]["labels"]
    would = WARNING.replace("runs", "would run")
    assert warnings == ([would] if mode == "Advise" else [])
    assert (DECISION in job["metadata"].get("annotations", {})) == (mode == "Advise")
    assert server.considered[0].outcome.decision.option == "cpu"


def test_jobs_of_a_namespace_that_another_address_invents_take_nothing_from_its_own():
    server = Server(paper_snapshot())
    for number in range(200):
        server.post(json.dumps(review(light_job(f"phantom-{number}"))), peer="10.0.0.9")
    server.now += 7
    server.show(paper_snapshot(as_of=server.now, generation=2))

    reservations(server, 14)

    assert server.handler.placements() == 14
