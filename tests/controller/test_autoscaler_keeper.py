"""The leader keeps a HorizontalPodAutoscaler for each service whose policy wants one."""

import copy
import json

import pytest

from tests.builders import cluster_queue, policy, snapshot
from tests.controller.stepping import at
from webhook.api.kubernetes_api import Forbidden, NotServed, Refused
from webhook.api.watch import WatchUpdate
from webhook.controller.autoscaler_keeper import (
    ANEW_SECONDS,
    AUTOSCALERS,
    STEP_SECONDS,
    AutoscalerKeeper,
)
from webhook.controller.followed_watches import followed
from webhook.jobs.services import DEPLOYMENT
from webhook.model.policy.fallback_policy import Mode
from webhook.state.snapshot import updated

OURS = "kueue-fallback.dev/"
HPAS = "/apis/autoscaling/v2/namespaces/team/horizontalpodautoscalers"
WATCHED = followed(DEPLOYMENT)
FULL = "it would have more than 20 replicas, and the quota of ClusterQueue a-cq holds no more"
SHORT = {"type": "ScalingLimited", "status": "True", "reason": "TooManyReplicas"}


def rules(*, mode="Enforce", autoscale=True, **scaled):
    serving = {"requestsPerSecond": "20", "latency": "80ms"}
    return policy(
        {"name": "a", "queue": "a-lq", "serving": serving},
        {"name": "b", "queue": "b-lq"},
        name="serve",
        mode=mode,
        match={"kinds": ["Deployment"], "jobSelector": {}},
        strategy={"type": "Cost"},
        **({"autoscale": {"latency": "p95", **scaled}} if autoscale else {}),
    )


def service(name="chat", *, uid="u", **rest):
    """A Deployment as the API server has it, decided by the policy; *rest* is of its decision."""
    decision = {
        "version": 1,
        "id": "id",
        "time": "2026-11-21T05:58:00Z",
        "policy": "serve",
        "mode": "Enforce",
        "option": "a",
        "reason": "cheapest",
        "from": {"queue": "a-lq"},
        "original": {},
        "options": [],
        **rest,
    }
    said = {f"{OURS}request-rate": "120", f"{OURS}target-latency": "200ms"}
    container = {"name": "main", "image": "chat", "resources": {"requests": {"cpu": "2"}}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": name,
            "namespace": "team",
            "uid": uid,
            "generation": 1,
            "creationTimestamp": "2026-11-21T05:58:00Z",
            "labels": {"kueue.x-k8s.io/queue-name": "a-lq"},
            "annotations": {**said, f"{OURS}decision": json.dumps(decision)},
        },
        "spec": {"replicas": 3, "template": {"spec": {"containers": [container]}}},
    }


def foreign(name="by-hand", target="chat"):
    reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": target}
    return {
        "metadata": {"name": name, "namespace": "team"},
        "spec": {"scaleTargetRef": reference, "maxReplicas": 5},
    }


class Cluster:
    """An API server with Deployments and autoscalers, and the part that keeps these."""

    def __init__(self, *services, autoscalers=(), leads=True, listed=True):
        self.services = {each["metadata"]["name"]: each for each in services}
        self.autoscalers = {each["metadata"]["name"]: each for each in autoscalers}
        self.leads, self.refuses, self.now = leads, None, 0.0
        self.fetched, self.written, self.events, self.version = [], [], [], 0
        self.rules, self.queues = rules(), {}
        self.keeper = AutoscalerKeeper(
            self,
            self.fetch,
            max_state_age=15.0,
            is_leader=lambda: self.leads,
            keys=lambda: None,
            kinds={"deployments": DEPLOYMENT},
        )
        if listed:
            self.tell_services()
        self.tell()

    def fetch(self, namespace, reference):
        assert namespace == "team"
        self.fetched.append(reference)
        return self.services.get(reference.removeprefix("deployment/"))

    def post(self, path, body):
        if path.endswith("/events"):
            self.events.append((body["reason"], body["message"], body["involvedObject"]["name"]))
            return body
        assert path == HPAS
        return self.keep("made", body)

    def patch(self, path, body):
        return self.keep("changed", body)

    def delete(self, path, options):
        name = path.removeprefix(f"{HPAS}/")
        kept = self.autoscalers[name]["metadata"]
        wanted = {"uid": kept["uid"], "resourceVersion": kept["resourceVersion"]}
        assert options == {"preconditions": wanted}
        self.refuse()
        self.written.append(("removed", name))
        return self.autoscalers.pop(name)

    def keep(self, how, body):
        self.refuse()
        name = body["metadata"]["name"]
        self.written.append((how, name))
        self.version += 1
        kept = copy.deepcopy(body)
        kept["metadata"] |= {"uid": f"uid-{name}", "resourceVersion": str(self.version)}
        # As the API server fills in.
        kept["spec"]["behavior"]["scaleUp"]["tolerance"] = None
        self.autoscalers[name] = kept
        return copy.deepcopy(kept)

    def refuse(self):
        refusal, self.refuses = self.refuses, None
        if refusal is not None:
            raise refusal

    def tell_services(self):
        entries = [
            WATCHED.read("deployments", {"metadata": each["metadata"]})
            for each in self.services.values()
        ]
        update = WatchUpdate(kind="deployments", at=0.0, entries=tuple(entries))
        self.keeper.take_services(update)

    def tell(self):
        entries = [AUTOSCALERS.read(AUTOSCALERS.kind, each) for each in self.autoscalers.values()]
        self.keeper.take(WatchUpdate(kind=AUTOSCALERS.kind, at=0.0, entries=tuple(entries)))

    def step(self, *, after=STEP_SECONDS, cpus="40", age=0.0):
        self.now += after
        if cpus not in self.queues:
            self.queues[cpus] = snapshot(cluster_queue("a-cq", {"default": {"cpu": cpus}}))
        rules = (self.rules,) if self.rules else ()
        state = updated(self.queues[cpus], policies=rules, as_of=self.now - age)
        return list(self.keeper.step(at(self.now, snapshot=state)))

    def bounds(self):
        return {
            name: (kept["spec"]["minReplicas"], kept["spec"]["maxReplicas"])
            for name, kept in self.autoscalers.items()
        }


def test_an_autoscaler_is_made_that_goes_with_its_service():
    cluster = Cluster(service())

    lines = cluster.step()

    assert lines == ["HorizontalPodAutoscaler team/deployment-chat: made: 8 to 20 replicas"]
    (made,) = cluster.autoscalers.values()
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "chat"}
    assert made["metadata"] == {
        "name": "deployment-chat",
        "namespace": "team",
        "labels": {"app.kubernetes.io/managed-by": "kueue-fallback"},
        "annotations": {f"{OURS}autoscaled-by": "serve"},
        "ownerReferences": [{**owner, "uid": "u", "controller": True}],
        "uid": "uid-deployment-chat",
        "resourceVersion": "1",
    }
    assert cluster.bounds() == {"deployment-chat": (8, 20)}
    assert cluster.events == []


def test_one_that_is_as_it_should_be_is_left_alone_and_its_service_seldom_read():
    cluster = Cluster(service())
    cluster.step()

    cluster.tell()
    cluster.step()
    cluster.step()
    read = len(cluster.fetched)
    cluster.step(after=ANEW_SECONDS)

    assert cluster.written == [("made", "deployment-chat")]
    assert (read, len(cluster.fetched)) == (1, 2)


def test_it_follows_the_policy_the_service_the_queue_and_who_changes_it():
    cluster = Cluster(service())
    cluster.step()
    seen = []

    cluster.rules = rules(minReplicas=2)
    cluster.step()
    seen.append(cluster.bounds()["deployment-chat"])
    cluster.services["chat"]["metadata"]["annotations"][f"{OURS}max-replicas"] = "6"
    cluster.tell_services()
    cluster.step()
    seen.append(cluster.bounds()["deployment-chat"])
    cluster.step(cpus="8")
    seen.append(cluster.bounds()["deployment-chat"])
    cluster.autoscalers["deployment-chat"]["spec"]["maxReplicas"] = 99
    cluster.tell()
    cluster.step(cpus="8")
    seen.append(cluster.bounds()["deployment-chat"])

    assert seen == [(2, 20), (2, 6), (2, 4), (2, 4)]
    assert [how for how, _ in cluster.written] == ["made", *["changed"] * 4]


@pytest.mark.parametrize(
    "change",
    [
        lambda cluster: setattr(cluster, "rules", rules(autoscale=False)),
        lambda cluster: setattr(cluster, "rules", None),
        lambda cluster: setattr(cluster, "rules", rules(mode="Observe")),
        lambda cluster: cluster.services["chat"]["metadata"]["annotations"].pop(f"{OURS}decision"),
        lambda cluster: cluster.services.pop("chat"),
    ],
    ids=["says it no more", "no policy", "observes", "undone", "no service"],
)
def test_it_is_removed_when_nobody_wants_it_any_more(change):
    cluster = Cluster(service())
    cluster.step()

    change(cluster)
    cluster.tell_services()
    lines = cluster.step()

    removed = "HorizontalPodAutoscaler team/deployment-chat: removed: no policy wants it any more"
    assert lines == [removed]
    assert cluster.autoscalers == {}


def test_beside_somebody_elses_there_is_none_of_ours():
    cluster = Cluster(service(), autoscalers=[foreign()])

    lines = cluster.step()
    again = cluster.step()

    why = "HorizontalPodAutoscaler by-hand scales it already, and two would fight"
    assert (lines, again) == ([f"Job team/deployment/chat: NotAutoscaled: {why}"], [])
    assert cluster.events == [("NotAutoscaled", why, "chat")]
    assert cluster.written == []


def test_ours_gives_way_to_one_that_comes_later_and_returns_when_it_goes():
    cluster = Cluster(service())
    cluster.step()

    cluster.autoscalers["by-hand"] = foreign()
    cluster.tell()
    cluster.step()
    others = set(cluster.autoscalers)
    del cluster.autoscalers["by-hand"]
    cluster.tell()
    cluster.step()

    assert others == {"by-hand"}
    assert cluster.bounds() == {"deployment-chat": (8, 20)}


def test_one_of_another_service_that_has_the_name_is_not_touched():
    cluster = Cluster(service(), autoscalers=[foreign("deployment-chat", target="other")])

    lines = cluster.step()

    why = "HorizontalPodAutoscaler deployment-chat scales something else"
    assert lines == [f"Job team/deployment/chat: NotAutoscaled: {why}"]
    assert cluster.written == []


def test_growth_that_quota_ends_is_told_once_until_it_is_over():
    cluster = Cluster(service())
    cluster.step()

    # The last is of fewer replicas than it may have by now.
    for conditions, desired in (
        ([SHORT], 20),
        ([SHORT], 20),
        ([], 20),
        ([SHORT], 20),
        ([SHORT], 5),
    ):
        status = {"conditions": conditions, "desiredReplicas": desired}
        cluster.autoscalers["deployment-chat"]["status"] = status
        cluster.tell()
        cluster.step()

    assert cluster.events == [("AtQuota", FULL, "chat")] * 2


def test_what_cannot_be_scaled_is_told_and_what_there_is_stays():
    cluster = Cluster(service())
    cluster.step()
    cluster.services["chat"]["metadata"]["annotations"].pop(f"{OURS}request-rate")
    cluster.services["chat"]["metadata"]["annotations"].pop(f"{OURS}target-latency")

    cluster.tell_services()
    lines = cluster.step()

    why = "it says no request-rate and target-latency"
    assert lines == [f"Job team/deployment/chat: NotAutoscaled: {why}"]
    assert cluster.bounds() == {"deployment-chat": (8, 20)}


@pytest.mark.parametrize("given", [{"mode": Mode.OBSERVE}, {"option": None}, {"policy": "other"}])
def test_a_service_that_the_policy_has_sent_nowhere_is_left_alone(given):
    cluster = Cluster(service(**given))

    assert cluster.step() == []
    assert cluster.written == []


def test_who_does_not_lead_or_knows_too_little_writes_nothing():
    for rest, age in (({"leads": False}, 0.0), ({}, 16.0), ({"listed": False}, 0.0)):
        ours = foreign("deployment-gone", target="gone")
        ours["metadata"]["annotations"] = {f"{OURS}autoscaled-by": "serve"}
        cluster = Cluster(service(), autoscalers=[ours], **rest)

        assert cluster.step(age=age) == []
        assert cluster.written == []


@pytest.mark.parametrize(
    ("refusal", "lines"),
    [
        (Refused(409, "changed"), []),
        (Forbidden("horizontalpodautoscalers", "no"), ["autoscalers: no"]),
    ],
    ids=["meanwhile", "forbidden"],
)
def test_a_write_that_fails_is_tried_again(refusal, lines):
    cluster = Cluster(service())
    cluster.refuses = refusal

    first = cluster.step()
    cluster.step()

    assert first == lines
    assert cluster.bounds() == {"deployment-chat": (8, 20)}


@pytest.mark.parametrize(
    "refusal", [Refused(409, "changed"), NotServed(HPAS)], ids=["changed", "gone"]
)
def test_one_that_changed_before_it_was_removed_is_looked_at_again(refusal):
    cluster = Cluster(service())
    cluster.step()
    cluster.rules, cluster.refuses = None, refusal

    cluster.step()
    cluster.tell()
    cluster.step()

    assert cluster.autoscalers == {}


def test_what_may_not_be_read_any_more_is_not_written_either():
    cluster = Cluster(service())
    denied = WatchUpdate(kind=AUTOSCALERS.kind, at=0.0, error="no right", unreadable=True)

    lines = cluster.keeper.take(denied), cluster.keeper.take(denied)

    assert lines == (("autoscalers: no right",), ())
    assert cluster.step() == []
    assert cluster.written == []
