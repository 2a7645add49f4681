"""For every pod template, adaptation and kind: records know the Job as it was submitted."""

import json
from dataclasses import replace

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests import kinds
from tests.conftest import THOROUGH
from tests.properties.decisions import decided, world
from tests.properties.jobs import adaptations, jobs
from webhook.hindsight import entries
from webhook.hindsight.look_back import submitted_manifest
from webhook.jobs import BY_NAME, reduced
from webhook.kueue import requests
from webhook.model import job_manifest
from webhook.model.decision import Decided
from webhook.model.queues import KueueConfig
from webhook.model.snapshot_parts import ClusterObjects
from webhook.state.snapshot import updated

EXAMPLES = THOROUGH // 5
"""What is the same for batch Jobs is proven with these."""
OTHERS = ("JobSet", "PyTorchJob", "RayJob")
LABELS = {"kueue.x-k8s.io/queue-name": "cpu-lq"}


@st.composite
def of_another_kind(draw):
    light = draw(jobs())["spec"]["template"]
    return kinds.made(draw(st.sampled_from(OTHERS)), light=light, labels=LABELS)


def for_kinds(adaptation):
    """The world of batch Jobs, with a policy and a Kueue for these kinds, too."""
    found = world(adaptation)
    (policy,) = found.snapshot.fallback.policies
    matched = policy.spec.match.model_copy(update={"kinds": OTHERS})
    spec = policy.spec.model_copy(update={"match": matched})
    frameworks = tuple(BY_NAME[kind].framework for kind in OTHERS)
    kueue = KueueConfig(frameworks=frameworks, ignore_undeclared=True)
    policies = (policy.model_copy(update={"spec": spec}),)
    return replace(found, snapshot=updated(found.snapshot, policies=policies, kueue=kueue))


@settings(max_examples=EXAMPLES)
@given(of_another_kind(), adaptations())
def test_what_a_decision_changed_is_undone_in_the_journal(source, adaptation):
    kind = BY_NAME[source["kind"]]
    outcome, admitted = decided(source, for_kinds(adaptation), kind=kind)
    assume(isinstance(outcome, Decided) and outcome.decision.option is not None)

    found = entries.read_finished(kinds.workload_of(admitted))
    assume(found is not None)
    entry = entries.entry(found, None, whole=admitted)

    wanted = job_manifest.spec(kind.read(source), found.job_class)
    assert json.loads(entry.submitted) == json.loads(json.dumps(wanted))
    assert entry.labels == LABELS
    assert (entry.kind, entry.option) == (kind.kind, outcome.decision.option)


@settings(max_examples=EXAMPLES)
@given(of_another_kind())
def test_a_record_of_a_job_asks_for_what_the_job_does(source):
    job = BY_NAME[source["kind"]].read(source)
    manifest = job_manifest.manifest(job, "a-class")

    again = reduced.kind_of(manifest).read(json.loads(json.dumps(manifest)))

    assert requests.needs(again, ClusterObjects(), KueueConfig()) == requests.needs(
        job, ClusterObjects(), KueueConfig()
    )
    assert job_manifest.manifest(again, "a-class") == manifest
    assert (again.kind, again.reference, again.queue) == (job.kind, job.reference, job.queue)


@settings(max_examples=EXAMPLES)
@given(of_another_kind())
def test_a_workload_alone_tells_what_an_undecided_job_asks_for(source):
    found = entries.read_finished(kinds.workload_of(source))
    assume(found is not None)

    manifest = submitted_manifest(entries.entry(found, None))

    again = reduced.kind_of(manifest).read(manifest)
    job = BY_NAME[source["kind"]].read(source)
    assert [need.total for need in requests.needs(again, ClusterObjects(), KueueConfig())] == [
        need.total for need in requests.needs(job, ClusterObjects(), KueueConfig())
    ]
