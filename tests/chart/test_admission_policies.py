"""What rights alone cannot limit, and a ValidatingAdmissionPolicy does."""

import re

import pytest

from tests.chart.helm import CHART, NAMESPACE, objects_of
from tests.chart.values import CERT_MANAGER
from webhook.model.omitted_namespaces import CONDITION as CONDITION_NAME
from webhook.state.readers import OUR_WEBHOOK

BUNDLE, CONDITION, SECRETS = (
    ("ValidatingAdmissionPolicy", f"kueue-fallback-{name}")
    for name in ("only-ca-bundle", "only-one-condition", "own-secrets")
)
POLICIES = {BUNDLE, CONDITION, SECRETS}
ACCOUNTS = {
    "only-ca-bundle": [""],
    "only-one-condition": ["-controller"],
    "own-secrets": ["", "-controller"],
}
USER = "system:serviceaccount:ours:kueue-fallback"


def policies(objects):
    return {key for key in objects if key[0] == "ValidatingAdmissionPolicy"}


def test_all_are_bound_and_deny(render):
    rendering = render()

    assert policies(rendering.objects) == POLICIES
    for _, name in POLICIES:
        binding = rendering.one("ValidatingAdmissionPolicyBinding", name)
        assert binding["spec"] == {"policyName": name, "validationActions": ["Deny"]}
        assert rendering.one("ValidatingAdmissionPolicy", name)["spec"]["failurePolicy"] == "Fail"


def test_they_are_about_the_charts_own_accounts(render):
    rendering = render()

    for _, name in POLICIES:
        policy = rendering.one("ValidatingAdmissionPolicy", name)
        (condition,) = policy["spec"]["matchConditions"]
        named = re.findall(f"'{USER}(.*?)'", condition["expression"])
        assert named == ACCOUNTS[name.removeprefix("kueue-fallback-")]


def test_what_the_controller_may_write_is_what_it_writes(render):
    policy = render().one(*CONDITION)

    text = policy["spec"]["validations"][0]["expression"]
    assert set(re.findall(r"name != '([^']+)'", text)) == {CONDITION_NAME, OUR_WEBHOOK}


@pytest.mark.parametrize(
    ("values", "made"),
    [
        ({"admissionPolicies.create": "false"}, set()),
        (CERT_MANAGER, {CONDITION, SECRETS}),
        ({"certificates.mode": '"files"'}, {CONDITION, SECRETS}),
        ({"controller.enabled": "false"}, {BUNDLE, SECRETS}),
        ({"certificates.mode": '"files"', "controller.enabled": "false"}, set()),
    ],
)
def test_there_are_none_where_they_are_off_or_the_rights_are_not_given(render, values, made):
    assert policies(render(values).objects) == made


@pytest.mark.parametrize(("version", "made"), [("1.29.9", set()), ("1.30.0", POLICIES)])
def test_a_kubernetes_that_does_not_know_them_gets_none(helm, version, made):
    place = ("kueue-fallback", CHART, "--namespace", NAMESPACE, f"--kube-version={version}")
    rendered = helm("template", *place)

    found = objects_of(rendered)
    assert policies((each["kind"], each["metadata"]["name"]) for each in found) == made
