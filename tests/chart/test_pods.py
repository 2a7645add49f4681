"""How the pods run: with which rights, where, how they are probed and how they end."""

import pytest

from tests.chart.values import CERT_MANAGER, EVERYTHING

WORKLOADS = [
    ("Deployment", "kueue-fallback"),
    ("Deployment", "kueue-fallback-controller"),
    ("Job", "kueue-fallback-probe"),
    ("Job", "kueue-fallback-unfinished"),
]
DEPLOYMENTS = ["kueue-fallback", "kueue-fallback-controller"]


def pod(rendering, kind, name):
    return rendering.one(kind, name)["spec"]["template"]


@pytest.mark.parametrize("workload", WORKLOADS, ids="/".join)
def test_pods_run_without_any_privilege(render, workload):
    spec = pod(render(), *workload)["spec"]

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
    assert {"name": "tmp", "emptyDir": {"medium": "Memory", "sizeLimit": "16Mi"}} in spec["volumes"]


@pytest.mark.parametrize("workload", WORKLOADS, ids="/".join)
def test_placement_and_user_reach_every_pod(render, workload):
    found = pod(render(EVERYTHING), *workload)

    given = ("imagePullSecrets", "nodeSelector", "tolerations", "affinity", "priorityClassName")
    assert {key: found["spec"][key] for key in given} == {
        "imagePullSecrets": [{"name": "pull"}],
        "nodeSelector": {"kubernetes.io/os": "linux", "pool": "system"},
        "tolerations": [{"key": "system", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "priorityClassName": "system-cluster-critical",
    }
    assert found["spec"]["securityContext"]["runAsUser"] == 4711
    assert found["metadata"]["annotations"]["team"] == "batch"
    assert found["metadata"]["labels"]["cost-centre"] == "17"


@pytest.mark.parametrize("workload", WORKLOADS, ids="/".join)
def test_placement_that_is_not_given_leaves_no_trace(render, workload):
    spec = pod(render({"priorityClassName": '""', "nodeSelector": "null"}), *workload)["spec"]

    given = {"imagePullSecrets", "nodeSelector", "tolerations", "affinity", "priorityClassName"}
    assert not given & set(spec)


def test_pods_of_a_critical_class_are_allowed_where_that_takes_a_quota(render):
    quota = render().one("ResourceQuota", "kueue-fallback-critical-pods")
    own = render({"priorityClassName": '"important"'})

    (scope,) = quota["spec"]["scopeSelector"]["matchExpressions"]
    assert (scope["scopeName"], scope["values"]) == ("PriorityClass", ["system-cluster-critical"])
    assert ("ResourceQuota", "kueue-fallback-critical-pods") not in own.objects


@pytest.mark.parametrize("workload", WORKLOADS, ids="/".join)
def test_the_image_is_the_charts_version_unless_a_digest_is_given(render, workload):
    by_tag = pod(render(), *workload)["spec"]["containers"][0]["image"]
    by_digest = pod(render(EVERYTHING), *workload)["spec"]["containers"][0]["image"]

    assert by_tag == "kueue-fallback:0.1.0"
    assert by_digest == f"kueue-fallback@sha256:{'a' * 64}"


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_both_processes_read_the_settings_and_are_probed_on_the_metrics_port(render, name):
    (container,) = render().pod(name)["spec"]["containers"]

    command = {"kueue-fallback": "serve", "kueue-fallback-controller": "control"}[name]
    assert container["args"] == [command, "--config", "/etc/kueue-fallback/settings.yaml"]
    probes = {kind: container[f"{kind}Probe"] for kind in ("startup", "liveness", "readiness")}
    assert {kind: probe["httpGet"] for kind, probe in probes.items()} == {
        "startup": {"path": "/healthz", "port": "metrics"},
        "liveness": {"path": "/healthz", "port": "metrics"},
        "readiness": {"path": "/readyz", "port": "metrics"},
    }


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_a_token_is_mounted_where_it_is_used_and_by_no_other_pod(render, name):
    rendering = render()

    assert rendering.pod(name)["spec"]["automountServiceAccountToken"] is True
    assert rendering.one("ServiceAccount", name)["automountServiceAccountToken"] is False


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_two_of_each_are_spread_over_nodes_and_zones_and_disrupted_one_at_a_time(render, name):
    rendering = render()
    deployment = rendering.one("Deployment", name)["spec"]
    spread = deployment["template"]["spec"]["topologySpreadConstraints"]
    budget = rendering.one("PodDisruptionBudget", name)["spec"]

    assert deployment["replicas"] == 2
    assert deployment["strategy"] == {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0},
    }
    assert [each["topologyKey"] for each in spread] == [
        "kubernetes.io/hostname",
        "topology.kubernetes.io/zone",
    ]
    for selector in (budget["selector"], *(each["labelSelector"] for each in spread)):
        assert selector == deployment["selector"]
    assert budget["maxUnavailable"] == 1


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_a_spread_that_is_given_wins_and_means_the_pods_that_have_it(render, name):
    rendering = render(EVERYTHING)

    assert rendering.pod(name)["spec"]["topologySpreadConstraints"] == [
        {
            "topologyKey": "rack",
            "maxSkew": 1,
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": rendering.one("Deployment", name)["spec"]["selector"],
        }
    ]


def test_as_many_controllers_run_as_are_given(render):
    rendering = render({"controller.replicas": "3"})

    assert rendering.one("Deployment", "kueue-fallback-controller")["spec"]["replicas"] == 3
    assert rendering.one("Deployment")["spec"]["replicas"] == 2


@pytest.mark.parametrize("seconds", [0, 15, 60])
def test_the_pod_may_live_longer_than_it_drains(render, seconds):
    rendering = render({"webhook.drainSeconds": str(seconds)})

    assert rendering.pod()["spec"]["terminationGracePeriodSeconds"] == seconds + 15
    assert f"drain_seconds: {seconds}\n" in rendering.one("ConfigMap")["data"]["settings.yaml"]


def test_ports_are_values(render):
    rendering = render({"webhook.port": "9443", "metrics.port": "9090", "service.port": "8443"})

    container = rendering.pod()["spec"]["containers"][0]
    assert [port["containerPort"] for port in container["ports"]] == [9443, 9090]
    assert rendering.one("Service")["spec"]["ports"] == [
        {"name": "webhook", "port": 8443, "targetPort": "webhook"}
    ]
    webhooks = rendering.one("MutatingWebhookConfiguration")["webhooks"]
    assert [each["clientConfig"]["service"]["port"] for each in webhooks] == [8443, 8443]


def test_on_the_nodes_network_names_resolve_and_every_port_is_known_to_the_scheduler(render):
    deployment = render({"hostNetwork": "true", "webhook.port": "10260"}).one("Deployment")["spec"]
    spec = deployment["template"]["spec"]

    assert (spec["hostNetwork"], spec["dnsPolicy"]) == (True, "ClusterFirstWithHostNet")
    assert deployment["strategy"]["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": 1}
    ports = {port["name"]: port["containerPort"] for port in spec["containers"][0]["ports"]}
    assert ports == {"webhook": 10260, "metrics": 8080, "console": 8081}


def test_the_controller_stays_in_the_pods_network(render):
    spec = render(EVERYTHING).pod("kueue-fallback-controller")["spec"]

    assert "hostNetwork" not in spec


def test_the_kubelets_port_is_refused_on_the_nodes_network(template):
    result = template({"hostNetwork": "true"})

    assert result.returncode == 1
    assert "hostNetwork: true needs another webhook.port than 10250" in result.stderr


@pytest.mark.parametrize(
    ("values", "secret"),
    [
        ({"certificates.mode": '"files"'}, "kueue-fallback-tls"),
        (EVERYTHING, "mine"),
        (CERT_MANAGER, "kueue-fallback-tls"),
    ],
)
def test_a_certificate_that_others_make_is_mounted(render, values, secret):
    spec = render(values).pod()["spec"]

    assert {"name": "tls", "secret": {"secretName": secret}} in spec["volumes"]
    assert {"name": "tls", "mountPath": "/tls", "readOnly": True} in spec["containers"][0][
        "volumeMounts"
    ]


def test_a_certificate_of_its_own_is_nowhere_on_disk(render):
    spec = render().pod()["spec"]

    assert [volume["name"] for volume in spec["volumes"]] == ["settings", "tmp"]


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_what_large_objects_took_is_given_back(render, name):
    (container,) = pod(render(), "Deployment", name)["spec"]["containers"]

    assert {each["name"]: each["value"] for each in container["env"]} == {
        "MALLOC_ARENA_MAX": "1",
        "MALLOC_MMAP_THRESHOLD_": "32768",
        "MALLOC_TRIM_THRESHOLD_": "131072",
    }
