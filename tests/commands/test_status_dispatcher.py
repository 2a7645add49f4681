"""`kubectl fallback status` on the dispatcher of MultiKueue: for whom no cluster is nominated."""

import json

import pytest

from tests.commands import release
from tests.commands.release import WELL, lease, ready, with_status, without
from tests.state.objects import condition, workload

CONFIG = "/api/v1/namespaces/kueue-system/configmaps/kueue-manager-config"
OURS = "kueue-fallback.dev/dispatcher"


def waiting(name, *nominated):
    reserved = {**condition("QuotaReserved"), "lastTransitionTime": "2026-11-25T06:00:00Z"}
    source = workload(name, conditions=(reserved,), admitted_to="gpu-cq")
    source["status"]["admissionChecks"] = [{"name": "remote", "state": "Pending"}]
    source["status"]["nominatedClusterNames"] = list(nominated)
    return source


@pytest.fixture
def status(tmp_path):
    def run(*workloads, dispatcher=OURS, made=WELL, forbidden=()):
        text = f"kind: Configuration\nmultiKueue: {{dispatcherName: {dispatcher}}}\n"
        config_map = {"metadata": {"namespace": "kueue-system"}, "data": {"config.yaml": text}}
        kept = [item for item in with_status(ready()) if item["kind"] != "Workload"]
        given = {"forbidden": forbidden, CONFIG: (200, [], config_map)}
        result, said = (
            release.status(tmp_path, *kept, *made, *workloads, words=words, **given)
            for words in (("-o", "json"), ())
        )
        found = json.loads(result.output)
        line = [text for text in said.output.splitlines() if text.startswith("Dispatcher")]
        return result.exit_code, found["attention"], found["dispatcher"], line

    return run


def test_those_who_wait_are_counted(status):
    assert status(waiting("a", "near"), waiting("b", "near")) == (
        0,
        [],
        {"ours": True, "waiting": 2, "withoutNomination": 0},
        ["Dispatcher    2 Workloads wait for a worker cluster"],
    )


def test_those_for_whom_no_cluster_is_nominated_need_attention(status):
    code, attention, shown, line = status(waiting("a"), waiting("b", "near"))

    assert (code, shown["withoutNomination"]) == (1, 1)
    assert attention == ["no worker cluster is nominated for 1 Workloads that have quota"]
    assert line == [
        "Dispatcher    2 Workloads wait for a worker cluster, 1 without a nominated one"
    ]


def test_without_a_leader_no_cluster_is_chosen(status):
    made = without(lease, lambda: lease(age=600.0))

    _, attention, _, _ = status(made=made)

    assert (
        "no controller leads, so no worker cluster is chosen: when none has for "
        "settings.dispatcher_timeout (120 s), all are nominated"
    ) in attention


def test_another_dispatcher_is_none_of_ours(status):
    code, attention, shown, line = status(waiting("a"), dispatcher="example.com/other")

    assert (code, attention, shown, line) == (0, [], {"ours": False}, [])


def test_who_may_not_see_kueues_configuration_is_shown_nothing_of_it(status):
    assert status(forbidden=["*/kueue-manager-config"]) == (0, [], {"ours": None}, [])
