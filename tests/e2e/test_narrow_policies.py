"""The example that narrows what authors of policies may do, on the real API server."""

from pathlib import Path

import pytest
import yaml

from hack import paper
from hack.api import ApiError
from hack.install import ROOT
from hack.waiting import wait_for
from tests.chart import helm

EXAMPLE = ROOT / "examples/narrow-policies.yaml"
NAMES = paper.names_with("narrow", namespace="narrow")
REFUSED = {
    "image": ({"image": "docker.io/evil:latest"}, "images must come from"),
    "preload": ({"env": {"LD_PRELOAD": "/tmp/x.so"}}, "load code or reroute"),
    "proxy": ({"env": {"HTTPS_PROXY": "http://10.0.0.66"}}, "load code or reroute"),
    "sandbox": ({"runtimeClassName": "Remove"}, "a sandbox"),
    "any toleration": ({"tolerations": {"add": [{"operator": "Exists"}]}}, "a toleration names"),
    "control plane": (
        {
            "tolerations": {
                "add": [{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}]
            }
        },
        "a toleration names",
    ),
    "node": ({"nodeSelector": {"set": {"kubernetes.io/hostname": "a"}}}, "nodes are chosen"),
    "any node": ({"nodeSelector": {"remove": ["tenant"]}}, "nodes are chosen"),
    "affinity": ({"affinity": "Remove"}, "affinity is not taken away"),
    "sidecar": ({"annotations": {"sidecar.istio.io/inject": "false"}}, "annotations of pods"),
    "label": ({"labels": {"app": "database"}}, "labels of pods"),
}
ALLOWED = {
    "image": "registry.example.com/stable-diffusion:cpu",
    "env": {"RUN_ENV": "cpu"},
    "runtimeClassName": "Keep",
    "tolerations": {"add": [{"key": "example.com/cpu", "operator": "Exists"}]},
    "nodeSelector": {"set": {"example.com/pool": "cpu"}},
    "annotations": {"example.com/why": "light"},
    "labels": {"example.com/kind": "light"},
}


def policy(adaptation):
    found = paper.policy(NAMES)
    found["spec"]["options"][1]["adaptation"] = adaptation
    return found


@pytest.fixture(scope="module")
def client(plane):
    """The API server with the definition of policies and with the example."""
    result = helm.template()
    chart = [each for each in yaml.safe_load_all(result.stdout) if each]
    definitions = [each for each in chart if each["kind"] == "CustomResourceDefinition"]
    plane.install(definitions, namespace=helm.NAMESPACE)
    example = list(yaml.safe_load_all(Path(EXAMPLE).read_text()))
    plane.client.apply_all(example)
    refused, told = REFUSED["image"]
    wait_for(lambda: told in refusal(plane.client, refused), "the example is in force")
    yield plane.client
    for each in reversed(example):
        plane.client.delete(each["apiVersion"], each["kind"], each["metadata"]["name"])


def refusal(client, adaptation):
    try:
        client.create(policy(adaptation), dry_run=True)
    except ApiError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(("adaptation", "told"), REFUSED.values(), ids=REFUSED)
def test_what_reaches_further_than_a_queue_is_refused(client, adaptation, told):
    assert told in refusal(client, adaptation)


def test_what_a_policy_is_for_passes(client):
    assert refusal(client, ALLOWED) == ""
    assert refusal(client, {}) == ""
