"""Reviews as the API server posts them, and answers read back."""

import base64
import copy
import itertools
import json
import uuid

import jsonpatch

_uids = itertools.count(1)


def light_job(name="light", *, namespace="team", **metadata):
    """A Job of one GPU in the GPU queue, with the blocks that the API server fills in."""
    container = {
        "name": "main",
        "image": "stable-diffusion",
        "env": [{"name": "RUN_ENV", "value": "gpu"}],
        "resources": {
            "requests": {"cpu": "4", "memory": "6Gi", "nvidia.com/gpu": "1"},
            "limits": {"nvidia.com/gpu": "1"},
        },
    }
    labels = {"kueue.x-k8s.io/queue-name": "gpu-lq", "workload-type": "light-gpu"}
    named = {"name": name} if name else {"generateName": "light-"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {**named, "namespace": namespace, "labels": labels, **metadata},
        "spec": {
            "parallelism": 1,
            "completions": 1,
            "template": {
                "metadata": {},
                "spec": {"restartPolicy": "Never", "containers": [container]},
            },
        },
    }


def review(job, *, operation="CREATE", old=None, dry_run=False, **request):
    """An AdmissionReview that carries a copy of the Job."""
    found = {
        "uid": str(uuid.UUID(int=next(_uids) << 96)),
        "kind": {"group": "batch", "version": "v1", "kind": "Job"},
        "resource": {"group": "batch", "version": "v1", "resource": "jobs"},
        "operation": operation,
        "namespace": "team",
        "name": job["metadata"].get("name", ""),
        "dryRun": dry_run,
        "userInfo": {"username": "ann"},
        "object": copy.deepcopy(job),
        "oldObject": copy.deepcopy(old),
        **request,
    }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": found}


def admitted(answer, job):
    """Apply the patch of an answer to the Job, as the API server does."""
    response = json.loads(answer)["response"]
    assert response["allowed"] is True
    assert ("patch" in response) == ("patchType" in response)
    operations = json.loads(base64.b64decode(response.get("patch", "W10=")))
    return jsonpatch.apply_patch(copy.deepcopy(job), operations)
