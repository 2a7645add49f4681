"""The CRD on a real API server: it accepts and refuses the policies that `check` does."""

import json
import re

import pytest
import yaml
from click.testing import CliRunner

from hack import crd
from hack.api import ApiError
from hack.controlplane import ControlPlane
from tests.model import mutations, policies
from tests.model.policies import Broken
from webhook.commands.check import command
from webhook.model.policy.fallback_policy import PolicyError, read_policy

pytestmark = pytest.mark.plane

PATH = "/apis/kueue-fallback.dev/v1alpha1/fallbackpolicies"
STRICT = {"dryRun": "All", "fieldValidation": "Strict"}
ELSEWHERE = {"options that are an object"}
"""Strict decoding names the fields of an object in a wrong place, and we the place."""


@pytest.fixture(scope="module")
def served(plane: ControlPlane) -> ControlPlane:
    plane.client.apply(yaml.safe_load(crd.text()))
    waited = plane.kubectl(
        "wait",
        "--for=condition=Established",
        "--timeout=30s",
        "crd/fallbackpolicies.kueue-fallback.dev",
    )
    assert waited.returncode == 0, waited.stderr
    return plane


def test_the_api_server_takes_the_crd_and_its_rules(served):
    listed = served.client.get(
        "apiextensions.k8s.io/v1", "CustomResourceDefinition", "fallbackpolicies.kueue-fallback.dev"
    )

    conditions = {one["type"]: one["status"] for one in listed["status"]["conditions"]}
    assert conditions == {"NamesAccepted": "True", "Established": "True"}


def test_the_rules_are_cheap_enough_for_api_servers_before_1_34(plane):
    """Those ignore the length of an int-or-string and take it for 3 MB; so it is left out here."""
    definition = yaml.safe_load(crd.text())
    shown = yaml.safe_dump(_without_lengths(definition))

    done = plane.kubectl(
        "apply", "--server-side", "--force-conflicts", "--dry-run=server", "-f", "-", given=shown
    )

    assert (done.returncode, done.stderr) == (0, "")


def _without_lengths(node):
    if isinstance(node, list):
        return [_without_lengths(item) for item in node]
    if not isinstance(node, dict):
        return node
    dropped = "maxLength" if node.get("x-kubernetes-int-or-string") else ""
    return {key: _without_lengths(value) for key, value in node.items() if key != dropped}


@pytest.mark.parametrize("case", policies.broken(), ids=lambda case: case.it)
def test_check_and_the_api_server_refuse_a_policy_at_the_same_places(
    served, tmp_path, case: Broken
):
    file = tmp_path / "policy.yaml"
    file.write_text(yaml.safe_dump(case.policy))

    checked = CliRunner().invoke(
        command, ["-f", str(file), "--server", "-o", "json", "--kubeconfig", str(served.kubeconfig)]
    )

    assert checked.exit_code == 2, checked.output
    errors = [each for each in json.loads(checked.stdout)["findings"] if each["kind"] == "error"]
    ours = {each["path"] for each in errors if "server" not in each}
    api_servers = {as_keys(each["path"]) for each in errors if "server" in each}
    assert ours == {path for path, _ in case.want}
    assert api_servers
    if case.it not in ELSEWHERE:
        # At the root it says that rules were not checked, too.
        assert ours - {""} == api_servers - {""}


def as_keys(path: str) -> str:
    """Write a path with a resource in it as we do: the schema's errors have no brackets there."""
    return re.sub(r"\.by\.(.+)$", r".by[\1]", path)


def test_random_policies_get_the_same_verdict(served):
    differing = [
        policy["spec"]
        for policy in mutations.policies(300, seed=20)
        if _is_accepted(served, policy) != _is_valid(policy)
    ]

    assert differing == []


def _is_accepted(served: ControlPlane, policy) -> bool:
    try:
        served.client.send("POST", PATH, policy, query=STRICT)
    except ApiError as error:
        if error.status not in (400, 422):
            raise
        return False
    return True


def _is_valid(policy) -> bool:
    try:
        read_policy(policy)
    except PolicyError:
        return False
    return True


def test_check_on_a_server_takes_a_policy_that_is_there_already(served, tmp_path):
    file = tmp_path / "policy.yaml"
    file.write_text(yaml.safe_dump(mutations.FULL))
    given = ["-f", str(file), "--server", "--kubeconfig", str(served.kubeconfig)]

    new = CliRunner().invoke(command, given)
    try:
        served.client.create(mutations.FULL)
        known = CliRunner().invoke(command, given)
    finally:
        served.client.delete("kueue-fallback.dev/v1alpha1", "FallbackPolicy", "full")

    for result in (new, known):
        assert result.exit_code == 0, result.output
        assert "API server: FallbackPolicy full is valid" in result.stdout


def test_a_stored_policy_reads_as_its_file_does(served):
    name = mutations.FULL["metadata"]["name"]
    try:
        stored = served.client.create(mutations.FULL)
        columns = served.kubectl("get", "fbp", name, "--no-headers").stdout.split()
    finally:
        served.client.delete("kueue-fallback.dev/v1alpha1", "FallbackPolicy", name)

    assert read_policy(stored).spec == read_policy(mutations.FULL).spec
    assert columns[:3] == ["full", "Advise", "Threshold"]


def test_explain_describes_the_options(served):
    explained = served.kubectl("explain", "fbp.spec.options.slowdown").stdout

    assert "Expected run time, as a multiple of the first option's" in explained
