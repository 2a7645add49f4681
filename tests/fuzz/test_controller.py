"""No Job, Workload or record ends a turn of the controller, or keeps others' from being written."""

import itertools

import pytest
from hypothesis import strategies as st

from tests.controller.objects import Objects
from tests.fuzz.controlling import SETTINGS, Controlled
from tests.fuzz.drawing import Kept, fuzzed
from tests.fuzz.objects import NOON, OURS, good, hostile, hostile_jobs, journal, records
from tests.fuzz.observing import Observed
from tests.fuzz.values import anything, decisions, deep, mutated
from webhook.api import resources as kinds
from webhook.controller.look_back_process import saved
from webhook.hindsight.look_back import LookBackInput


@pytest.fixture
def kept(monkeypatch):
    made = []

    def make():
        made.append(Controlled(monkeypatch))
        return made[-1]

    yield Kept(make)
    for each in made:
        each.controller.leadership.stop()


def test_hostile_jobs_and_workloads_keep_nobody_elses_from_being_recorded(kept):
    numbers = itertools.count()

    @fuzzed(st.tuples(hostile_jobs(), hostile(kinds.WORKLOADS), hostile_jobs()), share=4.0)
    def hold(drawn):
        first, source, second = drawn
        with kept.world() as controlled:
            controlled.change_job("ADDED", first)
            controlled.change_workload("ADDED", source)
            assert controlled.records(f"good-{next(numbers)}")
            controlled.change_job("MODIFIED", second)
            controlled.change_job("DELETED", second)
            controlled.change_workload("DELETED", source)

    hold()


def test_a_hostile_policy_keeps_no_other_from_being_judged(kept):
    policies = good()[kinds.POLICIES]

    @fuzzed(hostile(kinds.POLICIES))
    def hold(drawn):
        with kept.world() as controlled:
            controlled.change(kinds.POLICIES, "ADDED", drawn)
            is_named = isinstance(drawn.get("metadata"), dict)
            ours = [{**each, "status": {}} for each in policies]
            controlled.cluster.policies = [*([drawn] if is_named else []), *ours]
            controlled.turn()
            assert all(each["status"] for each in ours)
            controlled.change(kinds.POLICIES, "DELETED", drawn)

    hold()


@pytest.mark.parametrize("kind", [kinds.LOCAL_QUEUES, kinds.CLUSTER_QUEUES, kinds.LIMIT_RANGES])
def test_hostile_queues_and_limits_keep_nobody_from_being_recorded(kept, kind):
    numbers = itertools.count()

    @fuzzed(hostile(kind), share=0.5)
    def hold(drawn):
        with kept.world() as controlled:
            controlled.change(kind, "ADDED", drawn)
            assert controlled.records(f"good-{next(numbers)}")
            controlled.change(kind, "DELETED", drawn)

    hold()


@pytest.mark.parametrize("base", [records(), journal()], ids=["run times", "journal"])
def test_what_others_wrote_into_our_configmaps_ends_no_turn(kept, base):
    numbers = itertools.count()
    texts = st.one_of(anything, deep, decisions)
    written = {key: base[key] for key in ("data", "binaryData") if key in base}
    name = base["metadata"]["name"]
    place = f"/api/v1/namespaces/{SETTINGS.namespace}/configmaps/{name}"

    @fuzzed(mutated(written, texts))
    def hold(drawn):
        number = next(numbers)
        with kept.world() as controlled:
            controlled.cluster.held[place] = {"metadata": base["metadata"], **drawn}
            for leads in (0, number + 2):
                controlled.elector.said = leads
                controlled.turn()
            assert controlled.records(f"good-{number}")

    hold()


def test_a_stranger_in_the_journal_keeps_nobody_from_looking_back():
    base = journal()
    place = f"/api/v1/namespaces/{OURS}/configmaps/{base['metadata']['name']}"
    snapshot = Observed().feed.published
    written = {key: base[key] for key in ("data", "binaryData")}
    world = LookBackInput(snapshot=snapshot, now=NOON)

    class Server(Objects):
        def kueue_version(self):
            return "v1beta2"

        def get(self, path, params=None):
            if path.endswith("/workloads"):
                return {"items": self.workloads}
            return super().get(path, params)

    @fuzzed(st.tuples(mutated(written, st.one_of(anything, deep)), hostile(kinds.WORKLOADS)))
    def hold(drawn):
        found, source = drawn
        server = Server()
        server.held[place] = {"metadata": base["metadata"], **found}
        # No API server gives objects without metadata.
        server.workloads = [source] if isinstance(source.get("metadata"), dict) else []
        saved(OURS, world, server)

    hold()
