"""What other admission makes of a decided Job before it is stored, on a real API server."""

import contextlib

import pytest

from hack import paper
from hack.waiting import wait_for
from tests.e2e.decisions import OPTION, applied_policy, decision_of, fill, queue_of
from tests.e2e.plane import container_of

ADMISSION = "admissionregistration.k8s.io/v1"
POOL = "pool"
POD = "object.spec.template.spec"
ASKED = f"{POD}.containers[0].resources"


@pytest.fixture
def client(plane, webhook, queues):
    """A cluster by whose policy light Jobs go to the CPU."""
    with applied_policy(plane.client, paper.policy(queues), queues):
        fill(plane, queues, gpu=14)
        yield plane.client


def patch(operation, path, value):
    return f'[JSONPatch{{op: "{operation}", path: "{path}", value: {value}}}]'


QUEUE_PUT_BACK = (
    f'object.metadata.labels["{paper.QUEUE_LABEL}"] != "gpu-lq"',
    patch("replace", "/metadata/labels/kueue.x-k8s.io~1queue-name", '"gpu-lq"'),
)
GPU_PUT_BACK = (
    f'!has({ASKED}.limits) || !("{paper.GPU}" in {ASKED}.limits)',
    patch(
        "add",
        "/spec/template/spec/containers/0/resources/limits",
        f'{{"{paper.GPU}": "1"}}',
    ),
)
SELECTOR_ADDED = (
    f'object.metadata.labels["{paper.QUEUE_LABEL}"] == "cpu-lq" && !has({POD}.nodeSelector)',
    patch("add", "/spec/template/spec/nodeSelector", f'{{"{POOL}": "gpu"}}'),
)


@contextlib.contextmanager
def mutating(client, namespace, mutation):
    """Have a cluster's own policy change each Job of a namespace, whenever it was changed."""
    condition, changes = mutation
    # Not as its matchConditions: those that did not match at first are not asked again.
    expression = f"{condition} ? {changes} : []"
    rule = {"apiGroups": ["batch"], "apiVersions": ["v1"], "resources": ["jobs"]}
    metadata = {"name": f"put-back-{namespace}"}
    policy = {
        "apiVersion": ADMISSION,
        "kind": "MutatingAdmissionPolicy",
        "metadata": metadata,
        "spec": {
            "reinvocationPolicy": "IfNeeded",
            "failurePolicy": "Fail",
            "matchConstraints": {
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
                "resourceRules": [{**rule, "operations": ["CREATE"]}],
            },
            "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}],
        },
    }
    binding = {**policy, "kind": "MutatingAdmissionPolicyBinding"}
    binding["spec"] = {"policyName": metadata["name"]}
    client.apply_all([policy, binding])
    try:
        yield
    finally:
        for item in (binding, policy):
            client.delete(ADMISSION, item["kind"], metadata["name"])


@pytest.mark.parametrize("mutation", [QUEUE_PUT_BACK, GPU_PUT_BACK], ids=["queue", "gpu"])
def test_what_others_put_back_is_decided_again(client, queues, mutation):
    with mutating(client, queues.namespace, mutation):
        job = changed_since(client, queues)

    assert (queue_of(job), job["metadata"]["labels"][OPTION]) == (queues.cpu_queue, "cpu")
    assert paper.GPU not in container_of(job)["resources"].get("limits", {})
    assert decision_of(job)["option"] == "cpu"


def test_where_the_option_cannot_be_carried_out_nothing_of_it_is_left(client, queues):
    with mutating(client, queues.namespace, SELECTOR_ADDED):
        job = changed_since(client, queues)

    assert (queue_of(job), OPTION in job["metadata"]["labels"]) == (queues.gpu_queue, False)
    asked = container_of(paper.light_job("any", queues))["resources"]
    assert container_of(job)["resources"] == asked
    assert decision_of(job)["leftAlone"] == "changedSince"


def changed_since(client, queues):
    """Create a Job, again and again in a dry run, until other admission changes its decision."""

    def asked():
        return client.create_for_answer(paper.light_job("light", queues), dry_run=True)

    def changed():
        told = " other admission changed "
        return next((a for a in [asked()] if any(told in each for each in a.warnings)), None)

    return wait_for(changed, lambda: f"what was decided is changed: {asked()}").json()
