import copy
from functools import partial

import pytest

from tests.controller.policies import READY, snapshot
from tests.model.policies import policy
from tests.model.team_policies import team_policy
from webhook.api.kubernetes_api import NotServed, Refused
from webhook.api.resources import POLICIES, our_path
from webhook.controller import policy_status
from webhook.model.policy.fallback_policy import MOST_OF_TEAM


class Policies:
    """An API server that holds policies."""

    def __init__(self, *items):
        self.items = [copy.deepcopy(item) for item in items]
        self.patches = []
        self.refusal = None

    def get(self, path, params=None):
        assert path == our_path(POLICIES)
        start = int(params.get("continue", 0))
        following = str(start + 1) if start + 1 < len(self.items) else ""
        return {"items": self.items[start : start + 1], "metadata": {"continue": following}}

    def patch(self, path, body):
        self.patches.append((path, body))
        if self.refusal:
            raise self.refusal
        name = path.split("/")[-2]
        (found,) = (item for item in self.items if item["metadata"]["name"] == name)
        found["status"] = body["status"]
        return found


def stored(name, **spec):
    metadata = {"name": name, "generation": 1, "resourceVersion": "9"}
    return {**policy(**spec), "metadata": metadata}


def look(server, is_leader=lambda: True):
    return policy_status.reconcile_policies(
        server,
        snapshot(),
        partial(policy_status.condition_of, own_namespace="own"),
        clock=lambda: "2026-01-01T00:00:00Z",
        is_leader=is_leader,
    )


def test_every_policy_gets_its_condition_and_a_second_look_writes_nothing():
    server = Policies(stored("a"), stored("b", options=[{"queue": "tpu-lq"}]))

    first, second = look(server), look(server)

    assert first.ready == second.ready == {"a": True, "b": False}
    assert [(name, found.ready) for name, found in first.written] == [("a", True), ("b", False)]
    assert second.written == []
    assert [path for path, _ in server.patches] == [
        f"{our_path(POLICIES)}/a/status",
        f"{our_path(POLICIES)}/b/status",
    ]


def test_who_does_not_lead_judges_and_writes_nothing():
    server = Policies(stored("a"), stored("b", options=[{"queue": "tpu-lq"}]))

    found = look(server, is_leader=lambda: False)

    assert found == policy_status.StatusReport(ready={"a": True, "b": False})
    assert server.patches == []


def test_who_leads_no_more_writes_no_more():
    server = Policies(stored("a"), stored("b"))

    found = look(server, is_leader=lambda: not server.patches)

    assert found.ready == {"a": True, "b": True}
    assert [path for path, _ in server.patches] == [f"{our_path(POLICIES)}/a/status"]


def test_an_invalid_policy_is_said_to_be_invalid_and_the_next_one_is_judged():
    server = Policies(stored("a", mode="Foo"), stored("b"))

    found = look(server)

    assert [(name, one.reason) for name, one in found.written] == [
        ("a", "Invalid"),
        ("b", "Resolved"),
    ]


@pytest.mark.parametrize("error", [Refused(409, "conflict"), NotServed("a")])
def test_a_policy_that_changed_meanwhile_is_looked_at_again(error):
    server = Policies(stored("a"))
    server.refusal = error

    assert (look(server).again, look(server).failed) == (True, [])


def test_a_refused_write_is_told():
    server = Policies(stored("a"))
    server.refusal = Refused(422, "no")

    assert look(server).failed == [("a", "no (422)")]


class WithTeams(Policies):
    """An API server that also holds policies of namespaces' own."""

    def __init__(self, *items, teams):
        super().__init__(*items)
        self.teams = teams

    def get(self, path, params=None):
        if path == TEAMS:
            return {"items": self.teams, "metadata": {}}
        return super().get(path, params)

    def patch(self, path, body):
        self.patches.append((path, body))
        return body


TEAMS = "/apis/kueue-fallback.dev/v1alpha1/teamfallbackpolicies"


def of_team(name, namespace="team", **spec):
    own = team_policy(name=name, namespace=namespace, **spec)
    return {"metadata": own["metadata"], "spec": own["spec"]}


def look_at_teams(server):
    return policy_status.reconcile_policies(
        server,
        snapshot(),
        partial(policy_status.condition_of, own_namespace="own"),
        clock=lambda: "2026-01-01T00:00:00Z",
        is_leader=lambda: True,
        of_teams=True,
    )


def test_policies_of_namespaces_own_are_judged_by_their_own_queues():
    teams = [of_team("a"), of_team("a", "elsewhere"), of_team("a", "kube-system"), of_team("b")]
    teams[3]["spec"]["options"] = [{"queue": "missing-lq"}]
    server = WithTeams(stored("a"), teams=teams)

    found = look_at_teams(server)

    assert found.ready == {
        "a": True,
        "team/a": True,
        "elsewhere/a": False,
        "kube-system/a": False,
        "team/b": False,
    }
    assert [(name, str(one.reason), one.message) for name, one in found.written[2:]] == [
        ("elsewhere/a", "NoNamespace", "metadata.namespace: no namespace is selected"),
        ("kube-system/a", "NoNamespace", "metadata.namespace: no namespace is selected"),
        (
            "team/b",
            "QueueNotFound",
            "spec.options[0].queue: no LocalQueue missing-lq in any selected namespace",
        ),
    ]
    written = "/apis/kueue-fallback.dev/v1alpha1/namespaces/team/teamfallbackpolicies/a/status"
    assert server.patches[1][0] == written


def test_those_beyond_the_limit_of_their_namespace_are_told_so():
    teams = [of_team(f"p{number:02}") for number in range(MOST_OF_TEAM + 1)]

    found = look_at_teams(WithTeams(teams=teams))

    (last,) = (one for name, one in found.written if name == f"team/p{MOST_OF_TEAM}")
    assert sum(found.ready.values()) == MOST_OF_TEAM
    assert (str(last.reason), last.message) == (
        "TooMany",
        "metadata.namespace: its namespace has more policies of its own than count: 16",
    )


def test_a_write_carries_the_version_that_was_read():
    server = Policies(stored("a"))

    look(server)

    (_, body) = server.patches[0]
    assert body["metadata"] == {"resourceVersion": "9"}
    assert body["status"]["conditions"][0]["message"] == READY.message


def test_a_teams_policy_of_any_size_is_not_kept():
    team = of_team("large")
    team["spec"]["message"] = "x" * 40_000

    found = look_at_teams(WithTeams(teams=[team]))

    ((name, condition),) = found.written
    assert (name, str(condition.reason), condition.message) == (
        "team/large",
        "Invalid",
        "spec: more than 32768 characters as JSON",
    )
