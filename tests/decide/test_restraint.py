"""While Kueue is untested, policies that enforce only observe."""

import dataclasses

import pytest

from tests.builders import policy
from tests.flow.moves import decision, move, pending, reconsidering
from tests.reviews import light_job
from tests.servers import Server, paper_snapshot
from tests.state.kueue import configuration, deployment
from webhook.api import resources as kinds
from webhook.model.kueue_support import KueueManager
from webhook.model.policy.fallback_policy import Mode
from webhook.reconsider import choose
from webhook.state.snapshot import Restraint, Snapshot, updated
from webhook.state.state import State

TESTED = KueueManager(version="v0.19.2")
UNTESTED = KueueManager(version="v0.20.0")
WHY = "Kueue 0.20.0 is untested: tested is 0.18 from 0.18.4 on, 0.19"


def with_manager(snapshot, manager, **given):
    return Restraint(**given)(updated(snapshot, kueue_manager=manager))


def read(*, manager=None, config=""):
    """The state of a cluster in which somebody has looked for Kueue."""
    state = State()
    state.replace(kinds.KUEUE_CONFIG, [configuration(config)] if config is not None else [])
    state.replace(kinds.KUEUE_DEPLOYMENT, [manager] if manager is not None else [])
    return state.snapshot(0.0, 0.0)


def reasons(snapshot, **given):
    return [str(doubt.reason) for doubt in Restraint(**given)(snapshot).setup.doubts]


def test_a_tested_kueue_changes_nothing():
    before = paper_snapshot(kueue_manager=TESTED)

    after = Restraint()(before)

    assert after == before
    assert after.fallback.policies is before.fallback.policies


def test_a_job_stays_as_submitted_and_the_decision_says_why():
    server = Server(with_manager(paper_snapshot(), UNTESTED))

    job, warnings = server.create(light_job())

    assert (job, warnings) == (light_job(), [])
    (line,) = server.logged()
    assert (line["decision"]["mode"], line["decision"]["option"]) == ("Observe", "cpu")
    assert line["decision"]["reason"].startswith(
        f"only observed ({WHY}): would be sent to cpu-lq (cpu): "
    )


def test_the_sentence_stays_within_what_a_warning_can_hold():
    server = Server(with_manager(paper_snapshot(), KueueManager(version="v0.20." + "1" * 90)))

    server.create(light_job())

    (line,) = server.logged()
    assert len(line["decision"]["reason"]) <= 230


@pytest.mark.parametrize("mode", ["Observe", "Advise"])
def test_policies_that_touch_nothing_stay_as_they_are(mode):
    before = paper_snapshot(mode=mode)

    after = with_manager(before, UNTESTED)

    assert after.fallback.policies == before.fallback.policies
    assert [doubt.message for doubt in after.setup.doubts] == [WHY]


def test_a_setting_lets_policies_enforce_and_the_doubts_are_still_named():
    after = with_manager(paper_snapshot(), UNTESTED, enforces=True)

    assert after.fallback.policies[0].spec.mode is Mode.ENFORCE
    assert (after.fallback.is_restrained, [doubt.message for doubt in after.setup.doubts]) == (
        False,
        [WHY],
    )


def test_a_stated_version_stands_for_the_one_that_is_not_known():
    unknown = KueueManager(unknown_version="its image has no tag")

    assert with_manager(paper_snapshot(), unknown).fallback.is_restrained
    assert not with_manager(
        paper_snapshot(), unknown, stated_version="0.19.2"
    ).fallback.is_restrained
    assert with_manager(paper_snapshot(), TESTED, stated_version="0.17").fallback.is_restrained


def test_a_move_is_refused_and_an_undo_is_not():
    server = Server(reconsidering(pending=0))
    stored = pending(server.create(light_job())[0])
    server.show(with_manager(reconsidering(pending=0), UNTESTED))

    after, (said,) = move(server, stored, "cpu")
    back, (undone,) = move(server, stored, "none")

    assert said == f"kueue-fallback: not moved to cpu: {WHY}"
    assert after["metadata"]["labels"] == stored["metadata"]["labels"]
    assert decision(after) == decision(stored)
    assert "undone" in undone
    assert "kueue-fallback.dev/decision" not in back["metadata"]["annotations"]


def test_decided_values_are_still_given_back_on_an_update():
    server = Server(paper_snapshot())
    decided, _ = server.create(light_job())
    server.show(with_manager(paper_snapshot(), UNTESTED))

    labels = light_job()["metadata"]["labels"]
    applied = {**light_job(), "metadata": {**decided["metadata"], "labels": labels}}
    again, _ = server.update(decided, applied)

    assert again["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "cpu-lq"


def test_the_controller_looks_at_no_job_of_a_policy_that_only_observes():
    before = reconsidering()

    assert choose.policies_of(with_manager(before, TESTED)) == before.fallback.policies
    assert choose.policies_of(with_manager(before, UNTESTED)) == ()


def test_what_has_not_changed_stays_the_same_object():
    restraint = Restraint()
    before = updated(paper_snapshot(), kueue_manager=UNTESTED)

    first = restraint(before)
    second = restraint(dataclasses.replace(before, generation=2))
    third = restraint(updated(before, policies=(policy(name="another"),)))

    assert second.fallback.policies is first.fallback.policies
    assert second.setup.doubts is first.setup.doubts
    assert [each.name for each in third.fallback.policies] == ["another"]


@pytest.mark.parametrize(
    ("cluster", "found"),
    [
        ({"manager": deployment()}, []),
        ({}, ["VersionUnknown"]),
        ({"manager": deployment(image="kueue:v0.18.4")}, []),
        ({"manager": deployment(image="kueue:v0.17.1")}, ["VersionUntested"]),
        ({"manager": deployment(args=["--config=x", "--feature-gates=New=1"])}, ["Unmodelled"]),
        ({"manager": deployment(), "config": "featureGates: {New: true}"}, ["Unmodelled"]),
        ({"manager": deployment(), "config": "scheduler: {}"}, ["Unmodelled"]),
        ({"manager": deployment(), "config": None}, ["ConfigurationUnknown"]),
        ({"manager": deployment(), "config": "a: ["}, ["ConfigurationUnknown"]),
        ({"manager": deployment(), "config": "a: " + "[" * 9999}, ["ConfigurationUnknown"]),
        ({"manager": deployment(), "config": "a: 2026-13-45"}, ["ConfigurationUnknown"]),
        ({"manager": deployment(), "config": "featureGates: {New: 3}"}, ["ConfigurationUnknown"]),
        ({"manager": deployment(args=[]), "config": None}, []),
        ({"manager": deployment(args=[]), "config": "featureGates: {New: true}"}, []),
        ({"manager": {"metadata": {"name": "x"}}}, ["VersionUnknown", "ConfigurationUnknown"]),
    ],
)
def test_what_is_read_from_kueues_objects(cluster, found):
    assert reasons(read(**cluster)) == found


def test_gates_of_the_command_line_stand_for_those_of_the_configuration():
    long = "--feature-gates=SchedulerLongRequeueInterval=true"
    config = "featureGates: {PriorityBoost: true}"

    found = read(manager=deployment(args=["--config=x", long]), config=config)

    assert (found.setup.kueue.requeue_seconds, reasons(found)) == (10.0, [])
    assert reasons(read(manager=deployment(), config=config)) == ["Unmodelled"]


def test_before_anybody_has_looked_for_it_kueue_is_not_judged():
    assert reasons(State().snapshot(0.0, 0.0)) == []
    assert reasons(Snapshot()) == []
