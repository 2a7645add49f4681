"""The loop of a replica that leads, follows, and changes from one to the other."""

import copy
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest

from tests.builders import policy as read_policy
from tests.controller.fakes import AtOnce, Elector, Followed
from tests.controller.objects import Objects
from tests.controller.watched_jobs import entry, stored
from tests.learn.runs import DAY, failure, success
from tests.model.policies import policy
from tests.state.feeds import changed
from tests.state.kueue import IMAGE, configuration, deployment
from tests.state.objects import cluster_queue, local_queue
from webhook.api.resources import (
    KUEUE_CONFIG,
    KUEUE_DEPLOYMENT,
    POLICIES,
    RUN_TIMES,
    WORKLOADS,
    ReadObject,
    our_path,
)
from webhook.api.watch import WatchUpdate
from webhook.controller import controller, device_reader, parts
from webhook.controller.records import RUNS
from webhook.jobs import JOB
from webhook.learn.estimates import RunTimeLearner
from webhook.learn.run_records import SHARDS
from webhook.reconsider import pending_jobs
from webhook.settings import PrometheusSettings, Settings
from webhook.state.readers import read_by_kind
from webhook.state.snapshot import Snapshot
from webhook.state.watched import signing_keys, watched

LEADS = "leads: writes statuses, records of runs and Events from now on"
FOLLOWS = "leads no more: statuses, records of runs and Events are another's to write"


class Cluster(Objects):
    """It lists policies too, and keeps the statuses that are written."""

    def __init__(self):
        super().__init__()
        self.statuses = []
        metadata = {"name": "light-gpu", "generation": 1, "resourceVersion": "9"}
        self.policy = {**policy(), "metadata": metadata}

    def get(self, path, params=None):
        if path == our_path(POLICIES):
            return {"items": [copy.deepcopy(self.policy)]}
        return super().get(path, params)

    def patch(self, path, body):
        self.statuses.append(path)
        self.policy["status"] = body["status"]
        return body


class Replica:
    def __init__(self, settings=None):
        self.cluster, self.elector, self.lines = Cluster(), Elector(), []
        self.controller = Followed(
            settings or Settings(),
            self.cluster,
            jobs_client=self.cluster,
            elector=self.elector,
            log=self.lines.append,
        )

    def sync(self, image=IMAGE, **rules):
        """Let every watch list: nothing, but for one policy and a Kueue that is tested."""
        held = {
            POLICIES: (ReadObject(("", "light-gpu"), read_policy(**rules)),),
            KUEUE_CONFIG: (read_by_kind(KUEUE_CONFIG, configuration("")),),
            KUEUE_DEPLOYMENT: (read_by_kind(KUEUE_DEPLOYMENT, deployment(image=image)),),
        }
        names = Settings()
        kinds = (
            *watched(namespace=names.namespace, kueue_namespace=names.kueue_namespace),
            signing_keys(names.namespace),
        )
        for resource in kinds:
            if resource.kind != WORKLOADS:
                entries = held.get(resource.kind, ())
                message = WatchUpdate(kind=resource.kind, at=time.monotonic(), entries=entries)
                self.controller.put(message)
        self.list_jobs()
        self.step()

    def list_jobs(self):
        self.controller.put(WatchUpdate(kind="jobs", at=time.monotonic(), entries=()))

    def step(self, term=None):
        self.elector.said = self.elector.said if term is None else term
        self.controller.put(None)
        self.controller.step()

    def shown(self, name, **labels):
        self.controller.before_scrape()
        return self.controller.metrics.registry.get_sample_value(f"kueue_fallback_{name}", labels)


@pytest.fixture
def replica():
    found = Replica()
    yield found
    found.controller.leadership.stop()


def test_who_knows_nothing_yet_does_not_strive(replica):
    replica.step()

    assert replica.elector.steps == 0
    assert replica.controller.not_ready().startswith("not synced yet")


def test_who_follows_is_ready_and_knows_and_writes_nothing(replica):
    replica.sync()

    assert replica.controller.not_ready() == ""
    assert replica.cluster.statuses == []
    assert replica.shown("policy_ready", policy="light-gpu") == 0
    assert replica.shown("unreviewed_jobs_total", policy="light-gpu") == 0
    assert replica.shown("controller_leader") == 0
    assert replica.lines == []


def test_who_comes_to_lead_writes_what_is_to_be_written(replica):
    replica.sync()

    replica.step(term=1)

    assert replica.cluster.statuses == [f"{our_path(POLICIES)}/light-gpu/status"]
    assert replica.lines[0] == LEADS
    assert replica.shown("controller_leader") == 1


def test_who_comes_to_lead_reads_again_what_the_leader_before_recorded(replica):
    replica.sync()
    before = shards_read(replica)

    replica.step(term=1)

    assert (before, shards_read(replica)) == (SHARDS, 2 * SHARDS)


def shards_read(replica):
    return len([path for path in replica.cluster.reads if "/kueue-fallback-run-times-" in path])


def test_who_leads_no_more_says_so_and_writes_no_more(replica):
    replica.sync()
    replica.step(term=1)
    del replica.cluster.policy["status"]

    replica.step(term=0)
    replica.sync()

    assert len(replica.cluster.statuses) == 1
    assert replica.lines[-1] == FOLLOWS
    assert replica.shown("controller_leader") == 0


def test_who_comes_to_lead_in_a_step_writes_from_the_next_one_on(replica):
    replica.sync()
    replica.cluster.policy["metadata"]["generation"] = 2
    list_policies = replica.cluster.get

    def meanwhile(*arguments):
        replica.elector.said = 1
        return list_policies(*arguments)

    replica.cluster.get = meanwhile
    replica.sync()
    before = list(replica.cluster.statuses)
    replica.step()

    assert (before, len(replica.cluster.statuses)) == ([], 1)
    assert replica.lines[0] == LEADS


def test_who_follows_leaves_the_count_of_unreviewed_jobs_to_who_leads(replica):
    job = stored()
    job["metadata"]["creationTimestamp"] = "2100-01-01T00:00:00Z"
    replica.cluster.held["/apis/batch/v1/namespaces/team/jobs/light"] = job
    replica.sync()
    replica.controller.put(WatchUpdate(kind="jobs", at=0.0, entries=()))
    replica.controller.put(WatchUpdate(kind="jobs", at=1.0, event=("ADDED", entry(job))))
    replica.step()
    followed = replica.shown("unreviewed_jobs_total", policy="light-gpu")

    replica.step(term=1)

    assert (followed, replica.shown("unreviewed_jobs_total", policy="light-gpu")) == (0, 1)
    (line,) = [line for line in replica.lines if "Job team/light: created without a review" in line]
    assert line.level == "warning"
    conditions = {each["type"]: each for each in replica.cluster.policy["status"]["conditions"]}
    told = conditions["Reviewed"]
    assert (told["status"], told["reason"]) == ("False", "CreatedWithoutReview")
    assert told["message"].startswith("1 Job created without a review within an hour, the last")


@pytest.mark.parametrize(
    ("days_ago", "refused"), [(0, {("k", "light-gpu", "cpu")}), (2, set())], ids=["now", "over"]
)
def test_what_keeps_failing_is_over_for_moves_when_it_is_for_decisions(
    replica, monkeypatch, days_ago, refused
):
    updates = []
    apply_update = controller.apply_update
    monkeypatch.setattr(
        controller, "apply_update", lambda *given: updates.append(given[1]) or apply_update(*given)
    )
    replica.sync()
    runs, ended = RunTimeLearner(), int(time.time()) - days_ago * DAY
    runs.add(success(ended - 1000, generation=0))
    for uid in range(3):
        runs.add(failure(ended - 300 + uid, generation=0, uid=uid))
    shard = ReadObject(("kueue-fallback", "run-times-0"), runs.records)

    replica.controller.put(WatchUpdate(kind=RUN_TIMES, at=time.monotonic(), entries=(shard,)))
    replica.step()

    assert updates[-1].changed.get("failing", set()) == refused


def test_the_silence_of_pending_jobs_is_told_and_makes_the_state_old(replica):
    kind = pending_jobs.followed(JOB).kind
    replica.sync()
    before = replica.shown("controller_watch_age_seconds", resource=kind)
    replica.sync(reconsider={}, mode="Enforce")
    replica.step()
    silent = replica.shown("controller_watch_age_seconds", resource=kind)
    replica.controller.put(WatchUpdate(kind=kind, at=time.monotonic() + 3600, error="no route"))
    replica.step()
    failing = replica.shown("controller_watch_age_seconds", resource=kind)

    replica.controller.put(WatchUpdate(kind=kind, at=time.monotonic() + 3600, entries=()))
    replica.step()

    assert before is None
    assert silent >= 0
    assert failing >= 0
    assert replica.shown("controller_watch_age_seconds", resource=kind) < 0


WARNED = [
    WatchUpdate(kind="jobs", at=1.0, error="no route"),
    WatchUpdate(kind=RUNS.kind, at=1.0, error="no route"),
    WatchUpdate(kind=POLICIES, at=1.0, error="Response ended prematurely"),
    WatchUpdate(
        kind=POLICIES, at=1.0, event=("ADDED", ReadObject(("", "odd"), None, "policies odd: why"))
    ),
]


@pytest.mark.parametrize("message", WARNED, ids=lambda message: message.error or "skipped")
def test_what_keeps_the_controller_from_the_cluster_is_a_warning(replica, message):
    replica.sync()
    before = len(replica.lines)
    replica.controller.put(message)
    replica.step()

    assert [line.level for line in replica.lines[before:]] == ["warning"]


def test_a_policy_that_is_not_ready_is_a_warning(replica):
    replica.cluster.policy["spec"]["options"][0]["queue"] = "no-such-lq"
    replica.sync()
    replica.step(term=1)

    levels = {str(line): getattr(line, "level", "info") for line in replica.lines}

    assert levels[LEADS] == "info"
    (level,) = [level for line, level in levels.items() if "FallbackPolicy light-gpu: not" in line]
    assert level == "warning"


def test_who_leads_writes_on_each_policy_that_kueue_is_untested(replica):
    replica.sync(image="kueue:v0.20.0")
    replica.step(term=1)

    conditions = {each["type"]: each for each in replica.cluster.policy["status"]["conditions"]}

    assert (conditions["KueueTested"]["status"], conditions["KueueTested"]["message"]) == (
        "False",
        (
            "Kueue 0.20.0 is untested: tested is 0.18 from 0.18.4 on, 0.19; "
            "policies that enforce only observe"
        ),
    )


PARTS = [part.name for part in Replica().controller.parts if part.name != "policies"]


@pytest.mark.parametrize("part", PARTS)
def test_what_fails_in_a_turn_is_counted_named_once_and_leaves_the_rest(replica, part):
    def fail(*_, **__):
        raise RuntimeError("s3cret")

    replica.controller.parts = tuple(
        replace(each, step=fail) if each.name == part else each for each in replica.controller.parts
    )
    replica.sync()
    replica.step(term=1)
    replica.step()

    assert replica.cluster.statuses == [f"{our_path(POLICIES)}/light-gpu/status"]
    assert replica.shown("controller_failed_turns_total", part=part) >= 2
    (told,) = [line for line in replica.lines if line.startswith(f"{part}: RuntimeError at ")]
    assert told.endswith("said once")
    assert "s3cret" not in told


def test_a_message_that_cannot_be_taken_over_costs_that_message(replica):
    replica.controller.put(WatchUpdate(kind="jobs", at=0.0, entries=(None,)))
    replica.sync()

    assert replica.controller.not_ready() == ""
    assert replica.shown("controller_failed_turns_total", part="messages") >= 1


def test_who_leads_goes_on_while_its_prometheus_is_dead(monkeypatch):
    monkeypatch.setattr(device_reader, "threading", SimpleNamespace(Thread=AtOnce))
    asked = PrometheusSettings(url="http://127.0.0.1:1")
    replica = Replica(Settings(prometheus=asked))
    replica.sync()
    follows = replica.shown("prometheus_queries_total", result="failed")

    replica.step(term=1)

    replica.controller.leadership.stop()
    assert (follows, replica.shown("prometheus_queries_total", result="failed")) == (0, 2)
    assert replica.cluster.statuses == [f"{our_path(POLICIES)}/light-gpu/status"]
    refused = "prometheus: The connection to the server 127.0.0.1:1 was refused"
    assert sum(line.startswith(refused) for line in replica.lines) == 1


def test_only_who_is_told_to_looks_at_slices_and_follows_workloads_for_it():
    never, every_ten = (
        {part.name: part for part in Replica(Settings(fragmentation_minutes=n)).controller.parts}
        for n in (0, 10)
    )

    assert "fragmentation" not in never
    assert every_ten["fragmentation"].follows_workloads(Snapshot())


def test_who_led_again_since_the_last_step_looks_again(replica):
    replica.sync()
    replica.step(term=1)
    del replica.cluster.policy["status"]

    replica.step(term=2)

    assert len(replica.cluster.statuses) == 2
    assert replica.lines.count(LEADS) == 2


class Watches:
    """The watches of worker clusters; they note when they are asked for news, and of which."""

    def __init__(self, *given, **named):
        self.manager, self.asked = None, []

    def start(self):
        pass

    def follow(self, manager):
        self.manager = manager

    def with_clusters(self, update, now, unix):
        self.asked.append(self.manager)
        return update

    def counted(self):
        return {}


def test_without_a_dispatcher_worker_clusters_are_followed_where_prices_need_them(monkeypatch):
    monkeypatch.setattr(parts, "ClusterWatches", lambda *given, **named: workers)
    workers = Watches()
    replica = Replica(Settings(watch_workers=True))
    replica.sync(strategy={"type": "Cost"})
    before = list(workers.asked)

    for kind, source in (("clusterqueues", cluster_queue()), ("localqueues", local_queue())):
        replica.controller.put(changed(kind, "ADDED", source))
    replica.step()

    replica.controller.leadership.stop()
    assert set(before) == {None}
    assert list(workers.asked[-1].setup.cluster_queues) == ["gpu-cq"]


def test_a_controller_without_memory_ends(replica, monkeypatch):
    def fail(*_):
        raise MemoryError

    monkeypatch.setattr("webhook.controller.controller.Feed.update", fail)
    with pytest.raises(MemoryError):
        replica.step()
