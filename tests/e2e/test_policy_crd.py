"""The CRD on a real API server: it accepts and refuses the policies that `check` does."""

import json
import re

import pytest
import yaml
from click.testing import CliRunner

from hack import crd
from hack.api import ApiError
from hack.controlplane import ControlPlane
from hack.waiting import wait_for
from tests.model import mutations, policies
from tests.model.policies import Broken
from tests.model.team_policies import BROKEN, FULL, team_policy
from webhook.commands.check import command
from webhook.model.policy.fallback_policy import READ_BY_KIND, PolicyError, read_policy

pytestmark = pytest.mark.plane

GROUP = "/apis/kueue-fallback.dev/v1alpha1"
STRICT = {"dryRun": "All", "fieldValidation": "Strict"}
ELSEWHERE = {"options that are an object"}
"""Strict decoding names the fields of an object in a wrong place, and we the place."""

OURS_ALONE = {
    "a list of replicas",
    "a part of a replica",
    "more replicas than any Job has",
    "no replicas at all",
    "one number of replicas for all pod sets",
    "replicas by what a service serves without a cost",
    "replicas of a Job by what it serves",
    "replicas of a kind that has none to set",
    "replicas of a pod set that the adaptation is not for",
    "replicas of one pod set by what a service serves",
    "replicas of something that no pod set can be called",
    "replicas that are a word",
}
"""As `replicas` is a text or a map, its schema has no type, and the API server takes these."""


@pytest.fixture(scope="module")
def served(plane: ControlPlane) -> ControlPlane:
    definitions = [yaml.safe_load(crd.text(each)) for each in (crd.POLICIES, crd.TEAM_POLICIES)]
    plane.client.apply_all(definitions)
    waited = plane.kubectl(
        "wait",
        "--for=condition=Established",
        "--timeout=300s",
        *(f"crd/{definition['metadata']['name']}" for definition in definitions),
    )
    assert waited.returncode == 0, waited.stderr
    return plane


def test_the_api_server_takes_the_crd_and_its_rules(served):
    listed = served.client.get(
        "apiextensions.k8s.io/v1", "CustomResourceDefinition", "fallbackpolicies.kueue-fallback.dev"
    )

    conditions = {one["type"]: one["status"] for one in listed["status"]["conditions"]}
    assert conditions == {"NamesAccepted": "True", "Established": "True"}


@pytest.mark.parametrize("kind", [crd.POLICIES, crd.TEAM_POLICIES], ids=lambda each: each.plural)
def test_the_rules_are_cheap_enough_for_api_servers_before_1_34(plane, kind):
    """Those ignore the length of an int-or-string and take it for 3 MB; so it is left out here."""
    definition = yaml.safe_load(crd.text(kind))
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
    assert bool(api_servers) == (case.it not in OURS_ALONE)
    if case.it not in ELSEWHERE | OURS_ALONE:
        # At the root it says that rules were not checked, too.
        assert ours - {""} == api_servers - {""}


def as_keys(path: str) -> str:
    """Write a path with a resource in it as we do: the schema's errors have no brackets there."""
    return re.sub(r"\.by\.(.+)$", r".by[\1]", path)


@pytest.mark.parametrize(
    ("whole", "path"),
    [
        (mutations.FULL, f"{GROUP}/fallbackpolicies"),
        (FULL, f"{GROUP}/namespaces/default/teamfallbackpolicies"),
    ],
    ids=["FallbackPolicy", "TeamFallbackPolicy"],
)
def test_random_policies_get_the_same_verdict(served, whole, path):
    differing = [
        policy["spec"]
        for policy in mutations.policies(300, seed=20, whole=whole)
        if _is_accepted(served, path, policy) != _is_valid(policy)
    ]

    assert differing == []


def _is_accepted(served: ControlPlane, path: str, policy) -> bool:
    try:
        served.client.send("POST", path, policy, query=STRICT)
    except ApiError as error:
        if error.status not in (400, 422):
            raise
        return False
    return True


def _is_valid(policy) -> bool:
    try:
        READ_BY_KIND[policy["kind"]](policy)
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


def test_a_policy_for_services_is_stored_with_all_that_it_says(served):
    serving = {"requestsPerSecond": 40, "latency": "50ms"}
    spec = {
        "match": {"kinds": ["Deployment"], "jobSelector": {}},
        "options": [
            {"queue": "h100", "serving": serving, "adaptation": {"replicas": "Auto"}},
            {"queue": "l40s", "adaptation": {"replicas": {"main": 4}}},
        ],
        "strategy": {"type": "Cost"},
        "serving": {"requests": "requests_total", "latency": "request_seconds"},
        "autoscale": {"minReplicas": 2},
        "reconsider": {"horizon": "12h", "readyWithin": "5m"},
    }
    policy = {**mutations.FULL, "metadata": {"name": "services"}, "spec": spec}
    try:
        served.client.send("POST", f"{GROUP}/fallbackpolicies", policy, query=STRICT)
        served.client.create(policy)
        stored = served.client.get("kueue-fallback.dev/v1alpha1", "FallbackPolicy", "services")
    finally:
        served.client.delete("kueue-fallback.dev/v1alpha1", "FallbackPolicy", "services")

    assert read_policy(stored).spec == read_policy(policy).spec
    replicas = [option["adaptation"]["replicas"] for option in stored["spec"]["options"]]
    assert replicas == ["Auto", {"main": 4}]


def test_applying_a_policy_again_turns_numbers_of_replicas_into_auto_and_back(served):
    policy = {
        "apiVersion": "kueue-fallback.dev/v1alpha1",
        "kind": "FallbackPolicy",
        "metadata": {"name": "services"},
        "spec": {
            "match": {"kinds": ["LeaderWorkerSet"], "jobSelector": {}},
            "strategy": {"type": "Cost"},
        },
    }
    given, stored = [{"leader": 4, "worker": 2}, "Auto", {"leader": 8}], []
    try:
        for replicas in given:
            policy["spec"]["options"] = [{"queue": "a", "adaptation": {"replicas": replicas}}]
            done = served.kubectl("apply", "--server-side", "-f", "-", given=json.dumps(policy))
            assert done.returncode == 0, done.stderr
            shown = served.kubectl("get", "fbp", "services", "-o", "json").stdout
            stored.append(json.loads(shown)["spec"]["options"][0]["adaptation"]["replicas"])
    finally:
        served.client.delete("kueue-fallback.dev/v1alpha1", "FallbackPolicy", "services")

    assert stored == given


def test_explain_describes_the_options(served):
    # The API server publishes a definition's schema a moment after it serves it.
    explained = wait_for(
        lambda: served.kubectl("explain", "fbp.spec.options.slowdown").stdout, "it is published"
    )

    assert "Expected run time, as a multiple of the first option's" in explained


RULES = [
    ({}, set()),
    ({"strategy": {"type": "Cost"}}, {"spec.strategy.type"}),
    ({"match": {"queues": ["gpu-lq"]}}, {"spec.match"}),
    ({"options": [{"queue": "a"}, {"queue": "a"}]}, {"spec.options"}),
    ({"options": [{"queue": "none"}]}, {"spec.options[0].name"}),
    ({"match": {"jobSelector": {}, "queues": [""]}}, {"spec.match.queues"}),
    ({"options": [{"name": "a"}]}, {"spec.options[0].queue"}),
    (
        {"options": [{"queue": "a", "adaptation": {"perRemoved": {"cpu": 1}}}]},
        {"spec.options[0].adaptation.perRemoved"},
    ),
]


def test_check_and_the_api_server_refuse_a_teams_policy_at_the_same_places(served, tmp_path):
    cases = [*RULES, *((spec, {f"spec.{path}"}) for path, spec in BROKEN)]
    file, verdicts = tmp_path / "team.yaml", []
    given = ["-f", str(file), "--server", "-n", "default", "-o", "json"]

    for spec, _ in cases:
        policy = team_policy(**spec)
        del policy["metadata"]["namespace"]
        file.write_text(yaml.safe_dump(policy))
        checked = CliRunner().invoke(command, [*given, "--kubeconfig", str(served.kubeconfig)])
        found = json.loads(checked.stdout)["findings"]
        errors = [each for each in found if each["kind"] == "error"]
        ours = {each["path"] for each in errors if "server" not in each}
        verdicts.append((ours, {each["path"] for each in errors if "server" in each} - {""}))

    assert verdicts == [(paths, paths) for _, paths in cases]
