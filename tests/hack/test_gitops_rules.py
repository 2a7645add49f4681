"""The rules for GitOps tools in the cookbook cover each place that the webhook may patch."""

import pytest

from hack import gitops_rules
from webhook.jobs import KINDS


def test_the_cookbook_has_the_rules_that_the_places_call_for():
    assert gitops_rules.TARGET.read_text() == gitops_rules.text()


@pytest.mark.parametrize(
    ("place", "jq_path", "pointer"),
    [
        (
            ("metadata", "labels", "kueue.x-k8s.io/queue-name"),
            '.metadata.labels["kueue.x-k8s.io/queue-name"]',
            "/metadata/labels/kueue.x-k8s.io~1queue-name",
        ),
        (
            ("spec", "template", "spec", "nodeSelector", "*"),
            ".spec.template.spec.nodeSelector",
            "/spec/template/spec/nodeSelector",
        ),
        (
            ("spec", "template", "spec", "containers", "*", "env", "*"),
            ".spec.template.spec.containers[].env",
            "/spec/template/spec/containers",
        ),
        (
            ("spec", "template", "spec", "containers", "*", "resources", "limits", "*"),
            ".spec.template.spec.containers[].resources.limits",
            "/spec/template/spec/containers",
        ),
    ],
)
def test_a_place_is_written_for_both_tools(place, jq_path, pointer):
    assert gitops_rules.jq_path(place) == jq_path
    assert gitops_rules.pointer(place) == pointer


def test_only_our_own_marks_are_left_out():
    left_out = set(KINDS["batch", "v1", "Job"].allowed) - set(gitops_rules.in_manifests())

    assert left_out == {
        ("metadata", "labels", "kueue-fallback.dev/*"),
        ("metadata", "annotations", "kueue-fallback.dev/*"),
    }
