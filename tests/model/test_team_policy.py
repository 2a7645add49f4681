"""What a policy of a namespace's own may say, and what it is read as."""

import pytest

from tests.model import mutations
from tests.model.team_policies import BROKEN, OPTION, team_policy
from webhook.model.policy.fallback_policy import (
    MOST_OF_TEAM,
    PolicyError,
    in_order,
    read_policy,
    read_team_policy,
)


def errors_of(policy):
    with pytest.raises(PolicyError) as caught:
        read_team_policy(policy)
    return [str(error) for error in caught.value.errors]


def test_it_is_read_as_a_policy_that_is_named_with_its_namespace():
    changes = {"accelerator": "Remove", "perRemoved": {"cpu": 4}}
    options = [OPTION, {"queue": "cpu-lq", "maxWait": "1h", "adaptation": changes}]
    said = {"mode": "Enforce", "priority": 3, "message": "ask us", "warn": False}
    own = team_policy(options=options, **said)

    found = read_team_policy(own)

    assert (found.name, found.namespace, found.generation) == ("research/light", "research", 2)
    assert found.spec == read_policy({**own, "metadata": {"name": "light"}}).spec
    assert [option.name for option in found.spec.options] == ["gpu-lq", "cpu-lq"]


@pytest.mark.parametrize(("path", "spec"), BROKEN, ids=[path for path, _ in BROKEN])
def test_what_acts_beyond_its_namespace_or_with_anothers_rights_is_no_field(path, spec):
    assert errors_of(team_policy(**spec)) == [f"spec.{path}: no such field"]


def test_an_option_must_name_its_queue():
    assert errors_of(team_policy(options=[{"name": "gpu"}])) == [
        "spec.options[0].queue: expected, but not there"
    ]


def test_only_jobs_that_name_a_queue_can_be_matched():
    assert errors_of(team_policy(match={"jobSelector": {}, "queues": ["gpu-lq", ""]})) == [
        "spec.match.queues: a team may not choose Jobs that name no queue"
    ]


def test_prices_are_not_for_teams():
    assert errors_of(team_policy(strategy={"type": "Cost"})) == [
        "spec.strategy.type: a team may not choose Cost: scarce resources have one price for all"
    ]


def test_it_must_say_for_which_jobs_it_is():
    assert errors_of(team_policy(match={"queues": ["gpu-lq"]})) == [
        (
            "spec.match: jobSelector, maxRequests or minRequests must be given; "
            "jobSelector: {} means every Job"
        )
    ]


@pytest.mark.parametrize("namespace", [None, "", "a/b", "Research"])
def test_it_has_a_namespace(namespace):
    policy = team_policy()
    policy["metadata"]["namespace"] = namespace

    assert [error.partition(":")[0] for error in errors_of(policy)] == ["metadata.namespace"]


def test_a_name_that_marks_could_not_carry_is_refused():
    assert errors_of(team_policy(name="a" * 64)) == ["metadata.name: longer than 63 characters"]


def test_those_of_teams_come_last_and_each_namespace_has_only_so_many():
    own = [
        read_team_policy(team_policy(name=f"p{number:02}", namespace=namespace, priority=number))
        for namespace in ("b", "a")
        for number in range(MOST_OF_TEAM + 2)
    ]
    admins = [read_policy({**mutations.FULL, "metadata": {"name": f"x{n}"}}) for n in range(20)]

    found = in_order([*own, *admins])

    assert [policy.name for policy in found[:20]] == sorted(policy.name for policy in admins)
    kept = [f"p{number:02}" for number in range(2, MOST_OF_TEAM + 2)]
    assert sorted(policy.name for policy in found[20:]) == [
        f"{namespace}/{name}" for namespace in ("a", "b") for name in kept
    ]
    assert [policy.name for policy in found[20:22]] == ["a/p17", "a/p16"]
