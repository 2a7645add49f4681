"""The rights of each ServiceAccount, as whole values."""

import json

import pytest
import yaml

from tests.chart.helm import CHART, objects_of, template
from webhook.api import lease
from webhook.api.resources import CONGESTION, SAVINGS
from webhook.hindsight import journal as journal_shards
from webhook.jobs import KINDS
from webhook.learn.run_records import SHARDS, name_of
from webhook.state.watched import watched, watched_on_worker

READS = [
    {
        "apiGroups": ["kueue.x-k8s.io"],
        "resources": [
            "admissionchecks",
            "clusterqueues",
            "cohorts",
            "localqueues",
            "multikueueclusters",
            "multikueueconfigs",
            "resourceflavors",
            "topologies",
            "workloadpriorityclasses",
            "workloads",
        ],
        "verbs": ["list", "watch"],
    },
    {
        "apiGroups": ["kueue-fallback.dev"],
        "resources": ["fallbackpolicies", "acceleratorprofiles", "tariffs"],
        "verbs": ["list", "watch"],
    },
    {
        "apiGroups": [""],
        "resources": ["limitranges", "namespaces"],
        "verbs": ["list", "watch"],
    },
    {
        "apiGroups": ["node.k8s.io"],
        "resources": ["runtimeclasses"],
        "verbs": ["list", "watch"],
    },
    {
        "apiGroups": ["resource.k8s.io"],
        "resources": ["deviceclasses"],
        "verbs": ["list", "watch"],
    },
    {
        "apiGroups": ["scheduling.k8s.io"],
        "resources": ["priorityclasses"],
        "verbs": ["list", "watch"],
    },
    {
        "apiGroups": ["admissionregistration.k8s.io"],
        "resources": ["mutatingwebhookconfigurations"],
        "verbs": ["list", "watch"],
    },
]
JOBS = {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["list", "watch"]}
WORKER_READER = CHART.parent / "examples/worker-reader.yaml"
CONFIG_MAP_ROLES = ("kueue-fallback-kueue-config", "kueue-fallback-off-switch")
WEBHOOK = {"kind": "ServiceAccount", "name": "kueue-fallback", "namespace": "ours"}
CONTROLLER = {"kind": "ServiceAccount", "name": "kueue-fallback-controller", "namespace": "ours"}


def test_the_webhook_reads_what_a_decision_needs_and_writes_nothing(render):
    rendering = render()

    assert rendering.one("ClusterRole")["rules"] == [*READS, JOBS]
    assert rendering.one("ClusterRoleBinding")["subjects"] == [WEBHOOK]


def test_the_webhook_asks_about_tokens_where_its_console_is_exposed(render):
    rendering = render({"console": '{"expose": true, "followJobs": false}'})

    reviews = {
        "authentication.k8s.io": "tokenreviews",
        "authorization.k8s.io": "subjectaccessreviews",
    }
    assert rendering.one("ClusterRole")["rules"] == [
        *READS,
        *(
            {"apiGroups": [group], "resources": [resource], "verbs": ["create"]}
            for group, resource in reviews.items()
        ),
    ]


def test_the_controller_may_also_write_the_status_of_policies_and_move_jobs(render):
    rendering = render()

    assert rendering.one("ClusterRole", "kueue-fallback-controller")["rules"] == [
        *READS,
        {
            "apiGroups": ["kueue-fallback.dev"],
            "resources": [
                "fallbackpolicies/status",
                "acceleratorprofiles/status",
                "tariffs/status",
            ],
            "verbs": ["patch"],
        },
        {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["list", "watch", "patch"]},
        {"apiGroups": ["kueue.x-k8s.io"], "resources": ["workloads"], "verbs": ["patch"]},
        {
            "apiGroups": ["admissionregistration.k8s.io"],
            "resources": ["mutatingwebhookconfigurations"],
            "resourceNames": ["kueue-fallback"],
            "verbs": ["patch"],
        },
        {"apiGroups": [""], "resources": ["events"], "verbs": ["create"]},
    ]
    binding = rendering.one("ClusterRoleBinding", "kueue-fallback-controller")
    assert binding["subjects"] == [CONTROLLER]


def test_of_kueue_its_configuration_and_its_deployment_are_readable(render):
    rendering = render()

    found = {
        role["metadata"]["namespace"]: role["rules"]
        for role in (rendering.one("Role", name) for name in CONFIG_MAP_ROLES)
    }
    assert found == {
        "kueue-system": [
            _one("", "configmaps", "kueue-manager-config"),
            _one("apps", "deployments", "kueue-controller-manager"),
        ],
        "ours": [_one("", "configmaps", "kueue-fallback-off", CONGESTION)],
    }


def _one(group, resource, *names):
    return {
        "apiGroups": [group],
        "resources": [resource],
        "resourceNames": [*names],
        "verbs": ["list", "watch"],
    }


def test_the_records_of_runs_are_read_by_both_and_written_by_the_controller_alone(render):
    rendering = render()

    records = {
        "apiGroups": [""],
        "resources": ["configmaps"],
        "resourceNames": [name_of(shard) for shard in range(SHARDS)],
    }
    slots = range(journal_shards.SHARDS)
    journal = {**records, "resourceNames": [journal_shards.name_of(slot) for slot in slots]}
    assert rendering.one("Role", "kueue-fallback-run-times")["rules"] == [
        {**records, "verbs": ["get"]}
    ]
    assert rendering.one("RoleBinding", "kueue-fallback-run-times")["subjects"] == [
        WEBHOOK,
        CONTROLLER,
    ]
    assert rendering.one("Role", "kueue-fallback-controller")["rules"][:4] == [
        {**records, "verbs": ["patch"]},
        {**journal, "verbs": ["get", "patch"]},
        {**records, "resourceNames": [SAVINGS, CONGESTION], "verbs": ["patch"]},
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create"]},
    ]
    assert rendering.one("RoleBinding", "kueue-fallback-controller")["subjects"] == [CONTROLLER]


def test_both_processes_read_the_signing_keys_and_the_controller_alone_writes_them(render):
    rendering = render()
    keys = _one("", "secrets", "kueue-fallback-signing-keys")

    assert rendering.one("Role", "kueue-fallback-signing-keys")["rules"] == [keys]
    binding = rendering.one("RoleBinding", "kueue-fallback-signing-keys")
    assert binding["subjects"] == [WEBHOOK, CONTROLLER]
    assert rendering.one("Role", "kueue-fallback-controller")["rules"][4:6] == [
        {**keys, "verbs": ["get", "update"]},
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["create"]},
    ]


def test_the_controller_holds_one_lease_in_its_own_namespace(render):
    role = render().one("Role", "kueue-fallback-controller")

    leases = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"]}
    assert role["metadata"]["namespace"] == "ours"
    assert role["rules"][6:] == [
        {**leases, "resourceNames": [lease.NAME], "verbs": ["get", "update"]},
        {**leases, "verbs": ["create"]},
    ]


def test_the_webhook_sees_which_controller_leads_and_what_it_publishes(render):
    rendering = render()

    assert rendering.one("Role", "kueue-fallback-console")["rules"] == [
        {
            "apiGroups": ["coordination.k8s.io"],
            "resources": ["leases"],
            "resourceNames": [lease.NAME],
            "verbs": ["list", "watch"],
        },
        _one("", "configmaps", SAVINGS),
    ]
    assert rendering.one("RoleBinding", "kueue-fallback-console")["subjects"] == [WEBHOOK]


def test_without_the_controller_nobody_may_write_either(render):
    rendering = render({"controller.enabled": "false"})

    names = [name for kind, name in rendering.objects if kind.startswith("Role")]
    assert not [name for name in names if name.startswith("kueue-fallback-controller")]


def test_what_is_watched_and_what_may_be_read_are_the_same(render):
    rendering = render()

    asked = watched(namespace="ours", kueue_namespace="kueue-system")
    paths = {resource.path.format(kueue="v1beta2") for resource in asked}
    named = {resource.kind for resource in asked if resource.field_selector}
    roles = [rendering.one("Role", name) for name in CONFIG_MAP_ROLES]
    assert {path.rpartition("/")[2] for path in paths} == {
        *(resource for rule in READS for resource in rule["resources"]),
        "configmaps",
        "deployments",
    }
    rules = [rule for role in roles for rule in role["rules"]]
    assert named == {name for rule in rules for name in rule["resourceNames"]}


def test_both_processes_read_those_configmaps_if_both_run(render):
    both, alone = render(), render({"controller.enabled": "false"})

    for name in CONFIG_MAP_ROLES:
        assert both.one("RoleBinding", name)["subjects"] == [WEBHOOK, CONTROLLER]
        assert alone.one("RoleBinding", name)["subjects"] == [WEBHOOK]


def test_every_binding_names_a_role_that_exists(render):
    rendering = render()

    for (kind, _), binding in rendering.objects.items():
        if kind in ("RoleBinding", "ClusterRoleBinding"):
            role = binding["roleRef"]
            assert (role["kind"], role["name"]) in rendering.objects


def test_people_edit_or_view_policies_and_nothing_is_aggregated(render):
    rendering = render()

    rights = {}
    for part in ("editor", "viewer"):
        role = rendering.one("ClusterRole", f"kueue-fallback-policy-{part}")
        assert not any("aggregate" in label for label in role["metadata"]["labels"])
        rights[part] = {rule["resources"][0]: rule["verbs"] for rule in role["rules"]}
    assert rights == {
        "editor": {
            "fallbackpolicies": ["create", "delete", "get", "list", "patch", "update", "watch"],
            "fallbackpolicies/status": ["get"],
        },
        "viewer": {
            "fallbackpolicies": ["get", "list", "watch"],
            "fallbackpolicies/status": ["get"],
        },
    }


def test_no_secret_of_a_worker_cluster_may_be_read_unless_it_is_named(render):
    none, some = render(), render({"clusters.watchWorkers": '["gpu-worker", "other"]'})

    assert ("Role", "kueue-fallback-workers") not in none.objects
    assert some.one("Role", "kueue-fallback-workers")["rules"] == [
        {
            "apiGroups": [""],
            "resources": ["secrets"],
            "resourceNames": ["kueue-fallback-worker-gpu-worker", "kueue-fallback-worker-other"],
            "verbs": ["get"],
        }
    ]
    assert some.one("RoleBinding", "kueue-fallback-workers")["subjects"] == [WEBHOOK]
    assert "watch_workers: true" in some.one("ConfigMap")["data"]["settings.yaml"]
    assert "watch_workers" not in none.one("ConfigMap")["data"]["settings.yaml"]


def test_only_a_dispatcher_may_nominate_clusters_and_read_where_they_are(render):
    workers = {"clusters.watchWorkers": '["gpu-worker"]'}
    without, dispatcher = render(workers), render({**workers, "clusters.dispatcher": "true"})

    def rights(rendered):
        return [
            rule
            for rule in rendered.one("ClusterRole", "kueue-fallback-controller")["rules"]
            if rule["resources"] == ["workloads/status"]
        ]

    assert rights(without) == []
    assert rights(dispatcher) == [
        {"apiGroups": ["kueue.x-k8s.io"], "resources": ["workloads/status"], "verbs": ["patch"]}
    ]
    subjects = dispatcher.one("RoleBinding", "kueue-fallback-workers")["subjects"]
    assert [subject["name"] for subject in subjects] == [
        "kueue-fallback",
        "kueue-fallback-controller",
    ]
    settings = [each.one("ConfigMap")["data"]["settings.yaml"] for each in (without, dispatcher)]
    assert ["dispatcher: true" in text for text in settings] == [False, True]


def test_without_controllers_there_can_be_no_dispatcher(template):
    result = template({"clusters.dispatcher": "true", "controller.enabled": "false"})

    assert result.returncode != 0
    assert "clusters.dispatcher: needs controller.enabled" in result.stderr


def test_the_documented_account_on_a_worker_may_read_what_is_watched_and_nothing_else():
    items = [each for each in yaml.safe_load_all(WORKER_READER.read_text()) if each]
    rules = [rule for item in items for rule in item.get("rules", ())]

    asked = watched_on_worker(kueue_namespace="kueue-system")
    assert {name for rule in rules for name in rule["resources"]} == {
        resource.path.rpartition("/")[2] for resource in asked
    }
    assert all(rule["verbs"] == ["list", "watch"] for rule in rules)


@pytest.mark.parametrize("half", [0, 1])
def test_the_controller_may_follow_the_kinds_that_are_switched_on_and_no_others(render, half):
    some = [kind for index, kind in enumerate(KINDS.values()) if index % 2 == half]
    values = {"kinds": json.dumps([kind.kind for kind in some]), "hooks.probe.enabled": "false"}

    rules = render(values).one("ClusterRole", "kueue-fallback-controller")["rules"]

    follow = [rule for rule in rules if rule not in READS and "watch" in rule["verbs"]]
    assert follow == [
        {
            "apiGroups": [kind.group],
            "resources": [kind.plural],
            "verbs": ["list", "watch", *(["patch"] if kind.is_movable else [])],
        }
        for kind in some
    ]


def test_nodes_may_be_read_only_where_that_is_wanted(render):
    names = ("kueue-fallback", "kueue-fallback-controller")
    nodes = {"apiGroups": [""], "resources": ["nodes"], "verbs": ["list", "watch"]}
    without, wanted = render(), render({"accelerators": '{"watchNodes": true}'})

    for name in names:
        assert not any("nodes" in rule["resources"] for rule in rules_of(without, name))
        assert nodes in rules_of(wanted, name)
    settings = yaml.safe_load(wanted.one("ConfigMap")["data"]["settings.yaml"])
    assert settings["watch_nodes"] is True
    assert "watch_nodes" not in without.one("ConfigMap")["data"]["settings.yaml"]


def test_namespaces_have_policies_of_their_own_only_where_that_is_wanted(render):
    without, wanted = render(), render({"teamPolicies.enabled": "true"})
    names = ("kueue-fallback", "kueue-fallback-controller")
    parts = {"editor": "admin", "viewer": "view"}

    for name in names:
        resources = [rule["resources"] for rule in rules_of(without, name)]
        assert ["teamfallbackpolicies"] not in resources
        assert ["teamfallbackpolicies"] in [rule["resources"] for rule in rules_of(wanted, name)]
    settings = yaml.safe_load(wanted.one("ConfigMap")["data"]["settings.yaml"])
    assert settings["team_policies"] is True
    assert "team_policies" not in without.one("ConfigMap")["data"]["settings.yaml"]
    for part, role in parts.items():
        name = f"kueue-fallback-team-policy-{part}"
        assert ("ClusterRole", name) not in without.objects
        labels = wanted.one("ClusterRole", name)["metadata"]["labels"]
        aggregated = {label for label in labels if "aggregate" in label}
        assert aggregated == {f"rbac.authorization.k8s.io/aggregate-to-{role}"}
        rights = {rule["resources"][0]: rule["verbs"] for rule in rules_of(wanted, name)}
        assert ("create" in rights["teamfallbackpolicies"]) is (part == "editor")
        assert set(rights) == {"teamfallbackpolicies", "teamfallbackpolicies/status"}
    assert not [
        name
        for _, name in render(
            {"teamPolicies.enabled": "true", "policyRoles.create": "false"}
        ).objects
        if "team-policy" in name
    ]


def rules_of(rendering, name):
    return [rule for rule in rendering.one("ClusterRole", name)["rules"] if "resources" in rule]


def test_series_may_be_read_by_name_in_their_namespaces_and_nothing_else(render):
    values = {"tariffs.series": '["day-ahead", "kube-system/carbon-intensity", "wind"]'}
    # Of one name in two namespaces, which a rendering by kind and name cannot tell apart.
    rendered = objects_of(template(values))

    assert not any(name == "kueue-fallback-series" for _, name in render().objects)
    roles = [
        found
        for found in rendered
        if (found["kind"], found["metadata"]["name"]) == ("Role", "kueue-fallback-series")
    ]
    assert {role["metadata"]["namespace"]: role["rules"] for role in roles} == {
        namespace: [
            {
                "apiGroups": [""],
                "resources": ["configmaps"],
                "resourceNames": names,
                "verbs": ["list", "watch"],
            }
        ]
        for namespace, names in (
            ("ours", ["day-ahead", "wind"]),
            ("kube-system", ["carbon-intensity"]),
        )
    }
    assert yaml.safe_load(render(values).one("ConfigMap")["data"]["settings.yaml"])["series"] == [
        "day-ahead",
        "kube-system/carbon-intensity",
        "wind",
    ]


def test_what_only_some_kinds_need_is_asked_for_only_with_them(render):
    without = render()
    runtimes = render({"kinds": '["Job", "TrainJob"]'})
    groups = render({"kinds": '["Job", "Pod"]', "podGroups.enabled": "true"})

    def extra(rendering):
        plain = without.one("ClusterRole", "kueue-fallback")["rules"]
        rules = rendering.one("ClusterRole", "kueue-fallback")["rules"]
        return [(rule["resources"], rule["verbs"]) for rule in rules if rule not in plain]

    followed = (["trainjobs"], ["list", "watch"])
    reading = (["clustertrainingruntimes", "trainingruntimes"], ["list", "watch"])
    assert extra(runtimes) == [reading, followed]
    assert extra(groups) == [(["pods"], ["list"]), (["pods"], ["list", "watch"])]
    assert groups.one("Role", "kueue-fallback-pod-groups")["rules"] == [
        {
            "apiGroups": [""],
            "resources": ["configmaps"],
            "resourceNames": ["kueue-fallback-pod-groups"],
            "verbs": ["get", "patch"],
        }
    ]
    assert groups.one("RoleBinding", "kueue-fallback-pod-groups")["subjects"] == [WEBHOOK]
    assert "data" not in groups.one("ConfigMap", "kueue-fallback-pod-groups")
    settings = groups.one("ConfigMap", "kueue-fallback")["data"]["settings.yaml"]
    assert "pod_groups: true\npod_group_wait: 1\n" in settings
    assert ("Role", "kueue-fallback-pod-groups") not in without.objects
