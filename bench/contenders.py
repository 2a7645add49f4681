"""The three that are compared: nothing more, the API server's own policy engine, this webhook.

Each is in place while its `with` block runs: what it needs is there and has its effect, and
nothing of the others is there.
"""

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from hack import bodies, meters, paper
from hack.api import Object
from hack.install import Installation
from hack.kwok import GPU

ADMISSION: Final = "admissionregistration.k8s.io/v1"
PENDING_FROM: Final = 10
POLICY: Final = "bench-threshold"
SETTLED_SECONDS: Final = 2.0
SETTLED_SHARE: Final = 0.1
"""Of one CPU, all processes of the webhook together."""
_CONFIGURATION: Final = (ADMISSION, "MutatingWebhookConfiguration", "kueue-fallback")


class Contenders:
    """What is put in place on one control plane, with its installation of the webhook."""

    def __init__(self, installation: Installation, names: paper.Names) -> None:
        self._installation = installation
        self._plane = installation.plane
        self._names = names
        self._configuration = _without_server_fields(self._plane.client.get(*_CONFIGURATION))
        self._take_webhook_away()

    @property
    def by_name(self) -> Mapping[str, Callable[[], contextlib.AbstractContextManager[None]]]:
        return {
            "nothing more": self.nothing_more,
            "admission policy": self.admission_policy,
            "kueue-fallback": self.webhook,
        }

    @contextlib.contextmanager
    def nothing_more(self) -> Iterator[None]:
        self._wait_until_created_in(self._names.gpu_queue)
        yield

    @contextlib.contextmanager
    def admission_policy(self) -> Iterator[None]:
        items = admission_policy(self._names)
        self._plane.client.apply_all(items)
        self._wait_until_created_in(self._names.cpu_queue)
        try:
            yield
        finally:
            for item in items:
                self._plane.client.delete(ADMISSION, item["kind"], POLICY)

    @contextlib.contextmanager
    def webhook(self) -> Iterator[None]:
        self._installation.start()
        self._plane.start("controller")
        self._plane.client.create(self._configuration)
        self._wait_until_created_in(self._names.cpu_queue)
        self._plane.wait("the webhook's processes to have started", self._is_settled)
        try:
            yield
        finally:
            self._take_webhook_away()

    def _is_settled(self) -> bool:
        """Return whether the webhook's processes do little: a start takes the CPUs of a create."""
        names = ("controller", *(replica.name for replica in self._installation.replicas))

        def used() -> float:
            pids = map(self._plane.processes.pid, names)
            return sum(sum(meters.cpu_seconds(pid).values()) for pid in pids)

        before = used()
        time.sleep(SETTLED_SECONDS)
        return used() - before < SETTLED_SHARE * SETTLED_SECONDS

    def _take_webhook_away(self) -> None:
        self._plane.client.delete(*_CONFIGURATION)
        self._plane.stop("controller")
        self._installation.stop()

    def _wait_until_created_in(self, queue: str) -> None:
        """Wait until a light Job would be created in this queue, with or without its GPU."""
        job = bodies.job(self._names, "probe")

        def is_so() -> bool:
            created = self._plane.client.create(job, dry_run=True)
            has_gpu = GPU in json.dumps(created["spec"]["template"]["spec"]["containers"])
            there: str = created["metadata"]["labels"][paper.QUEUE_LABEL]
            return there == queue and has_gpu == (queue == self._names.gpu_queue)

        self._plane.wait(f"Jobs in {queue}", is_so)


def _without_server_fields(item: Object) -> Object:
    kept = {key: item["metadata"][key] for key in ("name", "labels") if key in item["metadata"]}
    return {**item, "metadata": kept}


def admission_policy(names: paper.Names) -> list[Object]:
    """Make the API server itself apply the threshold rule, on one ClusterQueue's status.

    It does less than a FallbackPolicy: one container, no check that the Job fits, no reason given,
    and counts as old as the status is.
    """
    constraints = {
        "resourceRules": [
            {
                "apiGroups": ["batch"],
                "apiVersions": ["v1"],
                "operations": ["CREATE"],
                "resources": ["jobs"],
            }
        ],
        "objectSelector": {
            "matchLabels": {**paper.LIGHT, paper.QUEUE_LABEL: names.gpu_queue},
        },
    }
    pending = f"params.status.pendingWorkloads >= {PENDING_FROM}"
    expression = f"[{', '.join(_operations(names))}]"
    patch = {"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}
    policy = {
        "failurePolicy": "Ignore",
        "reinvocationPolicy": "IfNeeded",
        "paramKind": {"apiVersion": paper.KUEUE, "kind": "ClusterQueue"},
        "matchConstraints": constraints,
        "matchConditions": [{"name": "long-queue", "expression": pending}],
        "mutations": [patch],
    }
    reference = {"name": names.gpu_cluster_queue, "parameterNotFoundAction": "Deny"}
    binding = {"policyName": POLICY, "paramRef": reference}
    return [
        _object("MutatingAdmissionPolicy", policy),
        _object("MutatingAdmissionPolicyBinding", binding),
    ]


def _operations(names: paper.Names) -> list[str]:
    """List the operations that send a Job to the CPU queue without its GPU, as CEL."""
    container = "/spec/template/spec/containers/0/resources"
    gpu = GPU.replace("/", "~1")
    label = paper.QUEUE_LABEL.replace("/", "~1")
    return [
        f'JSONPatch{{op: "replace", path: "/metadata/labels/{label}", value: "{names.cpu_queue}"}}',
        *(
            f'JSONPatch{{op: "remove", path: "{container}/{section}/{gpu}"}}'
            for section in ("requests", "limits")
        ),
    ]


def _object(kind: str, spec: Object) -> Object:
    return {"apiVersion": ADMISSION, "kind": kind, "metadata": {"name": POLICY}, "spec": spec}
