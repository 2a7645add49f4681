"""For every Job and every adaptation: a journal knows the Job as it was submitted."""

import json

from hypothesis import assume, given

from tests.properties.decisions import KIND, decided, submitted, world
from tests.properties.jobs import adaptations, jobs
from tests.properties.workloads import workload_of
from webhook.hindsight import entries, journal
from webhook.model import job_manifest
from webhook.model.decision import Decided

NOT_ON_A_WORKLOAD = ("activeDeadlineSeconds", "managedBy")


@given(jobs(), adaptations())
def test_what_a_decision_changed_is_undone_in_the_journal(source, adaptation):
    job = submitted(source)
    outcome, admitted = decided(job, world(adaptation))
    assume(isinstance(outcome, Decided) and outcome.decision.option is not None)

    found = entries.read_finished(workload_of(admitted))
    entry = entries.entry(found, entries.metadata_of(admitted))

    wanted = job_manifest.spec(KIND.read(job), found.job_class)
    for key in NOT_ON_A_WORKLOAD:
        wanted.pop(key, None)
    assert json.loads(entry.submitted) == json.loads(json.dumps(wanted))
    assert entry.labels == job_manifest.labels_of(KIND.read(job))
    assert entry.option == outcome.decision.option


@given(jobs())
def test_no_value_that_may_be_secret_is_kept(source):
    job = submitted(source)
    for container in job["spec"]["template"]["spec"]["containers"]:
        container["env"] = [{"name": "TOKEN", "value": "s3cret"}]
        container["args"] = ["--token=s3cret"]
        container["command"] = ["s3cret"]
    job["metadata"]["annotations"] = {"note": "s3cret"}

    entry = entries.entry(entries.read_finished(workload_of(job)), entries.metadata_of(job))

    assert "s3cret" not in repr(entry)
    assert "s3cret" not in json.dumps(job_manifest.manifest(KIND.read(job), "a-class"))


@given(jobs())
def test_the_cluster_that_multikueue_sent_it_to_is_kept(source):
    job = submitted(source)
    sent = {**workload_of(job), "status": {"clusterName": "gpu-east"}}

    entry = entries.entry(entries.read_finished(sent), entries.metadata_of(job))

    assert entry.cluster == "gpu-east"
    assert tuple(journal.read_entries(journal.write_entries([entry]))) == (entry,)
