"""Admission by webhooks: which of them are called for a write, and what they answer.

They are called over TLS, with the caBundle and the time-out of their configuration. Conditions in
CEL are left out, so that a webhook is called for more than its configuration says.
"""

import base64
import dataclasses
import http
import json
import ssl
import threading
import uuid
from collections.abc import Callable, Iterator
from typing import Final

import urllib3

from hack.api import JSON_PATCH, Object
from hack.embedded.object_store import ObjectStore
from hack.embedded.patching import patched
from hack.embedded.refusals import RefusedCall, failed, forbidden
from hack.embedded.selecting import requirements
from hack.embedded.served_kinds import ServedKind, ServedKinds

MUTATING: Final = "mutatingwebhookconfigurations"
VALIDATING: Final = "validatingwebhookconfigurations"
_REGISTRATION: Final = "admissionregistration.k8s.io"
DEFAULT_SECONDS: Final = 10
HTTPS: Final = 443
CONNECTIONS: Final = 16
"""Kept open to one webhook."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What a call is about, and who calls."""

    kind: ServedKind
    version: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    manager: str = "unknown"
    user: Object = dataclasses.field(default_factory=dict)
    is_dry_run: bool = False


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """What is admitted; *item* and *before* have apiVersion and kind."""

    place: Place
    operation: str
    """CREATE, UPDATE or DELETE."""
    item: Object | None
    before: Object | None

    def review(self) -> Object:
        """Return the request of the AdmissionReview."""
        place = self.place
        of = {"group": place.kind.group, "version": place.version}
        kind = {**of, "kind": place.kind.kind}
        resource = {**of, "resource": place.kind.plural}
        asked: Object = {
            "uid": str(uuid.uuid4()),
            "kind": kind,
            "resource": resource,
            "requestKind": kind,
            "requestResource": resource,
            "name": place.name,
            "namespace": place.namespace,
            "operation": self.operation,
            "userInfo": place.user,
            "object": self.item,
            "oldObject": self.before,
            "dryRun": place.is_dry_run,
            "options": {},
        }
        if place.subresource:
            asked |= {"subResource": place.subresource, "requestSubResource": place.subresource}
        return asked


Played = Callable[[Object], Object | None]
"""A webhook that is played: takes a review's request, and returns a changed object or None."""


class Admission:
    """Calls the webhooks that the store's configurations name."""

    def __init__(self, store: ObjectStore, kinds: ServedKinds) -> None:
        self._store, self._kinds = store, kinds
        self._pools: dict[tuple[str, ...], urllib3.HTTPSConnectionPool] = {}
        self._lock = threading.Lock()
        self.played: dict[str, Played] = {}
        """By the name of the configuration that they would have, which says when they come."""

    def mutate(self, write: Write) -> tuple[Write, list[str]]:
        """Return the write with what all mutating webhooks made of it, and their warnings."""
        warnings: list[str] = []
        left: list[tuple[Object, Object | None]] = []
        for webhook in self._webhooks(MUTATING, write):
            write = self._mutated(webhook, write, warnings)
            left.append((webhook, write.item))
        for webhook, item in left:
            if webhook.get("reinvocationPolicy") == "IfNeeded" and item != write.item:
                write = self._mutated(webhook, write, warnings)
        return write, warnings

    def validate(self, write: Write) -> list[str]:
        """Raise what a validating webhook refuses; return the warnings of all."""
        warnings: list[str] = []
        for webhook in self._webhooks(VALIDATING, write):
            if self._is_for(webhook, write):
                self._answer(webhook, write, warnings)
        return warnings

    def _webhooks(self, plural: str, write: Write) -> Iterator[Object]:
        """Yield the webhooks in order of their configurations' names."""
        if write.place.kind.group == _REGISTRATION:
            return
        kind = self._kinds.find(_REGISTRATION, "v1", plural)
        records = self._store.all_of(kind)[0] if kind else []
        found = {record.name: record.content().get("webhooks") or [] for record in records}
        if plural == MUTATING:
            found |= {name: [{"name": name, "plays": play}] for name, play in self.played.items()}
        for name in sorted(found):
            yield from found[name]

    def _mutated(self, webhook: Object, write: Write, warnings: list[str]) -> Write:
        if "plays" in webhook:
            changed = webhook["plays"](write.review())
            return write if changed is None else dataclasses.replace(write, item=changed)
        if not self._is_for(webhook, write):
            return write
        answer = self._answer(webhook, write, warnings)
        if not (patch := answer.get("patch")):
            return write
        try:
            item = patched(write.item or {}, json.loads(base64.b64decode(patch)), JSON_PATCH)
        except (ValueError, RefusedCall) as error:
            raise failed(f"webhook {webhook['name']!r}: its patch: {error}") from error
        return dataclasses.replace(write, item=item)

    # Which are called.

    def _is_for(self, webhook: Object, write: Write) -> bool:
        if not any(_covers(rule, write) for rule in webhook.get("rules") or ()):
            return False
        items = [item for item in (write.item, write.before) if item is not None]
        of_object = requirements(webhook.get("objectSelector"))
        if not any(of_object(item["metadata"].get("labels") or {}) for item in items):
            return False
        labels = self._labels_of_namespace(write)
        return requirements(webhook.get("namespaceSelector"))(labels)

    def _labels_of_namespace(self, write: Write) -> Object:
        kind = self._kinds.find("", "v1", "namespaces")
        if kind is None or not write.place.namespace:
            return {}
        found = self._store.find(kind, "", write.place.namespace)
        return dict(found.labels) if found else {}

    # The call.

    def _answer(self, webhook: Object, write: Write, warnings: list[str]) -> Object:
        """Return the response; an empty one where none came and the policy is to ignore that."""
        try:
            response = self._call(webhook, write.review())
        except (urllib3.exceptions.HTTPError, OSError, ValueError, LookupError) as error:
            if webhook.get("failurePolicy", "Fail") == "Ignore":
                return {}
            raise failed(
                f'Internal error occurred: failed calling webhook "{webhook["name"]}": {error}'
            ) from error
        warnings.extend(response.get("warnings") or ())
        if response.get("allowed"):
            return response
        status = response.get("status") or {}
        text = f'admission webhook "{webhook["name"]}" denied the request'
        text += f": {status['message']}" if status.get("message") else " without explanation"
        if (code := status.get("code", 0)) and code != forbidden("").code:
            raise RefusedCall(code, status.get("reason", ""), text)
        raise forbidden(text)

    def _call(self, webhook: Object, asked: Object) -> Object:
        seconds = webhook.get("timeoutSeconds") or DEFAULT_SECONDS
        pool, path = self._reached(webhook["clientConfig"])
        review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": asked}
        answer = pool.request(
            "POST",
            f"{path}?timeout={seconds}s",
            body=json.dumps(review).encode(),
            headers={"Content-Type": "application/json", "Accept": "application/json"},
            timeout=urllib3.Timeout(total=seconds),
            retries=False,
        )
        if answer.status != http.HTTPStatus.OK:
            raise ValueError(f"it answered {answer.status}")
        response: Object = json.loads(answer.data)["response"]
        if response["uid"] != asked["uid"]:
            raise ValueError("its answer is to another review")
        return response

    def _reached(self, config: Object) -> tuple[urllib3.HTTPSConnectionPool, str]:
        """Return a pool of connections to a webhook, and its path."""
        bundle = base64.b64decode(config.get("caBundle") or "").decode()
        if (url := config.get("url")) is not None:
            target = urllib3.util.parse_url(url)
            host, port, name = target.host or "", target.port or HTTPS, target.host or ""
            path = target.path or "/"
        else:
            service = config["service"]
            host, port = self._address_of(service)
            name, path = f"{service['name']}.{service['namespace']}.svc", service.get("path", "/")
        key = (host, str(port), name, bundle)
        with self._lock:
            if key not in self._pools:
                context = ssl.create_default_context(cadata=bundle or None)
                self._pools[key] = urllib3.HTTPSConnectionPool(
                    host,
                    port,
                    maxsize=CONNECTIONS,
                    ssl_context=context,
                    server_hostname=name,
                    assert_hostname=name,
                )
            return self._pools[key], path

    def _address_of(self, service: Object) -> tuple[str, int]:
        """Return where a Service of type ExternalName leads; others lead nowhere here."""
        kind = self._kinds.find("", "v1", "services")
        found = kind and self._store.find(kind, service["namespace"], service["name"])
        spec = found.content().get("spec", {}) if found else {}
        if spec.get("type") != "ExternalName":
            raise LookupError(f'service "{service["name"]}" not found')
        return spec["externalName"], service.get("port", HTTPS)


def _covers(rule: Object, write: Write) -> bool:
    resource = "/".join(filter(None, (write.place.kind.plural, write.place.subresource)))
    wanted = (
        ("operations", write.operation),
        ("apiGroups", write.place.kind.group),
        ("apiVersions", write.place.version),
        ("resources", resource),
    )
    for key, value in wanted:
        if not {value, "*"} & set(rule.get(key) or ()):
            return False
    scope = rule.get("scope", "*")
    return scope in ("*", "Namespaced" if write.place.kind.is_namespaced else "Cluster")
