"""For every Job and every adaptation: what is written lies where rules for GitOps tools say."""

from hypothesis import given

from tests.builders import policy
from tests.manifest_places import beyond_rules
from tests.properties.jobs import jobs, options
from webhook.decide.options import adapted
from webhook.jobs import JOB

POLICY = policy()


@given(jobs(), options())
def test_no_edit_is_beyond_the_places_of_its_policy(source, option):
    spec = POLICY.spec.model_copy(update={"options": (option,)})
    found = POLICY.model_copy(update={"spec": spec})
    before = JOB.read(source)

    edits = JOB.edits(before, adapted(before, option, found))

    assert beyond_rules(JOB, edits, [found]) == []
