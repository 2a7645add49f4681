"""Which Jobs the API server sends: exactly those that the webhook would not skip by themselves."""

import copy
import re
import urllib.request

import pytest

from hack import paper
from hack.api import ApiError
from hack.install import NAMESPACE
from tests import builders
from tests.e2e.decisions import DECISION, applied_policy, fill
from tests.e2e.plane import job_of
from webhook.decide import match
from webhook.jobs import batch
from webhook.model.reasons import Skip

OURS = "kueue-fallback.dev/"
KUEUES = "kueue.x-k8s.io/"
TRIES = 5
THEN = "2026-01-01T00:00:00Z"
KEPT = ("namespace", "labels", "annotations")
REVIEWS = r'_reviews_total\{[^}]*operation="%s"[^}]*\} (\S+)'
# The skips that a Job alone tells and after which it brings no Workload; what else is skipped takes
# a place in a queue, or depends on the state.
TOLD_BY_THE_JOB = {Skip.OWNER_MANAGED, Skip.MULTIKUEUE_ORIGIN, Skip.PREBUILT_WORKLOAD}


def owner(api_version, kind, *, controller=True):
    reference = {"apiVersion": api_version, "kind": kind, "name": "owner", "uid": "4-2"}
    return {"ownerReferences": [{**reference, **({"controller": True} if controller else {})}]}


OWNED = {
    f"owned-by-{kind}": owner(f"{group}/v1", kind)
    for group, kind in sorted(match._MANAGED_OWNERS)  # noqa: SLF001 - the rule itself
}
CASES = {
    **OWNED,
    "plain": {},
    "owned-by-another-group's-JobSet": owner("example.com/v1", "JobSet"),
    "owned-by-a-CronJob": owner("batch/v1", "CronJob"),
    "owned-by-a-core-object": owner("v1", "JobSet"),
    "owned-not-controlled": owner("jobset.x-k8s.io/v1alpha2", "JobSet", controller=False),
    "multikueue-origin": {"labels": {f"{KUEUES}multikueue-origin": "manager"}},
    "multikueue-origin-as-annotation": {"annotations": {f"{KUEUES}multikueue-origin": "x"}},
    "prebuilt-by-label": {"labels": {f"{KUEUES}prebuilt-workload-name": "w"}},
    "prebuilt-by-annotation": {"annotations": {f"{KUEUES}prebuilt-workload-name": "w"}},
    "opted-out": {"annotations": {f"{OURS}policy": "none"}},
    "elastic": {"annotations": {f"{KUEUES}elastic-job": "true"}},
    "other-annotations": {"annotations": {"a": "b"}},
}


@pytest.fixture
def sent(plane, webhook):
    """Count the reviews of one operation that something causes."""

    def count(operation):
        address = f"{webhook.endpoints['metrics']}/metrics"
        with urllib.request.urlopen(address) as answer:
            return sum(map(float, re.findall(REVIEWS % operation, answer.read().decode())))

    def counted(operation, act):
        before = count(operation)
        try:
            act()
        except ApiError as error:
            # Validation comes after all webhooks, so the count is made.
            assert error.status in (403, 422), error  # noqa: PT017 - not what is tested
        return count(operation) - before

    return counted


@pytest.fixture
def job(namespace):
    names = paper.names_with("conditions", namespace=namespace)

    def made(metadata, *, queue=True, **spec):
        one = paper.heavy_job("one", names)
        labels = {**one["metadata"]["labels"], **metadata.get("labels", {})}
        if not queue:
            del labels[paper.QUEUE_LABEL]
        one["metadata"] |= {**metadata, "labels": labels}
        one["spec"] |= spec
        return one

    return made


@pytest.mark.parametrize("metadata", CASES.values(), ids=CASES)
def test_a_new_job_is_sent_unless_it_alone_tells_that_it_is_skipped(plane, sent, job, metadata):
    one = job(metadata)

    reviews = sent("CREATE", lambda: plane.client.create(one, dry_run=True))

    snapshot = builders.snapshot(builders.cluster_queue("cq", {"f": {"cpu": "1"}}), generation=1)
    skipped = match.skip(batch.read_job(one), snapshot) in TOLD_BY_THE_JOB
    assert (reviews > 0) is not skipped


def test_a_job_without_any_label_is_sent(plane, sent, job):
    one = job({}, queue=False)
    del one["metadata"]["labels"]

    assert sent("CREATE", lambda: plane.client.create(one, dry_run=True)) > 0


@pytest.mark.parametrize(
    "spec", [{"suspend": True}, {"managedBy": "example.com/other"}], ids=["suspended", "managedBy"]
)
def test_a_job_that_takes_a_place_in_a_queue_all_the_same_is_sent(plane, sent, job, spec):
    one = job({}, **spec)

    assert sent("CREATE", lambda: plane.client.create(one, dry_run=True)) > 0


@pytest.mark.parametrize("place", ["kube-system", "kueue-system", NAMESPACE])
def test_jobs_of_the_system_and_of_our_own_are_not_sent(plane, sent, job, place):
    one = job({})
    one["metadata"]["namespace"] = place

    assert sent("CREATE", lambda: plane.client.create(one, dry_run=True)) == 0


@pytest.fixture
def decided(plane, webhook, queues):
    """A pending Job with a decision."""
    with applied_policy(plane.client, paper.policy(queues), queues):
        fill(plane, queues, gpu=14, cpu=6)
        made = plane.client.create(paper.light_job("decided", queues))
        assert DECISION in made["metadata"]["annotations"]
        yield made


def change(annotations):
    return {"metadata": {"annotations": {"touched": "yes", **annotations}}}


UPDATES = {
    "as-it-is": ({}, True),
    "decision-taken-off": ({DECISION: None}, False),
    "decision-changed": ({DECISION: '{"version": 1}'}, False),
    "opted-out": ({f"{OURS}policy": "none"}, False),
    "policy-named": ({f"{OURS}policy": "some"}, True),
}


def test_a_changed_job_is_sent_if_it_keeps_its_decision(plane, sent, decided):
    name, namespace = decided["metadata"]["name"], decided["metadata"]["namespace"]
    path = plane.client.path("batch/v1", "Job", namespace=namespace, name=name)

    def patch(annotations):
        plane.client.send(
            "PATCH",
            path,
            change(annotations),
            content_type="application/merge-patch+json",
            query={"dryRun": "All"},
        )

    # Kueue and Kubernetes change Jobs meanwhile, which is counted too: what is sent is always so.
    found = {
        case: all(sent("UPDATE", lambda given=given: patch(given)) > 0 for _ in range(TRIES))
        for case, (given, _) in UPDATES.items()
    }

    assert found == {case: expected for case, (_, expected) in UPDATES.items()}
    assert job_of(plane.client, namespace, name)["metadata"]["annotations"].get("touched") is None


def test_a_changed_job_without_a_decision_is_not_sent(plane, webhook, sent, queues):
    made = plane.client.create(paper.heavy_job("plain", queues, faster=0.05))

    def touch(number):
        changed = copy.deepcopy(job_of(plane.client, queues.namespace, "plain"))
        changed["metadata"].setdefault("annotations", {})["touched"] = f"{number} times"
        changed["metadata"].pop("resourceVersion")
        plane.client.replace(changed)

    assert DECISION not in made["metadata"].get("annotations", {})
    assert 0 in (sent("UPDATE", lambda number=number: touch(number)) for number in range(TRIES))
