"""An API server that holds a few objects, with versions and refusals."""

import copy

from webhook.api.kubernetes_api import NotServed, Refused


class Objects:
    """What ``client.Client`` offers, on a dictionary; ``refusal`` answers the next write."""

    def __init__(self):
        self.held = {}
        self.writes = []
        self.reads = []
        self.refusal = None
        self._version = 0

    def get(self, path, params=None):
        self.reads.append(path)
        if params is not None and "fieldSelector" in params:
            name = params["fieldSelector"].removeprefix("metadata.name=")
            found = self.held.get(f"{path}/{name}")
            return {"items": [copy.deepcopy(found)] if found else []}
        if path not in self.held:
            raise NotServed(path)
        return copy.deepcopy(self.held[path])

    def post(self, path, body):
        place = f"{path}/{body['metadata']['name']}"
        self._write("post", place)
        if place in self.held:
            raise Refused(409, "already exists")
        return self._keep(place, body)

    def put(self, path, body):
        return self._change("put", path, body)

    def patch(self, path, body):
        return self._change("patch", path, body)

    def _change(self, how, path, body):
        self._write(how, path)
        if path not in self.held:
            raise NotServed(path)
        version = self.held[path]["metadata"]["resourceVersion"]
        if body["metadata"].get("resourceVersion", version) != version:
            raise Refused(409, "the object has been modified")
        return self._keep(path, body)

    def _write(self, how, place):
        refusal, self.refusal = self.refusal, None
        if refusal:
            raise refusal
        self.writes.append((how, place.rpartition("/")[2]))

    def _keep(self, place, body):
        self._version += 1
        kept = copy.deepcopy(body)
        kept["metadata"]["resourceVersion"] = str(self._version)
        self.held[place] = kept
        return copy.deepcopy(kept)
