from dataclasses import replace

import pytest

from tests.controller.policies import READY, UNSET, ready, snapshot
from tests.model.policies import policy
from webhook.controller import policy_status
from webhook.controller.policy_status import Condition, KnownKinds
from webhook.model.kueue_support import Doubt, KueueTested
from webhook.model.policy.fallback_policy import read_policy
from webhook.model.queues import MULTIKUEUE, AdmissionCheck, ClusterQueue, KueueConfig
from webhook.state.snapshot import Snapshot, updated


def condition(found, *, kinds=None, **state):
    return policy_status.condition_of(
        read_policy(found), snapshot(**state), own_namespace="own", kinds=kinds or KnownKinds()
    )


def not_ready(reason, message):
    return Condition(reason=reason, message=message)


def test_a_policy_whose_queues_exist_is_ready():
    assert condition(policy()) == READY


OWN = {("team", "gpu-lq"): "gpu-cq", ("own", "cpu-lq"): "cpu-cq"}
TWO_KINDS = policy(match={"jobSelector": {}, "kinds": ["Job", "RayJob"]})
NOT_READY = {
    "no queue": (
        condition(policy(), local=OWN),
        "QueueNotFound",
        "spec.options[1].queue: no LocalQueue cpu-lq in any selected namespace",
    ),
    "no namespace": (
        condition(policy(match={"namespaceSelector": {"matchLabels": {"team": "b"}}})),
        "NoNamespace",
        "spec.match.namespaceSelector: no namespace is selected",
    ),
    "no cluster queue behind it": (
        condition(policy(), cluster=("gpu-cq",)),
        "ClusterQueueNotFound",
        "spec.options[1].queue: LocalQueue cpu-lq points to no ClusterQueue that exists: cpu-cq",
    ),
    "no cluster queue": (
        condition(policy(options=[{"clusterQueue": "tpu-cq"}])),
        "ClusterQueueNotFound",
        "spec.options[0].clusterQueue: no ClusterQueue tpu-cq",
    ),
    "no queue of it": (
        condition(policy(options=[{"clusterQueue": "idle-cq"}]), cluster=("idle-cq",)),
        "QueueNotFound",
        (
            "spec.options[0].clusterQueue: no LocalQueue of any selected namespace points to "
            "ClusterQueue idle-cq"
        ),
    ),
    "no class that it gives": (
        condition(policy(options=[{"queue": "gpu-lq", "priorityClass": "high"}])),
        "PriorityClassNotFound",
        "spec.options[0].priorityClass: no WorkloadPriorityClass high",
    ),
    "not served": (
        condition(TWO_KINDS, kinds=KnownKinds(unserved=frozenset({"RayJob"}))),
        "KindNotServed",
        "spec.match.kinds[1]: the cluster serves no rayjobs of ray.io/v1",
    ),
    "not managed": (
        condition(policy(match={"jobSelector": {}, "kinds": ["JobSet"]})),
        "KindNotManaged",
        "spec.match.kinds[0]: Kueue's integration jobset.x-k8s.io/jobset is off",
    ),
    "not switched on": (
        condition(TWO_KINDS, kinds=KnownKinds(switched_on=frozenset({"Job", "JobSet"}))),
        "KindNotSwitchedOn",
        "spec.match.kinds[1]: RayJob is not among the chart's kinds, so no review is sent of any",
    ),
}


@pytest.mark.parametrize(("found", "reason", "message"), NOT_READY.values(), ids=NOT_READY)
def test_what_a_policy_lacks_is_named_with_its_path(found, reason, message):
    assert found == not_ready(reason, message)


def test_a_queue_in_a_system_namespace_counts_only_where_a_selector_selects_it():
    local = {("kube-system", "gpu-lq"): "gpu-cq", ("kube-system", "cpu-lq"): "cpu-cq"}

    assert condition(policy(), local=local).reason == "QueueNotFound"
    assert condition(policy(match={"namespaceSelector": {}}), local=local) == READY


def test_classes_that_do_not_exist_are_named_together():
    options = [
        {
            "queue": "gpu-lq",
            "guests": {"maxJobs": 1, "priorityClass": "low"},
            "adaptation": {"runtimeClassName": "gvisor"},
        }
    ]

    missing = condition(policy(options=options))
    there = condition(
        policy(options=options), priority_classes={"low": 1}, overheads={"gvisor": {}}
    )

    assert missing == not_ready(
        "PriorityClassNotFound",
        "spec.options[0].guests.priorityClass: no WorkloadPriorityClass low; "
        "spec.options[0].adaptation.runtimeClassName: no RuntimeClass gvisor",
    )
    assert (there.ready, missing.ready) == (True, False)


def test_a_ready_policy_says_where_an_undo_needs_the_job_anew():
    pods = {"nodeSelector": {"remove": ["pool"]}}
    options = [{"queue": "gpu-lq"}, {"queue": "cpu-lq", "adaptation": pods}]

    found = condition(policy(options=options))

    assert found == ready(
        "spec.options[1].adaptation: undo needs --recreate where it changes something, as Kueue "
        "takes note of changed resources only"
    )


@pytest.mark.parametrize("option", [{"queue": "far-lq"}, {"clusterQueue": "far-cq"}])
def test_a_queue_of_other_clusters_is_named_too(option):
    local = {("team", "gpu-lq"): "gpu-cq", ("team", "far-lq"): "far-cq"}
    check = AdmissionCheck(controller=MULTIKUEUE)
    queues = {
        "gpu-cq": ClusterQueue(name="gpu-cq"),
        "far-cq": ClusterQueue(name="far-cq", checks=("far",)),
    }
    state = updated(snapshot(local=local), cluster_queues=queues, checks={"far": check})

    found = policy_status.condition_of(
        read_policy(policy(options=[{"queue": "gpu-lq"}, option])), state, own_namespace="own"
    )

    assert found == ready(
        "spec.options[1]: undo needs --recreate for Jobs that it takes or gives away, as "
        "MultiKueue fixes at creation who runs them"
    )


def test_an_older_kubernetes_is_named_where_resources_change():
    assert condition(policy(), kinds=KnownKinds(changes_resources=False)) == ready(
        UNSET,
        "spec.options[1].adaptation: undo needs --recreate on this Kubernetes, which takes "
        "resources at creation only (1.36 does not)",
    )


def test_a_policy_whose_services_nothing_scales_says_so():
    scaled = policy(strategy={"type": "Cost"}, autoscale={})

    assert condition(scaled) == READY
    assert condition(scaled, kinds=KnownKinds(autoscales=False)) == ready(
        UNSET,
        "spec.autoscale: nothing is autoscaled, as controller.autoscale is off in the chart",
    )


def test_a_status_is_written_only_when_it_changes():
    first = policy_status.status_of(READY, Snapshot(), {}, now="2026-01-01T00:00:00Z")

    assert first == {
        "conditions": [
            {
                "type": "Ready",
                "status": "True",
                "observedGeneration": 0,
                "lastTransitionTime": "2026-01-01T00:00:00Z",
                "reason": "Resolved",
                "message": READY.message,
            },
            {
                "type": "KueueTested",
                "status": "True",
                "observedGeneration": 0,
                "lastTransitionTime": "2026-01-01T00:00:00Z",
                "reason": "Tested",
                "message": "Kueue's version, gates and configuration are among those that are "
                "tested",
            },
        ]
    }
    assert policy_status.status_of(READY, Snapshot(), first, now="2026-01-02T00:00:00Z") is None


@pytest.mark.parametrize(
    ("until", "status"),
    [("2026-01-01T00:59:59Z", "False"), ("2026-01-01T01:00:00Z", "True")],
)
def test_jobs_without_a_review_are_said_for_an_hour_whoever_counted_them(until, status):
    missed = replace(READY, unreviewed="3 Jobs created without a review")
    before = policy_status.status_of(missed, Snapshot(), {}, now="2026-01-01T00:00:00Z")

    after = policy_status.status_of(READY, Snapshot(), before, now=until) or before

    conditions = {each["type"]: each for each in after["conditions"]}
    assert set(conditions) == {"Ready", "KueueTested", "Reviewed"}
    assert conditions["Reviewed"]["status"] == status


@pytest.mark.parametrize(
    ("reason", "is_restrained", "status", "message"),
    [
        (
            KueueTested.VERSION_UNTESTED,
            True,
            "False",
            "Kueue 0.20 is untested; policies that enforce only observe",
        ),
        (
            KueueTested.VERSION_UNKNOWN,
            False,
            "Unknown",
            "Kueue 0.20 is untested; they enforce all the same, as the setting untested_kueue says",
        ),
    ],
)
def test_a_kueue_that_is_untested_is_said_beside_ready(reason, is_restrained, status, message):
    doubt = Doubt(reason=reason, message="Kueue 0.20 is untested")
    found = updated(Snapshot(), doubts=(doubt,), is_restrained=is_restrained)
    before = policy_status.status_of(READY, Snapshot(), {}, now="2026-01-01T00:00:00Z")

    written = policy_status.status_of(READY, found, before, now="2026-01-02T00:00:00Z")

    assert written == {
        "conditions": [
            before["conditions"][0],
            {
                "type": "KueueTested",
                "status": status,
                "observedGeneration": 0,
                "lastTransitionTime": "2026-01-02T00:00:00Z",
                "reason": str(reason),
                "message": message,
            },
        ]
    }


def test_the_time_of_the_last_transition_stays_while_only_the_message_changes():
    none = Snapshot()
    before = policy_status.status_of(not_ready("A", "a"), none, {}, now="2026-01-01T00:00:00Z")
    assert before is not None

    same = policy_status.status_of(not_ready("B", "b"), none, before, now="2026-01-02T00:00:00Z")
    turned = policy_status.status_of(READY, none, before, now="2026-01-02T00:00:00Z")

    assert same is not None
    assert turned is not None
    assert same["conditions"][0]["lastTransitionTime"] == "2026-01-01T00:00:00Z"
    assert turned["conditions"][0]["lastTransitionTime"] == "2026-01-02T00:00:00Z"


def test_a_version_of_kubernetes_limits_only_the_kinds_that_it_makes():
    kueue = KueueConfig(frameworks=("batch/job", "ray.io/rayjob"))
    found = {
        kind: condition(
            policy(match={"jobSelector": {}, "kinds": [kind]}),
            kinds=KnownKinds(changes_resources=False),
            kueue=kueue,
        ).message
        for kind in ("Job", "RayJob")
    }

    assert "on this Kubernetes" in found["Job"]
    assert "on this Kubernetes" not in found["RayJob"]


def test_conditions_of_others_are_kept():
    other = {"type": "Audited", "status": "True"}

    before = {"conditions": [other]}
    written = policy_status.status_of(READY, Snapshot(), before, now="2026-01-01T00:00:00Z")

    assert written is not None
    assert written["conditions"][0] == other
