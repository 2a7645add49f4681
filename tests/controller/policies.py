"""Policies as the controller judges them."""

from webhook.controller.policy_status import Condition
from webhook.model.queues import ClusterQueue, LocalQueue
from webhook.state.snapshot import Snapshot, updated

RESOLVED = "all queues and classes that the options name exist"


UNSET = (
    "spec.options[1].adaptation.env.RUN_ENV: undo needs --recreate for Jobs that do not set "
    "RUN_ENV to one value in all their containers"
)


def ready(*limits):
    return Condition(reason="Resolved", message="; ".join([RESOLVED, *limits]))


READY = ready(UNSET)


def snapshot(*, namespaces=None, local=None, cluster=("gpu-cq", "cpu-cq"), **rest):
    local = local or {("team", "gpu-lq"): "gpu-cq", ("team", "cpu-lq"): "cpu-cq"}
    return updated(
        Snapshot(),
        namespaces=namespaces or {"team": {"team": "a"}, "kube-system": {}, "own": {}},
        local_queues={
            key: LocalQueue(namespace=key[0], name=key[1], cluster_queue=target)
            for key, target in local.items()
        },
        cluster_queues={name: ClusterQueue(name=name) for name in cluster},
        **rest,
    )
