"""What `gitops` prints for Argo CD and Flux, from policies in a file and from a cluster's."""

import pytest
import yaml
from click.testing import CliRunner

from tests.commands.apiserver import serving
from tests.commands.cluster import Cluster
from tests.model.team_policies import team_policy
from webhook.__main__ import main
from webhook.commands import gitops
from webhook.jobs import BY_NAME
from webhook.model.policy.rules import ENDLESS

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


def test_policies_that_change_the_queue_alone_need_one_line(tmp_path):
    jobs, _ = printed("argocd", tmp_path, policy(), policy(name="q"))

    (rule,) = jobs["spec"]["ignoreDifferences"]
    assert rule["jqPathExpressions"] == ['.metadata.labels["kueue.x-k8s.io/queue-name"]']


def test_a_hold_writes_kueues_gate(tmp_path):
    jobs, _ = printed(
        "argocd", tmp_path, policy(strategy={"type": "Cost", "cost": {"hold": {"jobs": 1}}})
    )

    (rule,) = jobs["spec"]["ignoreDifferences"]
    gate = '.metadata.annotations["kueue.x-k8s.io/admission-gated-by"]'
    assert rule["jqPathExpressions"][1:] == [gate]


def test_where_devices_are_taken_all_that_may_pin_to_them_is_ignored(tmp_path):
    option = {"queue": "cpu-lq", "adaptation": {"accelerator": "Remove"}}
    keyed = {"queue": "x", "adaptation": {"nodeSelector": {"set": {"a": "b"}}}}

    jobs, _ = printed("argocd", tmp_path, policy(option, keyed))

    (rule,) = jobs["spec"]["ignoreDifferences"]
    selectors = [path for path in rule["jqPathExpressions"] if "nodeSelector" in path]
    assert selectors == [".spec.template.spec.nodeSelector"]
    assert ".spec.template.spec.containers[]?.resources.limits" in rule["jqPathExpressions"]


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


def test_flux_goes_on_applying_what_never_ends(tmp_path):
    threshold = {"type": "Threshold", "threshold": [{"option": "gpu-lq"}]}
    release, *others = printed("flux", tmp_path, policy(kinds=ENDLESS, strategy=threshold))

    ignored = release["spec"]["driftDetection"]["ignore"]
    assert {rule["target"]["kind"] for rule in ignored} == set(ENDLESS)
    assert others == []


@pytest.mark.parametrize("tool", ["argocd", "flux"])
@pytest.mark.parametrize("kind", BY_NAME)
def test_every_kind_has_rules_that_are_yaml(kind, tool, tmp_path):
    option = {
        "queue": "cpu-lq",
        "adaptation": {"accelerator": "Remove", "env": {"A": "b"}, "image": "i"},
    }
    threshold = {"type": "Threshold", "threshold": [{"option": "cpu-lq"}]}

    first, *_ = printed(tool, tmp_path, policy(option, kinds=[kind], strategy=threshold))

    spec = first["spec"]
    rules = spec["ignoreDifferences"] if tool == "argocd" else spec["driftDetection"]["ignore"]
    named = [rule if tool == "argocd" else rule["target"] for rule in rules]
    assert [(name["group"], name["kind"]) for name in named] == [(BY_NAME[kind].group, kind)]
    for path in rules[0].get("paths", ()):
        assert path.startswith("/")
        assert "*" not in path


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
            ("spec", "containers", "*", "env", "A"),
            '.spec.containers[]?.env[]? | select(.name == "A")',
            "/spec/containers",
        ),
        (
            ("spec", "mpiReplicaSpecs", "*", "replicas"),
            ".spec.mpiReplicaSpecs[]?.replicas",
            "/spec/mpiReplicaSpecs",
        ),
        (
            ("spec", "runtimePatches", "kueue-fallback.dev/manager"),
            '.spec.runtimePatches[]? | select(.manager == "kueue-fallback.dev/manager")',
            "/spec/runtimePatches",
        ),
    ],
)
def test_a_place_is_written_for_both_tools(place, jq_path, pointer):
    assert gitops.jq_path(place) == jq_path
    assert gitops.pointers([place, place]) == [pointer]


def test_what_lies_below_another_place_is_not_named_again():
    places = [("spec", "driver", "*"), ("spec", "driver", "env", "*"), ("spec", "drivers")]

    assert gitops.pointers(places) == ["/spec/driver", "/spec/drivers"]


def test_the_clusters_policies_are_taken_and_a_broken_one_is_named(tmp_path):
    broken = policy(name="broken", priority="high")
    with serving(Cluster(policy(name="good"), broken), tmp_path) as kubeconfig:
        result = run("argocd", "--kubeconfig", kubeconfig)

    assert result.exit_code == 0
    assert result.stdout.startswith("# Made from the policies: good\n")
    assert result.stderr.startswith("FallbackPolicy broken is left out: spec.priority: ")


@pytest.mark.parametrize(("tool", "documents"), [("argocd", 1), ("flux", 0)])
def test_without_a_policy_only_the_webhook_is_left(tool, documents, tmp_path):
    with serving(Cluster(), tmp_path) as kubeconfig:
        result = run(tool, "--kubeconfig", kubeconfig)

    assert (result.exit_code, result.stderr) == (0, "There is no policy, so no Job is changed.\n")
    assert len([one for one in yaml.safe_load_all(result.stdout) if one]) == documents


def test_who_may_not_list_policies_is_told_in_one_line(tmp_path):
    with serving(Cluster(forbidden=["*/fallbackpolicies"]), tmp_path) as kubeconfig:
        result = run("flux", "--kubeconfig", kubeconfig)

    assert (result.exit_code, result.stdout) == (1, "")
    assert len(result.stderr.splitlines()) == 1


def test_a_file_with_a_mistake_ends_with_its_place(tmp_path):
    path = tmp_path / "p.yaml"
    path.write_text(yaml.safe_dump(policy(priority="high")))

    result = run("argocd", "-f", str(path))

    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"{path}:")


def test_teams_policies_count_too(tmp_path):
    own = team_policy(options=[{"queue": "gpu-lq"}, {"queue": "cpu-lq"}])
    path = tmp_path / "team.yaml"
    path.write_text(yaml.safe_dump(own))
    with serving(Cluster(own), tmp_path) as kubeconfig:
        results = [run("argocd", "-f", str(path)), run("argocd", "--kubeconfig", kubeconfig)]

    for result in results:
        assert result.stdout.startswith("# Made from the policies: research/light\n")
        assert '.metadata.labels["kueue.x-k8s.io/queue-name"]' in result.stdout
