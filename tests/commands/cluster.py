"""A cluster of a few objects in the API server's place, with what its user may not do."""

import fnmatch
from urllib.parse import parse_qs, unquote, urlsplit

KUEUE_VERSIONS = {"versions": [{"version": "v1beta2"}]}


class Cluster:
    """Lists and gets its objects; `forbidden` are patterns of paths, `created` answers creates."""

    def __init__(self, *objects, forbidden=(), created=None, texts=None):
        self.objects, self.forbidden = list(objects), tuple(forbidden)
        self.created, self.texts = created, texts or {}
        self.asked = []

    def __call__(self, method, url, body):
        path = unquote(urlsplit(url).path)
        query = {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
        self.asked.append((method, url, body))
        if any(fnmatch.fnmatch(path, pattern) for pattern in self.forbidden):
            return 403, [], {"message": f"you cannot {method} {path}"}
        if method == "POST":
            return self.created(path, query, body)
        if path in self.texts:
            return self.texts[path]
        if path == "/version":
            return 200, [], {"major": "1", "minor": "36"}
        if path == "/apis/kueue.x-k8s.io":
            return 200, [], KUEUE_VERSIONS
        if path.startswith("/apis/") and path.count("/") == 2:
            return 404, [], {"message": "no such group"}
        return self.read(path, query)

    def read(self, path, query):
        parts = path.strip("/").split("/")
        parts = parts[2:] if parts[0] == "api" else parts[3:]
        namespace = ""
        if parts[0] == "namespaces" and len(parts) > 2:
            namespace, parts = parts[1], parts[2:]
        found = [
            item
            for item in self.objects
            if plural(item) == parts[0]
            and namespace in ("", item["metadata"].get("namespace", ""))
            and is_selected(item, query)
        ]
        if len(parts) == 1:
            return 200, [], {"metadata": {"resourceVersion": "1"}, "items": found}
        named = [item for item in found if item["metadata"]["name"] == parts[1]]
        return (200, [], named[0]) if named else (404, [], {"message": "not found"})


def plural(item):
    kind = item["kind"].lower()
    if kind.endswith("y"):
        return f"{kind[:-1]}ies"
    return f"{kind}es" if kind.endswith("s") else f"{kind}s"


def is_selected(item, query):
    field, label = query.get("fieldSelector", ""), query.get("labelSelector", "")
    if field.startswith("metadata.name=") and item["metadata"]["name"] != field.split("=")[1]:
        return False
    labels = item["metadata"].get("labels") or {}
    for part in filter(None, label.split(",")):
        name, equals, value = part.partition("=")
        if name not in labels or (equals and labels[name] != value):
            return False
    return True
