"""The journal knows Jobs of every kind as they came."""

import json

import pytest

from tests import kinds
from tests.servers import Server
from webhook.decide import match
from webhook.hindsight import entries, former_journal, journal
from webhook.hindsight.look_back import ran_manifest, submitted_manifest
from webhook.jobs import BY_NAME, reduced
from webhook.kueue import requests
from webhook.model.fields import FieldError
from webhook.model.queues import KueueConfig
from webhook.model.reasons import Skip
from webhook.model.snapshot_parts import ClusterObjects

OTHERS = sorted(kinds.SPECS.keys() - {"Job"})


def decided(kind, **rest):
    """A Job as it is submitted, and as it is created for the free CPU queue."""
    source = kinds.made(kind, **rest)
    after, _ = Server(kinds.snapshot()).create(source, kind=kinds.kind_of_review(source))
    assert after["metadata"]["labels"]["kueue-fallback.dev/option"] == "cpu"
    return source, after


def asks(job):
    return {need.name: need.total for need in requests.needs(job, ClusterObjects(), KueueConfig())}


def entry_of(source, *, whole=None):
    past = entries.read_finished(kinds.workload_of(source))
    return entries.entry(past, entries.metadata_of(source), whole=whole)


@pytest.mark.parametrize("kind", OTHERS)
def test_a_decided_job_is_known_as_it_came_and_as_it_ran(kind):
    source, after = decided(kind)

    entry = entry_of(after, whole=after)

    assert (entry.kind, entry.reference) == (kind, f"{kind.lower()}/train")
    assert (entry.policy, entry.option, entry.queue) == ("light-gpu", "cpu", "cpu-lq")
    came, ran = (
        reduced.kind_of(manifest).read(manifest)
        for manifest in (submitted_manifest(entry), ran_manifest(entry))
    )
    assert (came.kind, came.queue, ran.queue) == (kind, "gpu-lq", "cpu-lq")
    assert asks(came) == asks(BY_NAME[kind].read(source))
    assert asks(ran) == asks(BY_NAME[kind].read(after))
    assert kinds.GPU in json.dumps(entry.submitted)
    assert kinds.GPU not in json.dumps(entry.ran)
    assert tuple(journal.read_entries(journal.write_entries([entry]))) == (entry,)


def test_how_one_came_that_was_changed_is_not_guessed_without_it():
    _, after = decided("RayJob")

    with pytest.raises(FieldError, match="its RayJob is gone"):
        entry_of(after)


def test_the_owner_of_an_unknown_kind_is_replayed_as_what_no_policy_matches():
    workload = kinds.workload_of(kinds.made("RayJob"))
    workload["metadata"]["ownerReferences"][0]["kind"] = "Argo"

    entry = entries.entry(entries.read_finished(workload), None)

    manifest = submitted_manifest(entry)
    job = reduced.kind_of(manifest).read(manifest)
    assert (entry.kind, len(job.pod_sets)) == ("Argo", 3)
    assert match.skip(job, kinds.snapshot()) is Skip.KIND_NOT_MANAGED


def test_an_entry_of_an_older_version_is_one_of_a_batch_job():
    line = '{"k":"w","u":"u","ns":"team","n":"train","q":"gpu-lq","t":[1.0,2,3],"s":"x"}'

    (entry,) = journal.read_entries('{"x":"{}"}\n' + line, former_journal.converted)

    assert (entry.kind, entry.reference) == ("Job", "train")
    assert '"kind"' not in journal.write_one(entry)
