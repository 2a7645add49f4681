"""What the API server is told: which Jobs to send, and what to do without an answer."""

import json
import re

import pytest

from hack import job_kinds
from tests.chart.values import CERT_MANAGER
from webhook.decide import match
from webhook.model.omitted_namespaces import CONDITION

KUEUES_CONFIGURATION = "kueue-mutating-webhook-configuration"


def webhooks(rendering):
    return rendering.one("MutatingWebhookConfiguration")["webhooks"]


def expected(operation, **more):
    return {
        "name": f"{operation.lower()}.kueue-fallback.dev",
        "admissionReviewVersions": ["v1"],
        "clientConfig": {
            "service": {
                "name": "kueue-fallback",
                "namespace": "ours",
                "path": "/mutate",
                "port": 443,
            }
        },
        "failurePolicy": "Ignore",
        "matchPolicy": "Equivalent",
        "reinvocationPolicy": "IfNeeded",
        "sideEffects": "NoneOnDryRun",
        "timeoutSeconds": 2,
        "namespaceSelector": {
            "matchExpressions": [
                {
                    "key": "kubernetes.io/metadata.name",
                    "operator": "NotIn",
                    "values": [
                        "kube-system",
                        "kube-public",
                        "kube-node-lease",
                        "kueue-system",
                        "ours",
                    ],
                }
            ]
        },
        "rules": [
            {
                "apiGroups": ["batch"],
                "apiVersions": ["v1"],
                "operations": [operation],
                "resources": ["jobs"],
                "scope": "Namespaced",
            }
        ],
        **more,
    }


def test_it_is_called_before_kueues_webhook(render):
    name = render().one("MutatingWebhookConfiguration")["metadata"]["name"]

    assert name < KUEUES_CONFIGURATION


def test_every_new_job_may_be_sent_and_only_decided_jobs_when_they_change(render):
    decided = {"matchExpressions": [{"key": "kueue-fallback.dev/option", "operator": "Exists"}]}
    sent = webhooks(render())

    conditions = [each["matchConditions"] for each in sent]
    assert sent == [
        expected("CREATE", matchConditions=conditions[0]),
        expected("UPDATE", objectSelector=decided, matchConditions=conditions[1]),
    ]
    assert [[each["name"] for each in few] for few in conditions] == [
        [
            "not-owned-by-what-kueue-manages",
            "not-a-copy-from-a-manager-cluster",
            "not-with-a-workload-made-before",
            "not-decided-in-this-very-admission",
        ],
        [
            "with-the-decision-that-it-had-undone-or-to-be-moved",
            "not-opted-out-undone-or-to-be-moved",
        ],
    ]


def test_other_kinds_of_jobs_are_sent_only_where_they_are_switched_on(render):
    sent = webhooks(render({"kinds": '["Job", "RayJob", "JobSet"]'}))

    rules = [(rule["apiGroups"], rule["resources"]) for hook in sent for rule in hook["rules"]]
    kinds = [("batch", "jobs"), ("ray.io", "rayjobs"), ("jobset.x-k8s.io", "jobsets")]
    assert rules == [([group], [plural]) for group, plural in kinds] * 2


def test_what_the_chart_knows_of_kinds_is_what_the_webhook_knows():
    assert job_kinds.TARGET.read_text() == job_kinds.text(), "run python -m hack.job_kinds"


def test_the_owners_that_the_api_server_knows_are_those_that_the_webhook_skips(render):
    condition = webhooks(render())[0]["matchConditions"][0]["expression"]

    _, _, listed = condition.partition(" in [")
    assert set(re.findall(r"'([^']+)'", listed)) == {
        f"{group}/{kind}"
        for group, kind in match._MANAGED_OWNERS  # noqa: SLF001 - the rule itself
    }


def test_a_job_that_is_to_be_moved_is_sent_whatever_else_it_says(render):
    wish = "'kueue-fallback.dev/move-to'"
    asked = (
        f"(has(object.metadata.annotations) && {wish} in object.metadata.annotations"
        f" && (!has(oldObject.metadata.annotations) || !({wish} in oldObject.metadata.annotations)"
        f" || object.metadata.annotations[{wish}] != oldObject.metadata.annotations[{wish}]))"
    )

    conditions = webhooks(render())[1]["matchConditions"]
    assert [each["expression"].endswith(f" || {asked}") for each in conditions] == [True, True]
    assert [each["expression"].count("(") for each in conditions] == [
        each["expression"].count(")") for each in conditions
    ]


def test_an_undone_job_that_keeps_the_label_is_sent_though_it_has_opted_out(render):
    label = "'kueue-fallback.dev/option'"
    undone = (
        f" || (has(object.metadata.labels) && {label} in object.metadata.labels"
        f" && object.metadata.labels[{label}] == 'none')"
    )

    conditions = webhooks(render())[1]["matchConditions"]

    assert [undone in each["expression"] for each in conditions] == [True, True]


def test_conditions_of_the_admin_are_added_for_new_jobs_alone(render):
    more = {"name": "gpu-only", "expression": "true"}
    create, update = webhooks(render({"webhook.matchConditions": json.dumps([more])}))

    assert more in create["matchConditions"]
    assert more not in update["matchConditions"]


def test_namespaces_are_left_out_by_a_controller_and_where_that_is_wanted(render):
    rendered = (
        render(),
        render({"webhook.omitUnmatchedNamespaces": "false"}),
        render({"controller.enabled": "false"}),
    )

    settings = [each.one("ConfigMap")["data"]["settings.yaml"] for each in rendered]
    assert ["omit_unmatched: true" in text for text in settings] == [True, False, False]
    # The chart does not name the condition, so that nothing that applies it takes it away.
    assert not any(
        each["name"] == CONDITION
        for sent in webhooks(rendered[0])
        for each in sent["matchConditions"]
    )


def test_the_authority_is_given_where_the_admin_has_one(render):
    values = {"certificates.mode": '"files"', "certificates.files.caBundle": '"QQ=="'}

    bundles = [each["clientConfig"].get("caBundle") for each in webhooks(render(values))]
    assert bundles == ["QQ==", "QQ=="]


def test_annotations_are_the_admins_and_the_injectors(render):
    given = {"webhook.annotations": '{"inject": "ours/tls"}'}
    configuration = "MutatingWebhookConfiguration"

    of_admin = render(given).one(configuration)["metadata"]["annotations"]
    of_both = render({**given, **CERT_MANAGER}).one(configuration)["metadata"]["annotations"]
    assert of_admin == {"inject": "ours/tls"}
    assert of_both == {
        "inject": "ours/tls",
        "cert-manager.io/inject-ca-from": "ours/kueue-fallback",
    }
    assert "annotations" not in render().one(configuration)["metadata"]


def test_only_namespaces_with_the_given_labels_are_looked_at(render):
    rendering = render({"webhook.namespaceLabels": '{"fallback": "yes"}'})

    selectors = [each["namespaceSelector"] for each in webhooks(rendering)]
    assert [each["matchLabels"] for each in selectors] == [{"fallback": "yes"}] * 2


def test_failure_policy_time_out_and_excluded_namespaces_are_values(render):
    rendering = render(
        {
            "webhook.failurePolicy": '"Fail"',
            "webhook.timeoutSeconds": "5",
            "webhook.excludedNamespaces": '["kube-system", "ours"]',
            "kueue.namespace": '"kueue"',
        }
    )

    first = webhooks(rendering)[0]
    (expression,) = first["namespaceSelector"]["matchExpressions"]
    assert (first["failurePolicy"], first["timeoutSeconds"]) == ("Fail", 5)
    assert expression["values"] == ["kube-system", "ours", "kueue"]


def test_groups_of_pods_come_to_a_path_of_their_own_and_never_pass_without_an_answer(render):
    values = {"kinds": '["Job", "Pod"]', "podGroups.enabled": "true"}
    create, update, groups = webhooks(render(values))

    assert groups["name"] == "groups.kueue-fallback.dev"
    assert groups["failurePolicy"] == "Fail"
    assert groups["clientConfig"]["service"]["path"] == "/mutate/pod-groups"
    assert groups["namespaceSelector"] == create["namespaceSelector"]
    assert groups["rules"] == [
        {
            "apiGroups": [""],
            "apiVersions": ["v1"],
            "operations": ["CREATE"],
            "resources": ["pods"],
            "scope": "Namespaced",
        }
    ]
    named = [[each["name"] for each in hook["matchConditions"]] for hook in (create, groups)]
    assert named[0][-1] == "not-a-pod-of-a-group"
    assert named[1] == ["a-pod-of-a-group-with-a-queue", *named[0][:-1]]
    assert "not-a-pod-of-another-object-or-of-a-node" in named[0]
    assert update["failurePolicy"] == create["failurePolicy"] == "Ignore"


def test_groups_need_pods_among_the_kinds(render):
    with pytest.raises(AssertionError, match=r"podGroups\.enabled: needs Pod among the kinds"):
        render({"podGroups.enabled": "true"})
