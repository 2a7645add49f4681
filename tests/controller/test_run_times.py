import pytest

from tests.controller.objects import Objects
from tests.learn.runs import begun, ended, failure
from tests.state.objects import condition, reserving
from webhook.api.kubernetes_api import Forbidden, Refused
from webhook.api.resources import ReadObject
from webhook.api.watch import WatchUpdate
from webhook.controller import records
from webhook.controller.records import WRITE_SECONDS, Keeper
from webhook.hindsight.entries import FinishedRun
from webhook.hindsight.journal import Written
from webhook.learn.estimates import RunTimeLearner
from webhook.learn.run_records import (
    Run,
    config_map,
    name_of,
    read_shard,
    shard_of,
    unpack_runs,
)
from webhook.state.run_records_reader import path_of
from webhook.state.workload import read_workload

NAMESPACE = "ours"


def keeper(server, *runs, is_leader=lambda: True):
    found = Keeper(server, NAMESPACE, is_leader=is_leader)
    show(found, *runs)
    return found


def show(found, *runs):
    over = [None if run is None else FinishedRun(run, None) for run in runs]
    entries = tuple(ReadObject(("team", str(number)), each) for number, each in enumerate(over))
    return found.take(WatchUpdate(kind="workloads", at=0.0, entries=entries))


def stored(server):
    found = {}
    for source in server.held.values():
        found |= read_shard(source)
    return found


def test_runs_are_written_to_the_shard_of_their_class():
    server = Objects()
    found = keeper(server, ended("a"), None, failure(5, key="a"))

    assert found.step(0.0) == Written(tried=True, written=1)
    assert server.writes == [("post", name_of(shard_of("a")))]
    assert stored(server) == found.records


def test_many_changed_shards_take_turns():
    server = Objects()
    found = keeper(server, *(ended(f"class-{number}") for number in range(500)))

    looks = [found.step(turn * WRITE_SECONDS).written for turn in range(5)]

    assert looks == [8, 8, 8, 8, 0]
    assert stored(server) == found.records


def test_a_restart_loses_nothing():
    server = Objects()
    before = keeper(server, *(ended("a", 1000 + at, uid=at) for at in range(40)))
    before.step(0.0)

    after = keeper(server, ended("b"))
    for turn in range(5):
        after.step(turn * WRITE_SECONDS)

    assert after.records["a"] == before.records["a"]
    assert set(stored(server)) == {"a", "b"}
    assert ("patch", name_of(shard_of("a"))) not in server.writes


def test_a_restart_forgets_neither_clusters_nor_how_runs_begun():
    server = Objects()
    far = begun(cluster="far", reserved=88, ready=130)
    before = keeper(server, ended("a", begun=far))
    before.step(0.0)

    after = keeper(server, ended("b"))
    after.step(0.0)

    known = RunTimeLearner()
    for key, record in after.records.items():
        known.merge(key, record)
    assert after.records["a"] == before.records["a"]
    assert known.estimates()["a", "t4@far"].seconds == pytest.approx(60)
    assert known.delays.starts(None)["", "t4@far"].seconds == pytest.approx(30)
    assert unpack_runs(known.delays.dispatches["gpu-cq"]) == (Run(100, 1, 12),)


def test_two_controllers_at_once_lose_nothing():
    server = Objects()
    both = [keeper(server), keeper(server)]
    for found in both:
        found.step(0.0)
    for uid, found in enumerate(both):
        show(found, ended("a", uid=uid))

    looks = [[found.step(turn * WRITE_SECONDS).written for found in both] for turn in (1, 2)]

    merged = RunTimeLearner()
    for uid in range(2):
        merged.add(ended("a", uid=uid))
    assert looks == [[1, 0], [0, 1]]
    assert stored(server) == merged.records


def test_who_does_not_lead_knows_what_was_and_what_is_and_writes_nothing():
    server = Objects()
    keeper(server, ended("a")).step(0.0)
    writes = list(server.writes)
    found = keeper(server, ended("b"), is_leader=lambda: False)

    looks = [found.step(turn * WRITE_SECONDS) for turn in range(3)]

    assert looks == [Written(tried=True), Written(), Written()]
    assert set(found.records) == {"a", "b"}
    assert server.writes == writes


def test_who_comes_to_lead_writes_at_once_what_the_leader_before_did_not():
    server, leading = Objects(), []
    before = keeper(server, *(ended(f"class-{number}") for number in range(5)))
    after = keeper(server, is_leader=lambda: bool(leading))
    after.step(0.0)
    before.step(0.0)
    show(after, *(ended(f"class-{number}") for number in range(5)), ended("last"))
    leading.append(after)
    after.read_again()

    found = after.step(1.0)

    assert found == Written(tried=True, written=1)
    assert stored(server) == after.records


@pytest.mark.parametrize("refusal", [Refused(422, "too long"), Forbidden("x", "no right")])
def test_a_refused_write_is_said_and_tried_again(refusal):
    server = Objects()
    found = keeper(server, ended("a"))
    server.refusal = refusal

    failed, mended = found.step(0.0), found.step(WRITE_SECONDS)

    assert failed == Written(tried=True, errors=(f"run times: {refusal}",))
    assert mended == Written(tried=True, written=1)


def test_nothing_is_written_before_all_was_read():
    server = Objects()
    found = keeper(server, ended("a"))
    server.get = lambda path: (_ for _ in ()).throw(Forbidden(path, "no right to get"))

    assert found.step(0.0) == Written(tried=True, errors=("run times: no right to get",))
    assert server.writes == []


def test_only_ended_workloads_are_read_and_bad_ones_are_passed_over():
    admitted = {**condition("Admitted"), "lastTransitionTime": "2026-11-21T06:00:10Z"}
    over = {
        **condition("Finished", reason="Succeeded"),
        "lastTransitionTime": "2026-11-21T06:01:20Z",
    }
    running, done = reserving(also=(admitted,)), reserving(also=(admitted, over))

    assert records.read_run("workloads", running).value is None
    assert records.read_run("workloads", done).value.ended == read_workload(done).run
    broken = records.read_run("workloads", {**done, "spec": 5})
    assert (broken.value, broken.problem.startswith("workloads ")) == (None, True)


def test_names_with_arguments_that_an_older_version_wrote_are_written_over():
    shard = shard_of("a")
    older = config_map(shard, {"a": ended("a").record()})
    line = older["data"]["classes"].replace('"coarse"', '"name": "mysql -phunter2", "coarse"')
    server = Objects()
    server.post(path_of(NAMESPACE), {**older, "data": {**older["data"], "classes": line}})
    found = keeper(server)

    found.step(0.0)

    (source,) = server.held.values()
    assert "hunter2" not in str(source)
    assert read_shard(source) == {"a": ended("a").record()}


def test_records_of_another_version_are_not_written_over_for_being_unreadable():
    source = config_map(3, {"a": ended("a").record()})
    server = Objects()
    server.post(path_of(NAMESPACE), {**source, "data": {**source["data"], "version": "2"}})

    keeper(server).step(0.0)

    assert len(server.writes) == 1


def test_it_is_written_at_most_every_so_many_seconds():
    server = Objects()
    found = keeper(server, ended("a"))
    found.step(0.0)
    show(found, ended("a", 2000, uid=2))

    early, late = found.step(WRITE_SECONDS - 1), found.step(WRITE_SECONDS)

    assert (early, late) == (Written(), Written(tried=True, written=1))
    assert server.writes[1:] == [("patch", name_of(shard_of("a")))]
