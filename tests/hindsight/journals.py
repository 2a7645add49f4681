"""Journals of what a replay came to, as if it had happened on a cluster."""

import json

from bench.experiment.arms import SCENARIOS
from tests.hindsight.slots import decided
from webhook.commands import manifest
from webhook.decide import match
from webhook.hindsight.journal import SUCCEEDED, JournalEntry
from webhook.hindsight.look_back import LookBackInput
from webhook.jobs import KINDS
from webhook.model import job_manifest
from webhook.model.job import QUEUE_LABEL
from webhook.simulate.replay import replay
from webhook.simulate.scenario_file import read_scenario
from webhook.state.snapshot import updated

KIND = KINDS["batch", "v1", "Job"]
BEGAN = 1_800_000_000
FLAVORS = {"gpu-lq": "gpu", "cpu-lq": "cpu"}
CLUSTER_QUEUES = {"gpu-lq": "gpu-cq", "cpu-lq": "cpu-cq"}


def scenario(name, **parameters):
    path = SCENARIOS / f"{name}.yaml"
    (document,) = manifest.read_documents(path.read_text())
    return read_scenario(
        document.value,
        read_text=lambda file: (path.parent / file).read_text(),
        given=parameters,
    )


def happened(given, strategy):
    (arm,) = given.arms([strategy])
    return replay(given, arm)


def world(given, strategy, *, mode, policies=None):
    """Return the queues with the strategy's policies in a mode, some time later."""
    (arm,) = given.arms([strategy])
    found = [
        each.model_copy(update={"spec": each.spec.model_copy(update={"mode": mode})})
        for each in arm.policies
    ]
    return LookBackInput(
        snapshot=updated(given.snapshot, policies=tuple(found)), now=BEGAN + 100_000.0
    )


def entries(given, result, *, mode=""):
    """Write down what a replay did; times as the API server tells them, in whole seconds."""
    by_name = {each.name: each for each in given.submissions}
    return [_entry(given, by_name[job.name], job, mode) for job in result.jobs]


def _entry(given, submission, job, mode):
    read = KIND.read(given.manifest(submission))
    named = match.named_by(given.policies)
    spec = json.dumps(job_manifest.spec(read, job.template, named), sort_keys=True)
    ran = spec if job.queue == job.submitted else _without_gpu(spec)
    return JournalEntry(
        key=job.name,
        uid=f"job-{job.name}",
        namespace=read.namespace,
        name=job.name,
        created=BEGAN + job.arrival,
        admitted=int(BEGAN + job.start),
        finished=int(BEGAN + job.finish),
        outcome=SUCCEEDED,
        queue=job.queue,
        cluster_queue=CLUSTER_QUEUES[job.queue],
        cluster=job.cluster,
        flavors=FLAVORS[job.queue],
        job_class=job.template,
        coarse=f"~{job.template}",
        submitted=spec,
        ran=ran,
        labels={QUEUE_LABEL: job.submitted, **job_manifest.labels_of(read)},
        used=tuple(job.held.items()),
        decision=decided(policy=job.policy, mode=mode, option=job.option)
        if mode and job.policy
        else None,
    )


def _without_gpu(spec):
    found = json.loads(spec)
    for container in found["template"]["spec"]["containers"]:
        for amounts in container["resources"].values():
            amounts.pop("nvidia.com/gpu", None)
    return json.dumps(found, sort_keys=True)
