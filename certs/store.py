"""The Secret of the authority and the caBundle of the webhook configuration: the only I/O here.

Every write is of the version that was read; whoever is second gets a Conflict and reads again.
"""

import base64
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, Protocol

from cryptography import x509

from certs import secret
from certs.plan import Bundle
from certs.secret import State, read_certificates, write_certificates


class StoreError(Exception):
    """Any of the below."""


class Conflict(StoreError):  # noqa: N818 - names a condition of the cluster
    """Somebody else was faster; read again."""


class Missing(StoreError):  # noqa: N818
    """There is no such object."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what

    def __str__(self) -> str:
        return f"{self.what}: not found"


class Unavailable(StoreError):  # noqa: N818
    """No answer, or one that says no: nothing can be done but to ask again later."""

    def __init__(self, detail: str, *, reached: bool = False) -> None:
        super().__init__(detail)
        self.detail = detail
        self.reached = reached
        """The API server did answer."""

    def __str__(self) -> str:
        return self.detail


_OURS = (secret.ROTATE, secret.REVOKE, secret.REVOKED, secret.RETIRED_AT)
"""Annotations that a change of the state writes anew."""
_CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"


class Transport(Protocol):
    """What is needed of ``client.Client``."""

    def get(self, path: str) -> Mapping[str, Any]: ...

    def post(self, path: str, body: object) -> Mapping[str, Any]: ...

    def put(self, path: str, body: object) -> Mapping[str, Any]: ...

    def patch(self, path: str, operations: object) -> Mapping[str, Any]: ...


class Store:
    def __init__(
        self, transport: Transport, *, namespace: str, name: str, configuration: str
    ) -> None:
        self._transport = transport
        self._namespace, self._name = namespace, name
        self._secrets = f"/api/v1/namespaces/{namespace}/secrets"
        self._secret = f"{self._secrets}/{name}"
        self._configuration = f"{_CONFIGURATIONS}/{configuration}"

    def read(self) -> tuple[Bundle, State]:
        """Read caBundle, then the Secret.

        In this order what the Secret says is never older than what was published from it, so that
        a replica that was held up takes nothing away that has been added since.
        """
        published = self._published()
        return published, self._stored()

    def write(self, before: State, state: State) -> None:
        """Write the Secret in the place of what was read *before*; a missing one is made anew."""
        data, annotations = secret.write_state(state)
        if before.source is None:
            self._create(data, annotations)
            return
        metadata = dict(before.source["metadata"])
        others = {
            key: value
            for key, value in (metadata.get("annotations") or {}).items()
            if key not in _OURS
        }
        if state.rotation_asked:
            others[secret.ROTATE] = "asked"
        if state.revocation_asked:
            others[secret.REVOKE] = "asked"
        metadata["annotations"] = {**others, **annotations}
        rest = {k: v for k, v in (before.source.get("data") or {}).items() if k not in secret.KEYS}
        changed = {**before.source, "metadata": metadata, "data": {**rest, **data}}
        self._put(changed)

    def ask(self, before: State, at: datetime, *, revoke: bool = False) -> None:
        """Ask for a rotation, or that all authorities that there are be trusted no more."""
        if before.source is None:
            raise Missing(f"Secret {self._name}")
        metadata = dict(before.source["metadata"])
        what = secret.REVOKE if revoke else secret.ROTATE
        asked = {what: at.isoformat(timespec="seconds")}
        metadata["annotations"] = {**(metadata.get("annotations") or {}), **asked}
        self._put({**before.source, "metadata": metadata})

    def publish(self, published: Bundle, certificates: Iterable[x509.Certificate]) -> None:
        """Write the caBundle of every webhook at once."""
        text = base64.b64encode(write_certificates(certificates)).decode()
        operations = [
            {"op": "test", "path": "/metadata/resourceVersion", "value": published.version},
            *(
                {"op": "add", "path": f"/webhooks/{number}/clientConfig/caBundle", "value": text}
                for number in range(len(published.webhooks))
            ),
        ]
        self._transport.patch(self._configuration, operations)

    def _published(self) -> Bundle:
        try:
            found = self._transport.get(self._configuration)
        except Missing:
            return Bundle(webhooks=())
        webhooks = found.get("webhooks") or ()
        texts = [each.get("clientConfig", {}) for each in webhooks]
        read = [_bundle(each.get("caBundle") or "") for each in texts]
        return Bundle(
            version=str(found["metadata"]["resourceVersion"]),
            webhooks=tuple(certificates for certificates, _ in read),
            clean=all(clean for _, clean in read),
            is_required=any(each.get("failurePolicy") == "Fail" for each in webhooks),
        )

    def _stored(self) -> State:
        try:
            source = self._transport.get(self._secret)
        except Missing:
            return State()
        annotations = source["metadata"].get("annotations") or {}
        read = secret.read_state(source.get("data") or {}, annotations)
        return replace(read, source=source)

    def _create(self, data: Mapping[str, str], annotations: Mapping[str, str]) -> None:
        metadata = {
            "name": self._name,
            "namespace": self._namespace,
            "annotations": dict(annotations),
            "labels": {"app.kubernetes.io/name": "kueue-fallback"},
        }
        kinds = {"apiVersion": "v1", "kind": "Secret", "type": "Opaque"}
        self._transport.post(self._secrets, {**kinds, "metadata": metadata, "data": dict(data)})

    def _put(self, changed: Mapping[str, Any]) -> None:
        try:
            self._transport.put(self._secret, changed)
        except Missing as error:
            raise Conflict("deleted in the meantime") from error


def _bundle(text: str) -> tuple[tuple[x509.Certificate, ...], bool]:
    try:
        return read_certificates(base64.b64decode(text, validate=True))
    except ValueError:
        return (), False
