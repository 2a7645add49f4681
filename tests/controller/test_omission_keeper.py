"""Which namespaces are left out, and when that is written."""

import pytest

from tests.servers import paper_snapshot
from webhook.api.kubernetes_api import Unreachable
from webhook.controller import omission_keeper
from webhook.controller.omission_keeper import LASTING_SECONDS, QUIET_SECONDS, OmissionKeeper
from webhook.model import omitted_namespaces
from webhook.model.pods import EVERYTHING
from webhook.model.policy.matching import LabelSelector
from webhook.state.snapshot import updated

UNIX = 1_800_000_000.0
TEAM = {"kubernetes.io/metadata.name": "team", "gpu": "yes"}
OTHER = {"kubernetes.io/metadata.name": "other"}


class Configuration:
    """Ours, as the API server holds it and as our watch shows it."""

    def __init__(self, *omitted):
        self.omitted = frozenset(omitted)
        self.expressions = []
        self.leads = True
        self.away = False
        self.keeper = OmissionKeeper(self, "ours", "own", is_leader=lambda: self.leads)
        self.now = 0.0

    def apply(self, path, body, *, manager):
        if self.away:
            raise Unreachable("away")
        assert path == ("/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/ours")
        assert manager == omission_keeper.MANAGER
        (webhook,) = body["webhooks"]
        assert webhook["name"] == "create.kueue-fallback.dev"
        conditions = webhook.get("matchConditions", [])
        assert [each["name"] for each in conditions] in ([], [omitted_namespaces.CONDITION])
        self.expressions += [each["expression"] for each in conditions] or [""]
        self.omitted = omitted_namespaces.read_omitted(self.expressions[-1])

    def step(self, at, *, matched=("team",), is_sure=True, **namespaces):
        """Take a step while policies match in some of the two namespaces."""
        snapshot = updated(
            policies_for(*matched),
            namespaces={"team": TEAM, "other": OTHER, **namespaces},
            reviewed_namespaces=(EVERYTHING,),
            omitted_namespaces=self.omitted,
        )
        return self.keeper.step(snapshot, is_sure=is_sure, now=at, unix=UNIX + at)


def policies_for(*names):
    found = paper_snapshot()
    policies = []
    for name in names:
        selector = LabelSelector(match_labels={"kubernetes.io/metadata.name": name})
        policy = found.fallback.policies[0]
        match = policy.spec.match.model_copy(update={"namespace_selector": selector})
        spec = policy.spec.model_copy(update={"match": match})
        policies.append(policy.model_copy(update={"name": name, "spec": spec}))
    return updated(found, policies=tuple(policies))


def test_a_namespace_is_left_out_when_no_policy_has_matched_there_for_a_while():
    configuration = Configuration()

    before = configuration.step(0.0), configuration.step(QUIET_SECONDS - 1)
    said = configuration.step(QUIET_SECONDS)

    assert before == ((), ())
    assert configuration.omitted == {"other"}
    assert said == (
        "new Jobs of 1 namespaces in which no policy can match are not sent: 1 more, 0 less",
    )


def test_a_namespace_that_a_policy_may_match_is_taken_off_at_once():
    configuration = Configuration("other")
    configuration.step(0.0)

    configuration.step(1.0, matched=("team", "other"))

    assert configuration.omitted == frozenset()
    assert configuration.expressions[-1] == ""


def test_a_namespace_is_taken_off_at_once_when_its_labels_come_to_match():
    configuration = Configuration("other", "third")
    configuration.step(0.0, third=OTHER)

    configuration.step(1.0, third=TEAM | {"kubernetes.io/metadata.name": "team"})

    assert configuration.omitted == {"other"}


def test_new_namespaces_are_put_on_together():
    configuration = Configuration()
    for second in range(200):
        configuration.step(float(second), **{f"new-{n}": OTHER for n in range(second)})

    assert len(configuration.expressions) <= 200 / QUIET_SECONDS + 1


def test_the_condition_is_renewed_by_the_leader_and_runs_out_without_one():
    configuration = Configuration("other")
    for second in range(int(LASTING_SECONDS)):
        configuration.step(float(second))

    assert len(configuration.expressions) == 2
    assert "entry.time >= '2027-01-15T08:07:30Z'" in configuration.expressions[1]


def test_who_does_not_lead_writes_nothing():
    configuration = Configuration("team")
    configuration.leads = False

    assert configuration.step(0.0) == ()
    assert configuration.expressions == []


def test_without_certainty_everything_is_sent():
    configuration = Configuration("other")

    configuration.step(0.0, is_sure=False)

    assert configuration.omitted == frozenset()


def test_a_failed_write_is_tried_again_and_told_once():
    configuration = Configuration("team")
    configuration.away = True

    lines = [configuration.step(second / 10) for second in range(100)]
    configuration.away = False
    configuration.step(10.0)

    assert list(filter(None, lines)) == [("namespaces that are left out: away",)]
    assert configuration.omitted == frozenset()


@pytest.mark.parametrize("text", ["", "true", "!(request.namespace in [1, ])"])
def test_a_condition_of_somebody_else_leaves_nothing_out(text):
    assert omitted_namespaces.read_omitted(text) == frozenset()


def test_a_namespace_that_nobody_knows_is_sent():
    configuration = Configuration("gone")

    configuration.step(0.0)
    configuration.step(QUIET_SECONDS)

    assert configuration.omitted == {"other"}
