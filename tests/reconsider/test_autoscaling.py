"""What a HorizontalPodAutoscaler of a service is to be, by the model and the queue's quota."""

import pytest

from tests.builders import cluster_queue, policy, snapshot
from webhook.decide.applicant import Moment
from webhook.jobs import BY_NAME
from webhook.model.job import Pending
from webhook.reconsider.autoscaling import WantedAutoscaler, wanted_autoscaler
from webhook.state.counted_arrivals import idle

OURS = "kueue-fallback.dev/"
SAID = {f"{OURS}request-rate": "120", f"{OURS}target-latency": "200ms"}
SERVING = {"requestsPerSecond": "20", "latency": "80ms"}
MOMENT = Moment(now=0.0, unix=0.0, time="", uid="")


def deployment(said, *, kind="Deployment", requests=None):
    container = {
        "name": "main",
        "image": "chat",
        "resources": {"requests": requests or {"cpu": "2"}},
    }
    template = {"metadata": {}, "spec": {"containers": [container]}}
    spec = {"replicas": 3, "template": template}
    if kind == "LeaderWorkerSet":
        spec = {"replicas": 3, "leaderWorkerTemplate": {"size": 2, "workerTemplate": template}}
    metadata = {"name": "chat", "namespace": "team", "annotations": said}
    return BY_NAME[kind].read({"metadata": metadata, "spec": spec})


def wanted(*, said=SAID, serving=SERVING, cpus="40", option="a", queues=None, **rest):
    kind, requests = rest.pop("kind", "Deployment"), rest.pop("requests", None)
    options = [{"name": "a", "queue": "a-lq"}, {"name": "b", "queue": "b-lq"}]
    options[1] |= {"slowdown": rest.pop("slowdown")} if "slowdown" in rest else {}
    if serving:
        options[0]["serving"] = serving
    rules = policy(
        *options,
        name="serve",
        match={"kinds": [kind], "jobSelector": {}},
        strategy={"type": "Cost"},
        autoscale=rest,
    )
    there = [cluster_queue(f"{name}-cq", {"default": {"cpu": cpus}}) for name in "ab"]
    state = snapshot(*there, local_queues=queues, policies=(rules,))
    pending = Pending(
        uid="u",
        version="1",
        created=0.0,
        job=deployment(said, kind=kind, requests=requests),
        queue="a-lq",
        policy="serve",
        option=option,
    )
    return wanted_autoscaler(pending, rules, idle(state), MOMENT)


def test_the_bounds_are_what_the_rate_needs_and_what_quota_holds():
    found = wanted()

    # 8 replicas hold 120 requests a second (test_service_level); 40 CPUs hold 20 of 2 CPUs. With 8,
    # the latency is held up to 86.9 %, and Kubernetes tolerates a tenth more than the target.
    assert found == WantedAutoscaler(
        name="deployment-chat",
        policy="serve",
        spec={
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "chat"},
            "minReplicas": 8,
            "maxReplicas": 20,
            "metrics": [
                {
                    "type": "Resource",
                    "resource": {
                        "name": "cpu",
                        "target": {"type": "Utilization", "averageUtilization": 78},
                    },
                }
            ],
            "behavior": {
                "scaleUp": {
                    "stabilizationWindowSeconds": 0,
                    "selectPolicy": "Max",
                    "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}],
                },
                "scaleDown": {
                    "stabilizationWindowSeconds": 300,
                    "selectPolicy": "Max",
                    "policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}],
                },
            },
        },
        full="ClusterQueue a-cq",
    )


@pytest.mark.parametrize(
    ("said", "given", "want"),
    [
        ({}, {"minReplicas": 2}, (2, 20, True)),
        ({}, {"minReplicas": 30}, (20, 20, True)),
        ({f"{OURS}max-replicas": "9"}, {}, (8, 9, False)),
        ({f"{OURS}max-replicas": "4"}, {}, (4, 4, False)),
    ],
    ids=["warm", "more warm than quota holds", "most", "fewer than the rate needs"],
)
def test_warm_replicas_and_the_service_itself_bound_it(said, given, want):
    found = wanted(said=SAID | said, **given)

    assert (found.spec["minReplicas"], found.spec["maxReplicas"], bool(found.full)) == want


def test_external_metrics_get_targets_from_the_same_model_for_this_service_alone():
    found = wanted(minReplicas=1, queueLength="queue", latency="p95_seconds")

    def external(name, **target):
        metric = {"name": name, "selector": {"matchLabels": {"deployment": "chat"}}}
        return {"type": "External", "external": {"metric": metric, "target": target}}

    # One replica holds 200 ms up to 5.6175 requests a second: 28.088 % used, and the 95th of 100
    # waits ln(0.28088 / 0.05) / 14.382 = 120 ms. Then it has 5.6175 * (80 ms + 19.5 ms) = 0.559.
    assert found.spec["metrics"] == [
        external("queue", type="AverageValue", averageValue="508m"),
        external("p95_seconds", type="Value", value="181m"),
    ]


def test_what_a_replica_does_may_be_derived_from_another_option():
    # Half as fast as in a: 10 a second and 160 ms; then 15 replicas take 222 ms, and 16 take 195.
    found = wanted(option="b", slowdown=2, cpus="100")

    assert (found.spec["minReplicas"], found.full) == (16, "ClusterQueue b-cq")


def test_a_latency_that_only_an_idle_replica_has_is_not_asked_for():
    found = wanted(serving={**SERVING, "latency": "190ms"}, latency="p95_seconds")

    assert found.spec["metrics"][0]["external"]["target"]["value"] == "190m"


def test_a_replica_of_a_leaderworkerset_takes_the_quota_of_its_whole_group():
    found = wanted(kind="LeaderWorkerSet", latency="p95_seconds")

    assert (found.name, found.spec["maxReplicas"]) == ("leaderworkerset-chat", 10)
    assert found.spec["metrics"][0]["external"]["metric"]["selector"] == {
        "matchLabels": {"leaderworkerset": "chat"}
    }


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (
            {"kind": "StatefulSet"},
            "Kueue lets the replicas of a StatefulSet change only from and to 0",
        ),
        ({"said": {}}, "it says no request-rate and target-latency"),
        ({"serving": None}, "what one replica does in option a is not known"),
        (
            {"serving": {**SERVING, "latency": "300ms"}},
            "no number of replicas holds its target-latency in option a",
        ),
        ({"cpus": "1"}, "the quota of ClusterQueue a-cq holds no replica"),
        (
            {"requests": {"memory": "1Gi"}},
            "its pods request no cpu, and the policy names no metric to follow instead",
        ),
        ({"option": "gone"}, "its policy has no option gone any more"),
        ({"queues": {}}, "LocalQueue a-lq not found in namespace team"),
    ],
    ids=lambda given: next(iter(given)) if isinstance(given, dict) else "",
)
def test_a_service_that_cannot_be_scaled_is_told_why(given, why):
    assert wanted(**given) == why
