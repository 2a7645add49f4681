"""The ConfigMap with the claims of groups of pods, and pods, as the API server has them."""

import copy

from webhook.api.kubernetes_api import ClusterError

PATH = "/api/v1/namespaces/ours/configmaps/kueue-fallback-pod-groups"


class Conflict(ClusterError):  # noqa: N818 - names a condition
    is_conflict = True


class Api:
    """A ConfigMap and pods, as the API server has them."""

    def __init__(self, *pods, data=None):
        self.pods = list(pods)
        self.data = dict(data or {})
        self.version = 1
        self.listed = 0

    def get(self, path, params=None):
        if path == PATH:
            metadata = {"resourceVersion": str(self.version)}
            return {"metadata": metadata, "data": copy.deepcopy(self.data)}
        self.listed += 1
        assert params["labelSelector"] == "kueue.x-k8s.io/managed=true"
        namespace = path.removeprefix("/api/v1/").removesuffix("pods").strip("/").split("/")[-1]
        items = [pod for pod in self.pods if namespace in ("", pod["metadata"]["namespace"])]
        return {"items": items, "metadata": {}}

    def patch(self, path, body):
        assert path == PATH
        if body["metadata"]["resourceVersion"] != str(self.version):
            raise Conflict
        self.version += 1
        for key, text in body["data"].items():
            if text is None:
                self.data.pop(key, None)
            else:
                self.data[key] = text
        return {}
