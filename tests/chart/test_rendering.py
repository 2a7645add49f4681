"""Which objects the chart makes, and under which names."""

import pytest
import yaml

from hack import crd
from tests.chart.helm import objects_of
from tests.chart.values import EVERY_RENDERING
from webhook.settings import Settings

SIGNING_KEYS = ("Secret", "kueue-fallback-signing-keys")
PARTS = [
    ("ClusterRole", "kueue-fallback"),
    ("ClusterRole", "kueue-fallback-ca"),
    ("ClusterRole", "kueue-fallback-controller"),
    ("ClusterRole", "kueue-fallback-policy-editor"),
    ("ClusterRole", "kueue-fallback-policy-viewer"),
    ("ClusterRole", "kueue-fallback-unfinished"),
    ("ClusterRoleBinding", "kueue-fallback"),
    ("ClusterRoleBinding", "kueue-fallback-ca"),
    ("ClusterRoleBinding", "kueue-fallback-controller"),
    ("ClusterRoleBinding", "kueue-fallback-unfinished"),
    ("ConfigMap", "kueue-fallback"),
    ("CustomResourceDefinition", "acceleratorprofiles.kueue-fallback.dev"),
    ("CustomResourceDefinition", "fallbackpolicies.kueue-fallback.dev"),
    ("CustomResourceDefinition", "tariffs.kueue-fallback.dev"),
    ("CustomResourceDefinition", "teamfallbackpolicies.kueue-fallback.dev"),
    ("Deployment", "kueue-fallback"),
    ("Deployment", "kueue-fallback-controller"),
    ("Job", "kueue-fallback-probe"),
    ("Job", "kueue-fallback-unfinished"),
    ("MutatingWebhookConfiguration", "kueue-fallback"),
    ("PodDisruptionBudget", "kueue-fallback"),
    ("PodDisruptionBudget", "kueue-fallback-controller"),
    ("ResourceQuota", "kueue-fallback-critical-pods"),
    ("Role", "kueue-fallback-ca"),
    ("Role", "kueue-fallback-console"),
    ("Role", "kueue-fallback-controller"),
    ("Role", "kueue-fallback-kueue-config"),
    ("Role", "kueue-fallback-off-switch"),
    ("Role", "kueue-fallback-probe"),
    ("Role", "kueue-fallback-run-times"),
    ("Role", "kueue-fallback-signing-keys"),
    ("RoleBinding", "kueue-fallback-ca"),
    ("RoleBinding", "kueue-fallback-console"),
    ("RoleBinding", "kueue-fallback-controller"),
    ("RoleBinding", "kueue-fallback-kueue-config"),
    ("RoleBinding", "kueue-fallback-off-switch"),
    ("RoleBinding", "kueue-fallback-probe"),
    ("RoleBinding", "kueue-fallback-run-times"),
    ("RoleBinding", "kueue-fallback-signing-keys"),
    ("Secret", "kueue-fallback-ca"),
    SIGNING_KEYS,
    ("Service", "kueue-fallback"),
    ("ServiceAccount", "kueue-fallback"),
    ("ServiceAccount", "kueue-fallback-controller"),
    ("ServiceAccount", "kueue-fallback-probe"),
    ("ServiceAccount", "kueue-fallback-unfinished"),
    ("ValidatingAdmissionPolicy", "kueue-fallback-only-ca-bundle"),
    ("ValidatingAdmissionPolicy", "kueue-fallback-only-one-condition"),
    ("ValidatingAdmissionPolicy", "kueue-fallback-own-secrets"),
    ("ValidatingAdmissionPolicyBinding", "kueue-fallback-only-ca-bundle"),
    ("ValidatingAdmissionPolicyBinding", "kueue-fallback-only-one-condition"),
    ("ValidatingAdmissionPolicyBinding", "kueue-fallback-own-secrets"),
]
OFF = {
    "priorityClassName": '""',
    "controller.enabled": "false",
    "policyRoles.create": "false",
    "admissionPolicies.create": "false",
    "podDisruptionBudget.enabled": "false",
    "crds.install": "false",
    "hooks.probe.enabled": "false",
    "hooks.unfinished.enabled": "false",
    "certificates.mode": '"files"',
}


@pytest.mark.parametrize("values", EVERY_RENDERING.values(), ids=EVERY_RENDERING)
def test_every_rendering_is_a_set_of_distinct_objects_that_carry_the_charts_labels(
    template, values
):
    result = template(values)

    objects = objects_of(result)
    names = {(each["kind"], each["metadata"]["name"]) for each in objects}
    assert all(each["apiVersion"] for each in objects)
    assert len(names) == len(objects)
    assert {
        each["metadata"].get("labels", {}).get("app.kubernetes.io/name")
        for each in objects
        if each["kind"] != "CustomResourceDefinition"
    } == {"kueue-fallback"}


def test_by_default_all_parts_are_installed_and_nothing_that_needs_another_operator(render):
    assert sorted(render().objects) == PARTS


def test_with_all_that_can_be_off_only_the_webhook_is_left(render):
    assert sorted(render(OFF).objects) == [
        ("ClusterRole", "kueue-fallback"),
        ("ClusterRoleBinding", "kueue-fallback"),
        ("ConfigMap", "kueue-fallback"),
        ("Deployment", "kueue-fallback"),
        ("MutatingWebhookConfiguration", "kueue-fallback"),
        ("Role", "kueue-fallback-console"),
        ("Role", "kueue-fallback-kueue-config"),
        ("Role", "kueue-fallback-off-switch"),
        ("Role", "kueue-fallback-run-times"),
        ("Role", "kueue-fallback-signing-keys"),
        ("RoleBinding", "kueue-fallback-console"),
        ("RoleBinding", "kueue-fallback-kueue-config"),
        ("RoleBinding", "kueue-fallback-off-switch"),
        ("RoleBinding", "kueue-fallback-run-times"),
        ("RoleBinding", "kueue-fallback-signing-keys"),
        ("Service", "kueue-fallback"),
        ("ServiceAccount", "kueue-fallback"),
    ]


@pytest.mark.parametrize("part", sorted(OFF))
def test_each_part_can_be_off_alone(render, part):
    left = set(render({part: OFF[part]}).objects)

    assert left < set(PARTS)


def test_a_release_of_another_name_carries_it_in_every_object(render):
    rendering = render(release="second")

    assert all(name.startswith("kueue-fallback-second") for name in named_anew(rendering))


def test_a_full_name_given_by_hand_wins(render):
    rendering = render({"fullnameOverride": '"gate"'})

    assert all(name.startswith("gate") for name in named_anew(rendering))


def named_anew(rendering):
    """List the names of what is the release's; the processes know the Secret by one name."""
    return [
        name
        for kind, name in rendering.objects
        if kind != "CustomResourceDefinition" and (kind, name) != SIGNING_KEYS
    ]


@pytest.mark.parametrize("generated", crd.DEFINITIONS, ids=lambda each: each.plural)
def test_each_definition_is_the_generated_one_and_stays_on_uninstall(render, generated):
    name = f"{generated.plural}.kueue-fallback.dev"
    definition = render().one("CustomResourceDefinition", name)

    assert definition == yaml.safe_load(crd.text(generated))
    assert definition["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}


def test_settings_are_passed_on_and_start_new_pods_when_they_change(render):
    before, after = render(), render({"settings": '{"keep_alive": 100}'})

    assert after.one("ConfigMap")["data"]["settings.yaml"] == (
        "listen: 0.0.0.0:10250\n"
        "metrics_listen: 0.0.0.0:8080\n"
        "console_listen: 127.0.0.1:8081\n"
        "namespace: ours\n"
        "kueue_namespace: kueue-system\n"
        "certificates: self-managed\n"
        "ca_secret: kueue-fallback-ca\n"
        "service: kueue-fallback\n"
        "webhook_configuration: kueue-fallback\n"
        'kinds: ["Job"]\n'
        "currency: USD\n"
        "holds: true\n"
        "omit_unmatched: true\n"
        "drain_seconds: 15\n"
        "keep_alive: 100\n"
    )
    assert _settings_sum(before) != _settings_sum(after)


def test_an_exposed_console_is_on_the_pods_address_and_in_the_service(render):
    rendering = render({"console": '{"expose": true, "audience": "us"}'})

    settings = yaml.safe_load(rendering.one("ConfigMap")["data"]["settings.yaml"])
    assert (settings["console_listen"], settings["console_audience"]) == ("0.0.0.0:8081", "us")
    ports = rendering.pod()["spec"]["containers"][0]["ports"]
    assert {"name": "console", "containerPort": 8081} in ports
    assert rendering.one("Service")["spec"]["ports"][1:] == [
        {"name": "console", "port": 8081, "targetPort": "console"}
    ]


def test_a_console_that_is_not_exposed_is_in_no_port_list(render):
    rendering = render()

    assert [port["name"] for port in rendering.one("Service")["spec"]["ports"]] == ["webhook"]
    ports = rendering.pod()["spec"]["containers"][0]["ports"]
    assert [port["name"] for port in ports] == ["webhook", "metrics"]


def _settings_sum(rendering):
    return rendering.pod()["metadata"]["annotations"]["checksum/settings"]


@pytest.mark.parametrize("values", EVERY_RENDERING.values(), ids=EVERY_RENDERING)
def test_the_server_accepts_the_settings_of_every_rendering(render, values):
    written = render(values).one("ConfigMap")["data"]["settings.yaml"]

    settings = Settings.model_validate(yaml.safe_load(written))

    assert settings.namespace == "ours"
