"""Where objects of the chart must agree with one another, and with what the code does."""

import json
import re
from pathlib import Path

import pytest
import yaml

from hack import crd, job_kinds
from tests.chart.helm import CHART
from tests.chart.values import EVERYTHING
from webhook.api.resources import CONGESTION, SAVINGS
from webhook.decide import match
from webhook.hindsight import journal
from webhook.jobs import KINDS
from webhook.learn import run_records
from webhook.settings import Settings
from webhook.state.watched import watched, watched_on_worker

FILES = CHART / "files"
CONTROLLER = "kueue-fallback-controller"
DEPLOYMENTS = ("kueue-fallback", CONTROLLER)
WORKER_READER = CHART.parent / "examples/worker-reader.yaml"
EXPORTERS = CHART.parent / "examples/prometheus/exporters.yaml"
CONFIG_MAP_ROLES = ("kueue-fallback-kueue-config", "kueue-fallback-off-switch")


@pytest.fixture
def everything(render):
    return render(EVERYTHING)


def test_what_scrapes_finds_the_pods_with_metrics_and_no_hook(everything):
    pods = [everything.pod(name)["metadata"]["labels"].items() for name in DEPLOYMENTS]
    jobs = [
        job["spec"]["template"]["metadata"]["labels"].items()
        for (kind, _), job in everything.objects.items()
        if kind == "Job"
    ]
    service = everything.one("Service", "kueue-fallback-metrics")
    chosen = everything.one("ServiceMonitor")["spec"]["selector"]["matchLabels"].items()

    assert len(jobs) == 2
    for selector in (
        everything.one("PodMonitor")["spec"]["selector"]["matchLabels"].items(),
        service["spec"]["selector"].items(),
    ):
        assert all(selector <= labels for labels in pods)
        assert not any(selector <= labels for labels in jobs)
    assert chosen <= service["metadata"]["labels"].items()
    assert not chosen <= everything.one("Service")["metadata"]["labels"].items()
    reviewed = everything.one("Service")["spec"]["selector"].items()
    assert not any(reviewed <= labels for labels in jobs)


def test_network_policies_select_the_pods_that_they_are_for(everything):
    for name in DEPLOYMENTS:
        selector = everything.one("NetworkPolicy", name)["spec"]["podSelector"]["matchLabels"]
        assert selector == everything.one("Deployment", name)["spec"]["selector"]["matchLabels"]


def test_alerts_dashboard_and_definitions_are_those_of_their_files(everything):
    dashboard = everything.one("ConfigMap", "kueue-fallback-dashboard")["data"]

    alerts = yaml.safe_load((FILES / "alerts.yaml").read_text())
    for rule in [rule for group in alerts["groups"] for rule in group["rules"]]:
        address = f"https://wiki.example/operations#{rule['alert']}"
        rule["annotations"]["runbook_url"] = address
    assert everything.one("PrometheusRule")["spec"] == alerts
    shown = json.loads((FILES / "dashboard.json").read_text())
    assert json.loads(dashboard["kueue-fallback.json"]) == shown
    for generated in crd.DEFINITIONS:
        name = f"{generated.plural}.kueue-fallback.dev"
        found = everything.one("CustomResourceDefinition", name)
        assert found == yaml.safe_load(crd.text(generated))
        assert found["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}


def test_a_prometheus_is_asked_by_the_controller_alone_with_what_is_mounted(everything):
    settings = everything.one("ConfigMap")["data"]["settings.yaml"]
    asked = Settings(**yaml.safe_load(settings)).prometheus
    spec = everything.pod(CONTROLLER)["spec"]
    mounts = {each["name"]: each["mountPath"] for each in spec["containers"][0]["volumeMounts"]}
    secrets = {
        each["name"]: (each["secret"]["secretName"], each["secret"]["items"][0]["path"])
        for each in spec["volumes"]
        if each["name"].startswith("prometheus")
    }

    assert (asked.url, asked.queries.power) == ("https://prometheus.monitoring:9090", "")
    assert asked.labels.pod == "exported_pod"
    assert secrets == {
        "prometheus-ca": ("monitoring-ca", "ca.crt"),
        "prometheus-token": ("monitoring-token", "token"),
    }
    assert asked.ca_file == f"{mounts['prometheus-ca']}/ca.crt"
    assert asked.token_file == f"{mounts['prometheus-token']}/token"
    assert "prometheus" not in str(everything.pod())


@pytest.mark.parametrize("values", list(yaml.safe_load_all(EXPORTERS.read_text())))
def test_values_for_another_exporter_are_what_the_controller_reads(values, render):
    given = values["metrics"]["prometheus"]
    path = "metrics.prometheus"
    settings = render({f"{path}.{key}": json.dumps(value) for key, value in given.items()}).one(
        "ConfigMap"
    )["data"]["settings.yaml"]

    asked = Settings(**yaml.safe_load(settings)).prometheus
    assert asked.queries.model_dump() == given["queries"]


@pytest.mark.parametrize(
    ("what", "before", "after"),
    [
        ("settings", {}, {"settings": '{"keep_alive": 100}'}),
        ("path", *({"webhook.pathSegments": f'["segment-of-a-path-{n:06}"]'} for n in (1, 2))),
    ],
)
def test_what_changes_starts_new_servers(render, what, before, after):
    sums = [
        render(values).pod()["metadata"]["annotations"][f"checksum/{what}"]
        for values in (before, after)
    ]

    assert sums[0] != sums[1]


def test_a_segment_of_the_path_is_in_nothing_that_many_may_read(render):
    segment = "segment-of-a-path-000002"
    found = render({"webhook.pathSegments": json.dumps([segment])})

    assert sorted(key for key, each in found.objects.items() if segment in json.dumps(each)) == [
        ("MutatingWebhookConfiguration", "kueue-fallback"),
        ("Secret", "kueue-fallback-path"),
    ]


def test_what_the_chart_knows_of_kinds_is_what_the_webhook_knows():
    assert job_kinds.TARGET.read_text() == job_kinds.text(), "run python -m hack.job_kinds"


def test_the_owners_that_the_api_server_knows_are_those_that_the_webhook_skips(render):
    (create, _) = render().one("MutatingWebhookConfiguration")["webhooks"]

    _, _, listed = create["matchConditions"][0]["expression"].partition(" in [")
    assert set(re.findall(r"'([^']+)'", listed)) == {
        f"{group}/{kind}"
        for group, kind in match._MANAGED_OWNERS  # noqa: SLF001 - the rule itself
    }


def test_what_is_watched_and_what_may_be_read_are_the_same(render):
    rules = render().one("ClusterRole")["rules"]
    named = [rule for name in CONFIG_MAP_ROLES for rule in render().one("Role", name)["rules"]]

    asked = watched(namespace="ours", kueue_namespace="kueue-system")
    assert {resource.path.rpartition("/")[2] for resource in asked} == {
        *(name for rule in rules for name in rule["resources"] if name != "jobs"),
        "configmaps",
        "deployments",
    }
    assert {resource.kind for resource in asked if resource.field_selector} == {
        name for rule in named for name in rule["resourceNames"]
    }


def test_the_documented_account_on_a_worker_may_read_what_is_watched_and_nothing_else():
    items = [each for each in yaml.safe_load_all(Path(WORKER_READER).read_text()) if each]
    rules = [rule for item in items for rule in item.get("rules", ())]

    asked = watched_on_worker(kueue_namespace="kueue-system")
    assert {name for rule in rules for name in rule["resources"]} == {
        resource.path.rpartition("/")[2] for resource in asked
    }
    assert all(rule["verbs"] == ["list", "watch"] for rule in rules)


def test_what_is_kept_is_read_by_both_and_written_by_the_controller_alone(render):
    config_maps = {"apiGroups": [""], "resources": ["configmaps"]}
    runs = [run_records.name_of(shard) for shard in range(run_records.SHARDS)]
    hours = [journal.name_of(shard) for shard in range(journal.SHARDS)]

    read = render().one("Role", "kueue-fallback-run-times")["rules"]
    assert read == [{**config_maps, "resourceNames": runs, "verbs": ["get"]}]
    assert render().one("Role", CONTROLLER)["rules"][:4] == [
        {**config_maps, "resourceNames": runs, "verbs": ["patch"]},
        {**config_maps, "resourceNames": hours, "verbs": ["get", "patch"]},
        {**config_maps, "resourceNames": [SAVINGS, CONGESTION], "verbs": ["patch"]},
        {**config_maps, "verbs": ["create"]},
    ]
    others = [
        (rule["resources"], rule.get("resourceNames"), rule["verbs"])
        for rule in render().one("Role", CONTROLLER)["rules"][4:]
    ]
    assert others == [
        (["secrets"], ["kueue-fallback-signing-keys"], ["get", "patch"]),
        (["secrets"], None, ["create"]),
        (["leases"], ["kueue-fallback-controller"], ["get", "update"]),
        (["leases"], None, ["create"]),
    ]


def test_every_binding_names_a_role_that_exists(everything):
    for (kind, _), binding in everything.objects.items():
        if kind in ("RoleBinding", "ClusterRoleBinding"):
            role = binding["roleRef"]
            assert (role["kind"], role["name"]) in everything.objects


@pytest.mark.parametrize("half", [0, 1])
def test_the_controller_may_follow_the_kinds_that_are_switched_on_and_no_others(render, half):
    some = [kind for index, kind in enumerate(KINDS.values()) if index % 2 == half]
    values = {"kinds": json.dumps([kind.kind for kind in some]), "hooks.probe.enabled": "false"}
    known = {kind.plural for kind in KINDS.values()}

    rules = render(values).one("ClusterRole", CONTROLLER)["rules"]

    follow = [rule for rule in rules if "watch" in rule["verbs"] and known & {*rule["resources"]}]
    assert follow == [
        {
            "apiGroups": [kind.group],
            "resources": [kind.plural],
            "verbs": ["list", "watch", *(["patch"] if kind.is_movable else [])],
        }
        for kind in some
    ]
