"""What other operators are given; by hand, as no test control plane serves most of these kinds."""

import json
from pathlib import Path

import pytest
import yaml

from tests.chart.helm import template
from tests.chart.values import EVERYTHING
from webhook.settings import Settings

FILES = Path(__file__).resolve().parents[2] / "helm" / "files"


@pytest.fixture(scope="module")
def rendering(render):
    return render(EVERYTHING)


@pytest.fixture(scope="module")
def pods(rendering):
    """The labels of the pods that have metrics."""
    names = ("kueue-fallback", "kueue-fallback-controller")
    return [rendering.pod(name)["metadata"]["labels"] for name in names]


def test_a_pod_monitor_scrapes_servers_and_controller(rendering, pods):
    monitor = rendering.one("PodMonitor")

    assert monitor["apiVersion"] == "monitoring.coreos.com/v1"
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    assert monitor["spec"]["podMetricsEndpoints"] == [{"port": "metrics", "interval": "30s"}]
    selector = monitor["spec"]["selector"]["matchLabels"].items()
    assert all(selector <= labels.items() for labels in pods)


def test_a_service_monitor_scrapes_them_through_a_service_of_its_own(rendering, pods):
    monitor = rendering.one("ServiceMonitor")
    service = rendering.one("Service", "kueue-fallback-metrics")

    assert monitor["apiVersion"] == "monitoring.coreos.com/v1"
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    assert monitor["spec"]["endpoints"] == [{"port": "metrics", "interval": "30s"}]
    chosen = monitor["spec"]["selector"]["matchLabels"].items()
    assert chosen <= service["metadata"]["labels"].items()
    assert not chosen <= rendering.one("Service")["metadata"]["labels"].items()
    assert all(service["spec"]["selector"].items() <= labels.items() for labels in pods)
    assert service["spec"]["ports"] == [{"name": "metrics", "port": 8080, "targetPort": "metrics"}]
    assert service["spec"]["publishNotReadyAddresses"] is True


def test_the_alerts_are_those_of_the_file(rendering):
    rule = rendering.one("PrometheusRule")

    assert rule["apiVersion"] == "monitoring.coreos.com/v1"
    assert rule["metadata"]["labels"]["release"] == "prometheus"
    assert rule["spec"] == yaml.safe_load((FILES / "alerts.yaml").read_text())


def test_the_dashboard_is_that_of_the_file_and_grafana_finds_it(rendering):
    dashboard = rendering.one("ConfigMap", "kueue-fallback-dashboard")

    assert dashboard["metadata"]["labels"]["grafana_dashboard"] == "1"
    written = json.loads(dashboard["data"]["kueue-fallback.json"])
    assert written == json.loads((FILES / "dashboard.json").read_text())


def test_by_default_none_of_these_is_made(render):
    kinds = {kind for kind, _ in render().objects}

    assert not kinds & {"PodMonitor", "ServiceMonitor", "PrometheusRule", "NetworkPolicy"}


def test_network_policies_let_in_reviews_and_scrapes_alone(rendering):
    server = rendering.one("NetworkPolicy")["spec"]
    controller = rendering.one("NetworkPolicy", "kueue-fallback-controller")["spec"]

    scrapes = {"ports": [{"port": "metrics"}], "from": [{"namespaceSelector": {}}]}
    reviews = {"ports": [{"port": "webhook"}], "from": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}
    console = {"ports": [{"port": "console"}], "from": [{"podSelector": {}}]}
    assert server["ingress"] == [reviews, console, scrapes]
    assert controller["ingress"] == [scrapes]
    dns = [{"port": port, "protocol": each} for port in (53, 5353) for each in ("UDP", "TCP")]
    calls = [{"to": [{"ipBlock": {"cidr": "10.96.0.1/32"}}]}, {"ports": dns}]
    asks = {"to": [{"podSelector": {"matchLabels": {"app": "prometheus"}}}]}
    assert (server["egress"], controller["egress"]) == (calls, [*calls, asks])
    both = ["Ingress", "Egress"]
    assert (server["policyTypes"], controller["policyTypes"]) == (both, both)


def test_network_policies_without_peers_let_both_in_from_everywhere(render):
    spec = render({"networkPolicy.enabled": "true"}).one("NetworkPolicy")["spec"]

    assert spec["ingress"] == [
        {"ports": [{"port": "webhook"}]},
        {"ports": [{"port": "metrics"}]},
    ]
    assert spec["policyTypes"] == ["Ingress"]
    assert "egress" not in spec


REVIEWS_FROM = '[{"ipBlock": {"cidr": "10.0.0.0/28"}}]'


@pytest.mark.parametrize(
    ("enabled", "peers", "made"),
    [
        ("null", "[]", False),
        ("null", REVIEWS_FROM, True),
        ("false", REVIEWS_FROM, False),
        ("true", "[]", True),
    ],
)
def test_network_policies_are_made_where_the_control_planes_addresses_are_given(
    render, enabled, peers, made
):
    rendering = render({"networkPolicy.enabled": enabled, "networkPolicy.reviewsFrom": peers})

    found = {name for kind, name in rendering.objects if kind == "NetworkPolicy"}
    assert found == ({"kueue-fallback", "kueue-fallback-controller"} if made else set())


def test_network_policies_select_the_pods_that_they_are_for(rendering):
    for name in ("kueue-fallback", "kueue-fallback-controller"):
        selector = rendering.one("NetworkPolicy", name)["spec"]["podSelector"]["matchLabels"]
        assert selector == rendering.one("Deployment", name)["spec"]["selector"]["matchLabels"]


PROMETHEUS = '{"url": "https://prometheus.monitoring:9090"}'


def test_a_prometheus_is_asked_by_the_controller_alone(rendering):
    controller = rendering.one("Deployment", "kueue-fallback-controller")["spec"]["template"]
    server = rendering.one("Deployment")["spec"]["template"]
    settings = rendering.one("ConfigMap")["data"]["settings.yaml"]

    asked = Settings(**yaml.safe_load(settings)).prometheus
    assert (asked.url, asked.queries.power) == ("https://prometheus.monitoring:9090", "")
    assert asked.labels.pod == "exported_pod"
    secrets = {
        volume["name"]: volume["secret"]
        for volume in controller["spec"]["volumes"]
        if volume["name"].startswith("prometheus")
    }
    assert secrets == {
        "prometheus-ca": {
            "secretName": "monitoring-ca",
            "items": [{"key": "ca.crt", "path": "ca.crt"}],
        },
        "prometheus-token": {
            "secretName": "monitoring-token",
            "items": [{"key": "token", "path": "token"}],
        },
    }
    mounts = {
        mount["name"]: mount["mountPath"]
        for mount in controller["spec"]["containers"][0]["volumeMounts"]
    }
    assert asked.ca_file == f"{mounts['prometheus-ca']}/ca.crt"
    assert asked.token_file == f"{mounts['prometheus-token']}/token"
    assert "prometheus" not in str(server)


def test_where_calls_are_limited_it_must_be_said_where_the_prometheus_is(render):
    limited = '{"enabled": true, "callsTo": [{"ipBlock": {"cidr": "10.96.0.1/32"}}]}'

    failed = template({"networkPolicy": limited, "metrics.prometheus": PROMETHEUS})

    assert "networkPolicy.prometheus: must say where metrics.prometheus.url is" in failed.stderr


def test_by_default_no_prometheus_is_asked(render):
    assert "prometheus" not in render().one("ConfigMap")["data"]["settings.yaml"]
