"""Pods of a group follow one decision, whichever server is asked; in doubt they are refused."""

import copy
import json
import time
from dataclasses import replace

import pytest

from tests.builders import PAPER_THRESHOLD, policy
from tests.claims_api import Api
from tests.reviews import admitted, light_job, review
from tests.servers import Server, paper_snapshot
from webhook.api.kubernetes_api import Unreachable
from webhook.model.pod_groups import GroupAgreed, GroupClaim, read_claim
from webhook.model.queues import KueueConfig, OffSwitch
from webhook.observer.group_claims import GroupClaims
from webhook.serving.group_agreement import NotAgreedError, PodGroups
from webhook.state.pipe import line_of, read_asked

POD = {"group": "", "version": "v1", "kind": "Pod"}
RESOURCE = {"group": "", "version": "v1", "resource": "pods"}


def snapshot(*, mode="Enforce", pending=10, said=None, **more):
    for_pods = policy(
        match={"kinds": ["Pod"], "jobSelector": {"matchLabels": {"workload-type": "light-gpu"}}},
        threshold=PAPER_THRESHOLD,
        mode=mode,
        **(said or {}),
    )
    kueue = KueueConfig(frameworks=("pod",))
    return replace(paper_snapshot(pending=pending), policies=(for_pods,), kueue=kueue, **more)


class Replica(Server):
    """A server whose observer answers at once."""

    def __init__(self, known, claims, **more):
        super().__init__(known, decides_groups=True, **more)
        self.claims = claims
        self.handler.groups = PodGroups(self.ask, wait_seconds=0.05)

    def ask(self, asked):
        assert read_asked(line_of(asked)) == asked
        self.handler.groups.take((self.claims.answer(asked),))

    def post(self, body):
        return self.client.post("/mutate/pod-groups?timeout=2s", data=body)

    def pod(self, name, **request):
        """Create one of eight pods; returns it as admitted, or why it is refused."""
        source = pod(name)
        sent = review(source, kind=POD, resource=RESOURCE, **request)
        answer = self.post(json.dumps(sent))
        response = answer.get_json()["response"]
        if response["allowed"]:
            return admitted(answer.data, source)
        assert response["status"]["code"] == 503
        assert response["status"]["details"] == {"retryAfterSeconds": 1}
        return response["status"]["message"]


def pod(name, group="g"):
    job = light_job(name)
    metadata = job["metadata"]
    metadata["labels"]["kueue.x-k8s.io/pod-group-name"] = group
    metadata["annotations"] = {"kueue.x-k8s.io/pod-group-total-count": "4"}
    spec = copy.deepcopy(job["spec"]["template"]["spec"])
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def replicas(*known, api=None):
    shared = api or Api()
    claims = GroupClaims(shared, "ours", unix=time.time, keys=lambda: None)
    return [Replica(each, claims) for each in known]


def queues(pods):
    return [each["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] for each in pods]


def test_all_pods_of_a_group_follow_the_first_also_on_replicas_that_would_decide_otherwise():
    first, second = replicas(snapshot(), snapshot(pending=0))

    pods = [first.pod("a"), second.pod("b"), first.pod("c"), second.pod("d")]

    assert queues(pods) == ["cpu-lq"] * 4
    assert all("nvidia.com/gpu" not in json.dumps(each["spec"]) for each in pods)
    reasons = [each["metadata"]["annotations"]["kueue-fallback.dev/reason"] for each in pods]
    assert reasons[0].startswith("kueue-fallback: sent to cpu-lq (cpu): starts now")
    assert set(reasons[1:]) == {"kueue-fallback: goes to cpu-lq (cpu) with its group g"}


def test_a_group_is_judged_and_counted_once_by_all_of_its_pods():
    (server,) = replicas(snapshot())

    server.pod("a")
    server.pod("b")

    assert server.handler.placements() == 1
    (arrival, again) = (each.outcome.arrival for each in server.considered)
    assert (arrival.key, again.key, arrival.count) == ("job:team/pod/g", "job:team/pod/g", 1)
    assert [(need.count, need.per_pod["cpu"]) for need in arrival.needs] == [(4, 4000)]


def test_all_pods_of_a_group_are_warned_as_their_policy_says():
    asked = "kueue-fallback: ask us"

    def warnings(**said):
        (server,) = replicas(snapshot(said=said))
        server.pod("a")
        server.pod("b")
        return [each.outcome.warnings for each in server.considered]

    assert [each[-1] for each in warnings(message="ask us")] == [asked, asked]
    assert warnings(message="ask us", warn=False) == [(), ()]


@pytest.mark.parametrize(
    "known",
    [
        snapshot(mode="Observe"),
        snapshot(off=OffSwitch(namespaces=frozenset())),
        replace(snapshot(), policies=()),
        snapshot(as_of=10.0),
    ],
)
def test_where_the_first_pod_stays_all_stay(known):
    first, second = replicas(known, snapshot())

    pods = [first.pod("a"), second.pod("b")]

    assert queues(pods) == ["gpu-lq"] * 2
    assert [each["spec"] for each in pods] == [pod("a")["spec"]] * 2
    (skipped,) = [each.outcome.skip for each in second.considered]
    assert skipped == "podGroup"


@pytest.mark.parametrize(
    "changed",
    [
        snapshot(mode="Observe"),
        snapshot(off=OffSwitch(namespaces=frozenset())),
        snapshot(as_of=10.0),
    ],
)
def test_a_group_once_begun_goes_on_whatever_is_switched_meanwhile(changed):
    (server,) = replicas(snapshot())
    pods = [server.pod("a")]

    server.show(changed)
    pods.append(server.pod("b"))

    assert queues(pods) == ["cpu-lq"] * 2


def test_a_pod_that_cannot_follow_is_refused_and_told_why():
    (server,) = replicas(snapshot())
    server.pod("a")

    other = snapshot()
    server.show(
        replace(other, policies=(other.policies[0].model_copy(update={"name": "another"}),))
    )

    assert server.pod("b") == (
        "kueue-fallback: the pods of group g go to cpu-lq (cpu), and this one cannot: "
        "policy light-gpu has no such option any more"
    )
    assert server.count("kueue_fallback_reviews_total", operation="CREATE", code="refused") == 1


def test_without_agreement_a_pod_is_refused_and_not_admitted_as_submitted():
    class Down(Api):
        def get(self, path, params=None):
            raise Unreachable("no answer")

    (server,) = replicas(snapshot(), api=Down())

    assert server.pod("a") == "kueue-fallback: no answer"


def test_an_observer_that_does_not_answer_is_not_asked_again_at_once():
    (server,) = replicas(snapshot())
    asked = []
    server.handler.groups = PodGroups(asked.append, wait_seconds=0.01, clock=lambda: 5.0)

    answers = [server.pod("a"), server.pod("b")]

    assert answers == [
        "kueue-fallback: the observer did not answer in time",
        "kueue-fallback: the last question of this kind had no answer in time",
    ]
    assert len(asked) == 1


@pytest.mark.parametrize("body", [b"{}", b"[" * 200_000])
def test_what_cannot_be_read_on_the_path_of_groups_is_no_yes(body):
    (server,) = replicas(snapshot())

    assert server.post(body).status_code == 400


def test_a_pod_that_cannot_be_decided_is_refused_on_the_path_of_groups():
    (server,) = replicas(snapshot())
    source = pod("a")
    source["metadata"]["annotations"]["kueue.x-k8s.io/pod-group-total-count"] = "many"

    answer = server.post(json.dumps(review(source, kind=POD, resource=RESOURCE)))

    response = answer.get_json()["response"]
    assert response["allowed"] is False
    assert response["status"]["message"].endswith("is not known (unreadable)")


def test_a_dry_run_writes_no_claim_and_follows_one():
    api = Api()
    (server,) = replicas(snapshot(), api=api)

    before = server.pod("a", dry_run=True)
    assert (queues([before]), api.data) == (["cpu-lq"], {})

    server.show(snapshot(pending=0))
    assert queues([server.pod("b"), server.pod("c", dry_run=True)]) == ["gpu-lq"] * 2
    assert read_claim(api.data["team.g"]).option == "gpu"


def test_where_groups_are_not_decided_their_pods_are_left_alone():
    server = Server(snapshot())
    sent = review(pod("a"), kind=POD, resource=RESOURCE)

    answer = server.post(json.dumps(sent)).get_json()["response"]

    assert (answer["allowed"], "patch" in answer) == (True, False)
    assert [each.outcome.skip for each in server.considered] == ["podGroup"]


def test_an_answer_that_comes_too_late_serves_the_pod_that_is_sent_again():
    now = [5.0]
    groups = PodGroups(lambda _: None, wait_seconds=0.0, clock=lambda: now[0])
    claim = GroupClaim(option="cpu", unix=1000)
    for group, dry_run in (("g", False), ("dry", True)):
        with pytest.raises(NotAgreedError, match="did not answer in time"):
            groups.agree("team", group, claim, dry_run=dry_run)
        now[0] += 3.0

    groups.take((GroupAgreed(number=1, claim=claim), GroupAgreed(number=2, claim=claim)))

    assert groups.known("team", "g", 1001) == claim
    assert groups.known("team", "dry", 1001) is None


def test_what_is_known_of_a_group_counts_for_half_a_minute():
    now = [100.0]
    claim = GroupClaim(policy="p", option="cpu", queue="cpu-lq", unix=1000)
    groups = PodGroups(
        lambda asked: groups.take((GroupAgreed(number=asked.number, claim=claim),)),
        wait_seconds=1.0,
        clock=lambda: now[0],
    )
    assert groups.agree("team", "g", claim) == claim

    assert groups.known("team", "g", 1029) == claim
    assert groups.known("team", "g", 1031) is None
    assert groups.known("team", "other", 1000) is None
    now[0] = 131.0
    assert groups.known("team", "g", 1001) is None
