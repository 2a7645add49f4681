"""What `gitops` prints for Argo CD and Flux, from policies in a file and from a cluster's."""

import yaml
from click.testing import CliRunner

from webhook.__main__ import main

ONLY_QUEUES = {"queue": "gpu-lq"}, {"queue": "cpu-lq"}
CHANGING = {
    "queue": "cpu-lq",
    "priorityClass": "low",
    "adaptation": {
        "resources": {"remove": ["nvidia.com/gpu"], "requests": {"cpu": "4"}},
        "env": {"RUN_ENV": "cpu"},
        "image": "busybox:1",
        "nodeSelector": {"remove": ["example.com/product"]},
        "tolerations": {"add": [{"key": "spot", "operator": "Exists"}]},
        "labels": {"tier": "cpu"},
        "topology": {"mode": "Unconstrained"},
    },
}
OF_JOBS = [
    '.metadata.labels["kueue.x-k8s.io/queue-name"]',
    '.metadata.labels["kueue.x-k8s.io/priority-class"]',
    ".spec.template.metadata.labels.tier",
    '.spec.template.metadata.annotations["kueue.x-k8s.io/podset-group-name"]',
    '.spec.template.metadata.annotations["kueue.x-k8s.io/podset-preferred-topology"]',
    '.spec.template.metadata.annotations["kueue.x-k8s.io/podset-required-topology"]',
    '.spec.template.metadata.annotations["kueue.x-k8s.io/podset-slice-required-topology"]',
    (
        ".spec.template.metadata.annotations"
        '["kueue.x-k8s.io/podset-slice-required-topology-constraints"]'
    ),
    '.spec.template.metadata.annotations["kueue.x-k8s.io/podset-slice-size"]',
    '.spec.template.metadata.annotations["kueue.x-k8s.io/podset-unconstrained-topology"]',
    '.spec.template.spec.nodeSelector["example.com/product"]',
    ".spec.template.spec.tolerations",
    ".spec.template.spec.containers[]?.image",
    '.spec.template.spec.containers[]?.env[]? | select(.name == "RUN_ENV")',
    '.spec.template.spec.containers[]?.resources.requests["nvidia.com/gpu"]',
    ".spec.template.spec.containers[]?.resources.requests.cpu",
    '.spec.template.spec.containers[]?.resources.limits["nvidia.com/gpu"]',
    ".spec.template.spec.containers[]?.resources.limits.cpu",
    ".spec.template.spec.initContainers[]?.image",
    '.spec.template.spec.initContainers[]?.env[]? | select(.name == "RUN_ENV")',
    '.spec.template.spec.initContainers[]?.resources.requests["nvidia.com/gpu"]',
    ".spec.template.spec.initContainers[]?.resources.requests.cpu",
    '.spec.template.spec.initContainers[]?.resources.limits["nvidia.com/gpu"]',
    ".spec.template.spec.initContainers[]?.resources.limits.cpu",
]
OF_THE_WEBHOOK = {
    "group": "admissionregistration.k8s.io",
    "kind": "MutatingWebhookConfiguration",
    "jqPathExpressions": [
        ".webhooks[]?.clientConfig.caBundle",
        (
            ".webhooks[]?.matchConditions[]?"
            ' | select(.name == "in-a-namespace-that-a-policy-may-match")'
        ),
    ],
}


def policy(*options, kinds=("Job",), name="p", **spec):
    return {
        "apiVersion": "kueue-fallback.dev/v1alpha1",
        "kind": "FallbackPolicy",
        "metadata": {"name": name},
        "spec": {
            "match": {"kinds": list(kinds), "jobSelector": {}},
            "options": list(options or ONLY_QUEUES),
            **spec,
        },
    }


def run(tool, *words):
    return CliRunner().invoke(main, ["gitops", tool, *words])


def printed(tool, tmp_path, *policies):
    """Return the YAML documents that are printed for the policies of a file."""
    path = tmp_path / "policies.yaml"
    path.write_text(yaml.safe_dump_all(policies))
    result = run(tool, "-f", str(path))
    assert (result.exit_code, result.stderr) == (0, "")
    return [document for document in yaml.safe_load_all(result.stdout) if document]


def test_argo_cd_ignores_what_the_options_change_and_no_more(tmp_path):
    jobs, own = printed("argocd", tmp_path, policy({"queue": "gpu-lq"}, CHANGING))

    assert (jobs["apiVersion"], jobs["kind"]) == ("argoproj.io/v1alpha1", "Application")
    assert jobs["spec"] == {
        "ignoreDifferences": [{"group": "batch", "kind": "Job", "jqPathExpressions": OF_JOBS}]
    }
    assert own["spec"] == {
        "ignoreDifferences": [OF_THE_WEBHOOK],
        "syncPolicy": {"syncOptions": ["RespectIgnoreDifferences=true"]},
    }


def test_flux_ignores_the_same_up_to_lists_and_applies_jobs_once(tmp_path):
    release, kustomization = printed("flux", tmp_path, policy({"queue": "gpu-lq"}, CHANGING))

    assert release["apiVersion"] == "helm.toolkit.fluxcd.io/v2"
    (ignored,) = release["spec"]["driftDetection"]["ignore"]
    assert ignored["target"] == {"group": "batch", "kind": "Job"}
    assert ignored["paths"][0] == "/metadata/labels/kueue.x-k8s.io~1queue-name"
    assert ignored["paths"][-3:] == [
        "/spec/template/spec/tolerations",
        "/spec/template/spec/containers",
        "/spec/template/spec/initContainers",
    ]
    assert kustomization["apiVersion"] == "kustomize.toolkit.fluxcd.io/v1"
    (patch,) = kustomization["spec"]["patches"]
    assert patch["target"] == ignored["target"]
    assert yaml.safe_load(patch["patch"]) == {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": "any",
            "annotations": {"kustomize.toolkit.fluxcd.io/ssa": "IfNotPresent"},
        },
    }
