"""Each conditional of the chart, and what it makes of the objects."""

import pytest
import yaml

NOTHING_SET = {}
ALL_SET = {
    "image.digest": f'"sha256:{"a" * 64}"',
    "imagePullSecrets": '[{"name": "pull"}]',
    "nodeSelector": '{"pool": "system"}',
    "tolerations": '[{"key": "system", "operator": "Exists"}]',
    "affinity": '{"nodeAffinity": {}}',
    "podAnnotations": '{"team": "batch"}',
    "webhook.caBundle": '"QQ=="',
    "webhook.annotations": '{"inject": "yes"}',
    "settings": '{"threads": 8}',
}
ALL_OFF = {
    "priorityClassName": '""',
    "controller.enabled": "false",
    "policyRoles.create": "false",
}


@pytest.mark.parametrize("values", [NOTHING_SET, ALL_SET, ALL_OFF])
def test_every_rendering_is_a_set_of_distinct_objects(template, values):
    result = template(values)

    objects = [each for each in yaml.safe_load_all(result.stdout) if each]
    names = {(each["kind"], each["metadata"]["name"]) for each in objects}
    assert all(each["apiVersion"] for each in objects)
    assert len(names) == len(objects)


def test_by_default_all_parts_are_installed(render):
    assert sorted(render().objects) == [
        ("ClusterRole", "kueue-fallback"),
        ("ClusterRole", "kueue-fallback-controller"),
        ("ClusterRole", "kueue-fallback-policy-editor"),
        ("ClusterRole", "kueue-fallback-policy-viewer"),
        ("ClusterRoleBinding", "kueue-fallback"),
        ("ClusterRoleBinding", "kueue-fallback-controller"),
        ("ConfigMap", "kueue-fallback"),
        ("Deployment", "kueue-fallback"),
        ("Deployment", "kueue-fallback-controller"),
        ("MutatingWebhookConfiguration", "kueue-fallback"),
        ("Role", "kueue-fallback-kueue-config"),
        ("Role", "kueue-fallback-off-switch"),
        ("RoleBinding", "kueue-fallback-kueue-config"),
        ("RoleBinding", "kueue-fallback-off-switch"),
        ("Service", "kueue-fallback"),
        ("ServiceAccount", "kueue-fallback"),
        ("ServiceAccount", "kueue-fallback-controller"),
    ]


def test_without_controller_and_policy_roles_only_the_webhook_is_left(render):
    names = {name for _, name in render(ALL_OFF).objects}

    assert names == {
        "kueue-fallback",
        "kueue-fallback-kueue-config",
        "kueue-fallback-off-switch",
    }


def test_a_release_of_another_name_carries_it_in_every_object(render):
    rendering = render(release="second")

    assert all(name.startswith("kueue-fallback-second") for _, name in rendering.objects)


def test_a_full_name_given_by_hand_wins(render):
    rendering = render({"fullnameOverride": '"gate"'})

    assert all(name.startswith("gate") for _, name in rendering.objects)


def test_the_image_is_the_charts_version_unless_a_digest_is_given(render):
    by_tag = render().pod()["spec"]["containers"][0]["image"]
    by_digest = render(ALL_SET).pod()["spec"]["containers"][0]["image"]

    assert by_tag == "kueue-fallback:0.1.0"
    assert by_digest == f"kueue-fallback@sha256:{'a' * 64}"


@pytest.mark.parametrize("name", ["kueue-fallback", "kueue-fallback-controller"])
def test_placement_values_reach_both_deployments(render, name):
    pod = render(ALL_SET).pod(name)

    given = ("imagePullSecrets", "nodeSelector", "tolerations", "affinity", "priorityClassName")
    assert {key: pod["spec"][key] for key in given} == {
        "imagePullSecrets": [{"name": "pull"}],
        "nodeSelector": {"pool": "system"},
        "tolerations": [{"key": "system", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "priorityClassName": "system-cluster-critical",
    }
    assert pod["metadata"]["annotations"]["team"] == "batch"


@pytest.mark.parametrize("name", ["kueue-fallback", "kueue-fallback-controller"])
def test_placement_values_that_are_not_given_leave_no_trace(render, name):
    pod = render({"priorityClassName": '""'}).pod(name)

    given = {"imagePullSecrets", "nodeSelector", "tolerations", "affinity", "priorityClassName"}
    assert not given & set(pod["spec"])


@pytest.mark.parametrize("name", ["kueue-fallback", "kueue-fallback-controller"])
def test_pods_run_without_any_privilege(render, name):
    spec = render().pod(name)["spec"]

    assert spec["securityContext"] == {
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert [container["securityContext"] for container in spec["containers"]] == [
        {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
    ]


def test_settings_are_passed_on_and_start_new_pods_when_they_change(render):
    before, after = render(), render({"settings": '{"threads": 8}'})

    assert after.one("ConfigMap")["data"]["settings.yaml"] == (
        "listen: 0.0.0.0:10250\n"
        "metrics_listen: 0.0.0.0:8080\n"
        "namespace: ours\n"
        "kueue_namespace: kueue-system\n"
        "threads: 8\n"
    )
    assert _settings_sum(before) != _settings_sum(after)


def _settings_sum(rendering):
    return rendering.pod()["metadata"]["annotations"]["checksum/settings"]


def test_ports_are_values(render):
    rendering = render({"webhook.port": "9443", "metrics.port": "9090", "service.port": "8443"})

    container = rendering.pod()["spec"]["containers"][0]
    assert [port["containerPort"] for port in container["ports"]] == [9443, 9090]
    assert rendering.one("Service")["spec"]["ports"] == [
        {"name": "webhook", "port": 8443, "targetPort": "webhook"}
    ]
    webhooks = rendering.one("MutatingWebhookConfiguration")["webhooks"]
    assert [each["clientConfig"]["service"]["port"] for each in webhooks] == [8443, 8443]


def test_the_certificate_comes_from_the_secret_that_is_named(render):
    by_default = render().pod()["spec"]["volumes"]
    by_name = render({"tls.secretName": '"mine"'}).pod()["spec"]["volumes"]

    assert {"name": "tls", "secret": {"secretName": "kueue-fallback-tls"}} in by_default
    assert {"name": "tls", "secret": {"secretName": "mine"}} in by_name


@pytest.mark.parametrize("name", ["kueue-fallback", "kueue-fallback-controller"])
def test_both_processes_read_the_settings_and_are_probed_on_the_metrics_port(render, name):
    (container,) = render().pod(name)["spec"]["containers"]

    command = {"kueue-fallback": "serve", "kueue-fallback-controller": "control"}[name]
    assert container["args"] == [command, "--config", "/etc/kueue-fallback/settings.yaml"]
    probes = [container[f"{kind}Probe"]["httpGet"] for kind in ("liveness", "readiness")]
    assert probes == [
        {"path": "/healthz", "port": "metrics"},
        {"path": "/readyz", "port": "metrics"},
    ]
