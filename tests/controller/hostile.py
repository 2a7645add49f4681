"""Jobs that were made to do harm."""

DECIDED = {"version": 1, "id": "d-1", "time": "2026-11-21T06:00:00Z", "policy": "p", "option": "o"}


def job(**annotations):
    metadata = {
        "name": "train",
        "namespace": "team",
        "uid": "j-1",
        "resourceVersion": "1",
        "creationTimestamp": "2027-01-15T07:58:20Z",
        "labels": {"kueue.x-k8s.io/queue-name": "gpu-lq"},
        "annotations": annotations,
    }
    container = {"name": "main", "image": "x", "resources": {"requests": {"cpu": "1"}}}
    spec = {"suspend": True, "template": {"spec": {"containers": [container]}}}
    return {"metadata": metadata, "spec": spec}
