"""What the load program sends: Jobs, and reviews of them, with a place for a number. Pure."""

import json
from typing import Any, Final

from hack import paper

Object = dict[str, Any]

NUMBER: Final = "#NUMBER#"
"""The load program puts a number of 12 digits here, another one into each body."""
VARIABLES: Final = 17


def job(names: paper.Names, number: str = NUMBER) -> Object:
    """Return a light Job of the size that Jobs have in practice."""
    made = paper.light_job(f"light-{number}", names)
    container = made["spec"]["template"]["spec"]["containers"][0]
    container["env"] += [{"name": f"VARIABLE_{n}", "value": f"{n}"} for n in range(VARIABLES)]
    return made


def review(names: paper.Names, number: str = NUMBER, *, is_dry_run: bool = False) -> str:
    """Return the review of one light Job, with what the API server and kubectl add to it."""
    sent = job(names, number)
    pod = sent["spec"]["template"]["spec"]
    pod["containers"][0] |= {"imagePullPolicy": "Always", "terminationMessagePolicy": "File"}
    pod |= {"dnsPolicy": "ClusterFirst", "schedulerName": "default-scheduler"}
    sent["spec"] |= {"parallelism": 1, "completions": 1, "completionMode": "NonIndexed"}
    entry = {"manager": "kubectl-create", "operation": "Update", "apiVersion": "batch/v1"}
    sent["metadata"]["managedFields"] = [{**entry, "fieldsV1": _owned(sent["spec"])}]
    called = {
        "uid": f"00000000-0000-4000-8000-{number}",
        "kind": {"group": "batch", "version": "v1", "kind": "Job"},
        "resource": {"group": "batch", "version": "v1", "resource": "jobs"},
        "operation": "CREATE",
        "name": sent["metadata"]["name"],
        "namespace": names.namespace,
        "userInfo": {"username": "bench", "groups": ["system:authenticated"]},
        "object": sent,
        "dryRun": is_dry_run,
    }
    return json.dumps(
        {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": called}
    )


def _owned(value: Object) -> Object:
    return {
        f"f:{name}": _owned(inner) if isinstance(inner, dict) else {}
        for name, inner in value.items()
    }
