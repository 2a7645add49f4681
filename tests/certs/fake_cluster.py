"""An API server that holds one Secret and one webhook configuration, with versions as the real."""

import base64
import copy
import itertools

from certs.secret import read_certificates
from certs.store import Conflict, Missing

SECRETS = "/api/v1/namespaces/ours/secrets"
SECRET = f"{SECRETS}/kueue-fallback-ca"
CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
CONFIGURATION = f"{CONFIGURATIONS}/kueue-fallback"


class FakeCluster:
    """A transport for ``Store``; also what others do to its two objects."""

    def __init__(self):
        self._versions = itertools.count(1)
        self.objects = {}
        self.calls = []
        self.put_secret()
        self.reset()

    # What a Store asks for.

    def get(self, path):
        self.calls.append(("GET", path))
        if path not in self.objects:
            raise Missing(path)
        return copy.deepcopy(self.objects[path])

    def post(self, path, body):
        self.calls.append(("POST", path))
        target = f"{path}/{body['metadata']['name']}"
        if target in self.objects:
            raise Conflict("already exists")
        return self._store(target, body)

    def put(self, path, body):
        self.calls.append(("PUT", path))
        if path not in self.objects:
            raise Missing(path)
        if body["metadata"]["resourceVersion"] != self.version(path):
            raise Conflict("the object has been modified")
        return self._store(path, body)

    def patch(self, path, operations):
        self.calls.append(("PATCH", path))
        if path not in self.objects:
            raise Missing(path)
        test, *changes = operations
        assert test["path"] == "/metadata/resourceVersion"
        if test["value"] != self.version(path):
            raise Conflict("testing value /metadata/resourceVersion failed")
        changed = copy.deepcopy(self.objects[path])
        for change in changes:
            _, webhooks, number, client, field = change["path"].split("/")
            assert (change["op"], webhooks, client, field) == (
                "add",
                "webhooks",
                "clientConfig",
                "caBundle",
            )
            changed["webhooks"][int(number)]["clientConfig"]["caBundle"] = change["value"]
        return self._store(path, changed)

    # What others do, and what they see.

    def version(self, path):
        return self.objects[path]["metadata"]["resourceVersion"]

    def put_secret(self, data=None, annotations=None):
        metadata = {"name": "kueue-fallback-ca", "labels": {"theirs": "kept"}}
        if annotations:
            metadata["annotations"] = annotations
        source = {"kind": "Secret", "metadata": metadata, "type": "Opaque"}
        self._store(SECRET, source if data is None else {**source, "data": data})

    def corrupt(self, key, text="bm90IFBFTQ=="):
        source = copy.deepcopy(self.objects[SECRET])
        source.setdefault("data", {})[key] = text
        self._store(SECRET, source)

    def ask_for_rotation(self):
        source = copy.deepcopy(self.objects[SECRET])
        source["metadata"].setdefault("annotations", {})["kueue-fallback.dev/rotate"] = "now"
        self._store(SECRET, source)

    def delete_secret(self):
        self.objects.pop(SECRET, None)

    def reset(self):
        """Render the configuration without a caBundle, as a chart does."""
        names = ("create.kueue-fallback.dev", "update.kueue-fallback.dev")
        webhooks = [{"name": name, "clientConfig": {"service": {}}} for name in names]
        self._store(CONFIGURATION, {"metadata": {"name": "kueue-fallback"}, "webhooks": webhooks})

    @property
    def data(self):
        return self.objects.get(SECRET, {}).get("data", {})

    @property
    def annotations(self):
        return self.objects[SECRET]["metadata"].get("annotations", {})

    @property
    def bundles(self):
        """The authorities in the caBundle of each webhook."""
        return bundles_of(self.objects[CONFIGURATION])

    def _store(self, path, source):
        metadata = {**source["metadata"], "resourceVersion": str(next(self._versions))}
        self.objects[path] = {**copy.deepcopy(source), "metadata": metadata}
        return self.objects[path]


def bundles_of(configuration):
    texts = [each["clientConfig"].get("caBundle", "") for each in configuration["webhooks"]]
    return [read_certificates(base64.b64decode(text))[0] for text in texts]
