"""What a field manager has applied, and repeats when it applies again."""

import json

from webhook.api.managed_fields import applied_by, part_of

STATUS = {
    "conditions": [
        {"type": "QuotaReserved", "status": "True", "message": "ours"},
        {"type": "Evicted", "status": "False", "message": "another's"},
    ],
    "admission": {"clusterQueue": "gpu-cq", "podSetAssignments": [{"name": "main", "count": 2}]},
    "admissionChecks": [{"name": "remote", "state": "Pending", "retryCount": 1}],
    "requeueState": {"count": 1},
    "resourceRequests": [],
    "sets": ["a", "b"],
    "nominatedClusterNames": ["far"],
}


def key(**names):
    return f"k:{json.dumps(names)}"


PATHS = {
    "f:status": {
        "f:admission": {
            "f:clusterQueue": {},
            "f:podSetAssignments": {
                key(name="main"): {".": {}, "f:name": {}, "f:count": {}},
            },
        },
        "f:admissionChecks": {key(name="remote"): {".": {}, "f:name": {}, "f:state": {}}},
        "f:conditions": {
            key(type="QuotaReserved"): {".": {}, "f:type": {}, "f:status": {}},
            key(type="Admitted"): {".": {}, "f:type": {}},
        },
        "f:requeueState": {".": {}},
        "f:resourceRequests": {},
        "f:sets": {".": {}, 'v:"a"': {}},
        "f:gone": {},
    }
}


def test_the_part_that_paths_name_is_what_was_applied():
    assert part_of({"status": STATUS, "spec": {"x": 1}}, PATHS) == {
        "status": {
            "conditions": [{"type": "QuotaReserved", "status": "True"}],
            "admission": STATUS["admission"],
            "admissionChecks": [{"name": "remote", "state": "Pending"}],
            "requeueState": {},
            "resourceRequests": [],
            "sets": ["a"],
        }
    }


def entry(manager="kueue-admission", operation="Apply", **rest):
    return {
        "manager": manager,
        "operation": operation,
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "subresource": "status",
        "time": "2026-11-25T06:00:00Z",
        "fieldsV1": {"f:status": {}},
        **rest,
    }


def test_only_what_was_applied_by_this_manager_in_this_version_counts():
    others = [
        entry("kueue-job-controller"),
        entry(operation="Update"),
        entry(apiVersion="kueue.x-k8s.io/v1beta1"),
        entry(subresource=""),
    ]

    def found(*entries):
        source = {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "metadata": {"managedFields": list(entries)},
        }
        return applied_by("kueue-admission", source, "status")

    assert found(*others) is None
    assert found(*others, entry()) == ({"f:status": {}}, "2026-11-25T06:00:00Z")
