"""The HTTP of an embedded API server: from paths and parameters to verbs, and back to JSON."""

import contextlib
import json
import re
import ssl
import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias
from urllib.parse import parse_qsl, urlsplit

import yaml
from cryptography import x509
from cryptography.x509.oid import NameOID

from hack.api import APPLY_PATCH, Object
from hack.embedded import virtual_kinds
from hack.embedded.faults import DRIP_SECONDS, LATE_SECONDS, SILENT_SECONDS, Mood
from hack.embedded.object_store import Change, Record
from hack.embedded.refusals import RefusedCall, bad_request, expired, failed, no_such_path
from hack.embedded.resource_api import ResourceApi, Written
from hack.embedded.selecting import Selection, selection
from hack.embedded.served_kinds import api_version
from hack.embedded.webhook_calls import Place

if TYPE_CHECKING:
    from hack.embedded.api_server import _Server

VERSION: Final = {"major": "1", "minor": "37", "gitVersion": "v1.37.0+embedded"}
WATCH_SECONDS: Final = 1800.0
MOST_PAGED_LISTS: Final = 64
"""Lists of which somebody still reads pages."""
_PATH: Final = re.compile(
    r"/(?:api|apis/(?P<group>[^/]+))/(?P<version>[^/]+)"
    r"(?:/namespaces/(?P<namespace>[^/]+)(?=/))?/(?P<plural>[^/]+)"
    r"(?:/(?P<name>[^/]+)(?:/(?P<subresource>[a-z]+))?)?"
)
_HEALTH: Final = frozenset({"/readyz", "/livez", "/healthz"})
_OK: Final = 200
_CREATED: Final = 201
_ANONYMOUS: Final[Object] = {"username": "system:anonymous", "groups": ["system:unauthenticated"]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What a call is answered with."""

    content: bytes
    status: int = _OK
    kind: str = "application/json"
    warnings: tuple[str, ...] = ()


class PagedLists:
    """What is left of lists that are read page by page, all of the version of the first."""

    def __init__(self) -> None:
        self._left: OrderedDict[str, tuple[Sequence[Record], int]] = OrderedDict()
        self._lock = threading.Lock()

    def keep(self, records: Sequence[Record], version: int) -> str:
        token = uuid.uuid4().hex
        with self._lock:
            self._left[token] = records, version
            if len(self._left) > MOST_PAGED_LISTS:
                self._left.popitem(last=False)
        return token

    def take(self, token: str) -> tuple[Sequence[Record], int]:
        with self._lock:
            if token not in self._left:
                raise expired("The provided continue parameter is too old")
            return self._left[token]


@dataclass(slots=True, kw_only=True)
class _Call:
    """One call, read."""

    method: str
    path: str
    params: Mapping[str, str]
    accept: str
    content_type: str
    manager: str
    user: Object
    body: bytes = field(repr=False)

    def content(self) -> Any:
        try:
            if self.content_type == APPLY_PATCH and not self.body.startswith(b"{"):
                return yaml.safe_load(self.body)
            return json.loads(self.body or b"{}")
        except (ValueError, yaml.YAMLError, RecursionError) as error:
            raise bad_request(f"the object cannot be read: {error}") from error

    @property
    def wants_metadata(self) -> bool:
        return "as=PartialObjectMetadata" in self.accept


Verbs: TypeAlias = "Mapping[str, Callable[[Handler, Place, _Call], Reply]]"


class Handler(BaseHTTPRequestHandler):
    """Carries one connection of a client."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: "_Server"

    def handle(self) -> None:
        # The client is gone, or was never one; or this server is ended.
        with contextlib.suppress(OSError, ValueError):
            super().handle()

    def finish(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            super().finish()

    def respond(self) -> None:
        call = self._read()
        faults = self.server.embedded.faults
        try:
            faults.check(call.method, self.path, call.user["username"])
            if call.method == "GET" and call.params.get("watch") in ("true", "1"):
                self._watch(call)
                return
            reply = self._answer(call)
        except RefusedCall as refused:
            reply = Reply(content=json.dumps(refused.status()).encode(), status=refused.code)
        except (KeyError, TypeError, AttributeError, IndexError) as error:
            # An object of a form that nobody checks here.
            unread = failed(f"{type(error).__name__}: {error}")
            reply = Reply(content=json.dumps(unread.status()).encode(), status=unread.code)
        self._send(reply)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = respond  # noqa: N815 - http.server's names

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    # What is asked.

    def _read(self) -> _Call:
        target = urlsplit(self.path)
        params = dict(parse_qsl(target.query))
        agent = self.headers.get("User-Agent", "unknown").partition("/")[0]
        return _Call(
            method=self.command,
            path=target.path,
            params=params,
            accept=self.headers.get("Accept", ""),
            content_type=self.headers.get("Content-Type", "").partition(";")[0],
            manager=params.get("fieldManager", agent),
            user=self._user(),
            body=self.rfile.read(int(self.headers.get("Content-Length", 0))),
        )

    def _user(self) -> Object:
        named = self.headers.get("Impersonate-User")
        if named:
            groups = self.headers.get_all("Impersonate-Group", [])
            return {"username": named, "groups": [*groups, "system:authenticated"]}
        token = self.headers.get("Authorization", "").partition(" ")[2]
        if token in self.server.embedded.users:
            return self.server.embedded.users[token]
        if isinstance(self.connection, ssl.SSLSocket):
            certificate = self.connection.getpeercert(binary_form=True)
            if certificate:
                return _named_in(x509.load_der_x509_certificate(certificate).subject)
        return _ANONYMOUS

    def _answer(self, call: _Call) -> Reply:
        if call.path in _HEALTH:
            return Reply(content=b"ok", kind="text/plain")
        if call.method == "GET" and (found := self._discovered(call.path)) is not None:
            return _reply(found)
        place = self._place(call)
        if place is None:
            return self._answer_virtual(call)
        verb = (self._VERBS_OF_ONE if place.name else self._VERBS_OF_ALL).get(call.method)
        if verb is None:
            raise RefusedCall(405, "MethodNotAllowed", "the server does not allow this method")
        return verb(self, place, call)

    @property
    def _objects(self) -> ResourceApi:
        return self.server.embedded.objects

    def _place(self, call: _Call) -> Place | None:
        """Return what is stored and asked for; None: it is something else."""
        found = _PATH.fullmatch(call.path)
        if found is None:
            return None
        parts = found.groupdict(default="")
        if parts["plural"] == "status" and parts["namespace"] and not parts["name"]:
            # Of a Namespace itself.
            parts |= {"plural": "namespaces", "name": parts["namespace"]}
            parts |= {"namespace": "", "subresource": "status"}
        kind = self.server.embedded.kinds.find(parts["group"], parts["version"], parts["plural"])
        if kind is None or bool(parts["namespace"]) > kind.is_namespaced:
            return None
        if parts["subresource"] == "status" and not kind.has_status:
            raise no_such_path()
        if parts["subresource"] not in ("", "status", "token"):
            raise no_such_path()
        return Place(
            kind=kind,
            version=parts["version"],
            namespace=parts["namespace"],
            name=parts["name"],
            subresource=parts["subresource"],
            manager=call.manager,
            user=call.user,
            is_dry_run=call.params.get("dryRun") == "All",
        )

    def _discovered(self, path: str) -> Object | None:
        kinds = self.server.embedded.kinds
        groups = {**kinds.groups(), **virtual_kinds.groups()}
        match path.strip("/").split("/"):
            case ["version"]:
                return dict(VERSION)
            case ["api"]:
                return {"kind": "APIVersions", "versions": ["v1"]}
            case ["apis"]:
                named = [_group(name, versions) for name, versions in groups.items() if name]
                return {"kind": "APIGroupList", "apiVersion": "v1", "groups": named}
            case ["apis", group] if group in groups:
                return {"kind": "APIGroup", "apiVersion": "v1", **_group(group, groups[group])}
            case ["api", "v1"]:
                return _resource_list("v1", kinds.resources("", "v1"))
            case ["apis", group, version] if version in groups.get(group, ()):
                resources = [*kinds.resources(group, version), *virtual_kinds.resources(group)]
                return _resource_list(f"{group}/{version}", resources)
            case _:
                return None

    # Verbs.

    def _get(self, place: Place, call: _Call) -> Reply:
        record = self.server.embedded.store.get(place.kind, place.namespace, place.name)
        if call.wants_metadata:
            return _reply(_metadata_only(record))
        return Reply(content=record.text(place.kind, place.version))

    def _list(self, place: Place, call: _Call) -> Reply:
        store, pages = self.server.embedded.store, self.server.embedded.pages
        limit = int(call.params.get("limit", 0))
        records: Sequence[Record]
        if token := call.params.get("continue"):
            records, version = pages.take(token)
        else:
            selected = selection(place.namespace, "", call.params)
            found, version = store.all_of(place.kind, selected.namespace)
            records = list(filter(selected.holds, found))
        metadata = {"resourceVersion": str(version)}
        if limit and len(records) > limit:
            metadata["continue"] = pages.keep(records[limit:], version)
            records = records[:limit]
        if call.wants_metadata:
            head = {"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1"}
            texts = [json.dumps(_metadata_only(record)).encode() for record in records]
        else:
            named = api_version(place.kind.group, place.version)
            head = {"kind": f"{place.kind.kind}List", "apiVersion": named}
            texts = [record.text(place.kind, place.version) for record in records]
        started = json.dumps({**head, "metadata": metadata}).encode()[:-1]
        return Reply(content=b'%s, "items": [%s]}' % (started, b",".join(texts)))

    def _post(self, place: Place, call: _Call) -> Reply:
        item = call.content()
        if place.subresource == "token":
            self.server.embedded.store.get(place.kind, place.namespace, place.name)
            user = virtual_kinds.account(place.namespace, place.name)
            token = self.server.embedded.new_token(user)
            found = virtual_kinds.token_of(place.namespace, place.name, token, item)
            return _reply(found, status=_CREATED)
        if place.name:
            raise no_such_path()
        return _written(self._objects.create(place, item), status=_CREATED)

    def _delete_all(self, place: Place, call: _Call) -> Reply:
        selected = selection(place.namespace, "", call.params)
        for record in self.server.embedded.store.all_of(place.kind, selected.namespace)[0]:
            if selected.holds(record):
                self._objects.delete(_place_of(place, record), call.content())
        return _reply({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"})

    def _answer_virtual(self, call: _Call) -> Reply:
        plural = call.path.rpartition("/")[2]
        if call.method == "POST":
            users = self.server.embedded.users
            found = virtual_kinds.answered(plural, call.content(), call.user, users)
            if found is not None:
                return _reply(found, status=_CREATED)
        raise no_such_path()

    def _put(self, place: Place, call: _Call) -> Reply:
        return _written(self._objects.replace(place, call.content()))

    def _patch(self, place: Place, call: _Call) -> Reply:
        return _written(self._objects.patch(place, call.content(), call.content_type))

    def _delete(self, place: Place, call: _Call) -> Reply:
        return _reply(self._objects.delete(place, call.content()))

    _VERBS_OF_ONE: ClassVar[Verbs] = {
        "GET": _get,
        "POST": _post,
        "PUT": _put,
        "PATCH": _patch,
        "DELETE": _delete,
    }
    _VERBS_OF_ALL: ClassVar[Verbs] = {"GET": _list, "POST": _post, "DELETE": _delete_all}

    # Watches.

    def _watch(self, call: _Call) -> None:
        place = self._place(call)
        if place is None:
            raise no_such_path()
        selected = selection(place.namespace, place.name, call.params)
        after = int(call.params.get("resourceVersion") or 0)
        self._start_chunks()
        try:
            if not after:
                after = self._send_all(place, selected, call)
            self._send_changes(place, selected, call, after)
        except RefusedCall as refused:
            self._send_event("ERROR", json.dumps(refused.status()).encode())
        self._write(b"0\r\n\r\n")

    def _send_all(self, place: Place, selected: Selection, call: _Call) -> int:
        """Show what there is as if it were new; return of which version it is."""
        records, version = self.server.embedded.store.all_of(place.kind, place.namespace)
        for record in filter(selected.holds, records):
            self._send_event("ADDED", _shown(record, place, call))
        return version

    def _send_changes(self, place: Place, selected: Selection, call: _Call, after: int) -> None:
        server = self.server
        dropped = server.embedded.faults.watches_dropped
        until = time.monotonic() + float(call.params.get("timeoutSeconds") or WATCH_SECONDS)
        store = server.embedded.store
        while (left := until - time.monotonic()) > 0 and not server.over.is_set():
            for change in store.wait(place.kind, after, left):
                after = change.version
                if (event := _event(change, selected)) is not None:
                    self._send_event(event, _shown(change.last, place, call))
            if server.embedded.faults.watches_dropped != dropped:
                raise ConnectionAbortedError
        if server.over.is_set():
            raise ConnectionAbortedError
        if call.params.get("allowWatchBookmarks") == "true":
            metadata = {"resourceVersion": str(max(after, store.version))}
            named = api_version(place.kind.group, place.version)
            item = {"kind": place.kind.kind, "apiVersion": named, "metadata": metadata}
            self._send_event("BOOKMARK", json.dumps(item).encode())

    def _send_event(self, kind: str, item: bytes) -> None:
        line = b'{"type": "%s", "object": %s}\n' % (kind.encode(), item)
        self._write(b"%x\r\n%s\r\n" % (len(line), line))

    # How it is answered.

    def _start_chunks(self) -> None:
        self.send_response_only(_OK)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self._end_headers()

    def _send(self, reply: Reply) -> None:
        self.send_response_only(reply.status)
        self.send_header("Content-Type", reply.kind)
        self.send_header("Content-Length", str(len(reply.content)))
        for warning in reply.warnings:
            quoted = warning.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
            self.send_header("Warning", f'299 - "{quoted}"')
        self._end_headers()
        self._write(reply.content)

    def _end_headers(self) -> None:
        faults = self.server.embedded.faults
        if faults.mood is Mood.LATE:
            self.server.over.wait(LATE_SECONDS)
        self._wait_while_silent()
        self.send_header("Date", formatdate(time.time() + faults.clock_seconds, usegmt=True))
        self.end_headers()

    def _write(self, content: bytes) -> None:
        self._wait_while_silent()
        while content and self.server.embedded.faults.mood is Mood.DRIPPING:
            self.wfile.write(content[:1])
            content = content[1:]
            self.server.over.wait(DRIP_SECONDS)
        self.wfile.write(content)

    def _wait_while_silent(self) -> None:
        while self.server.embedded.faults.mood is Mood.SILENT and not self.server.over.is_set():
            self.server.over.wait(SILENT_SECONDS)


def _named_in(subject: x509.Name) -> Object:
    groups = [each.value for each in subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)]
    names = [each.value for each in subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    return {"username": next(iter(names), ""), "groups": [*groups, "system:authenticated"]}


def _reply(item: Object, *, status: int = _OK) -> Reply:
    return Reply(content=json.dumps(item).encode(), status=status)


def _written(written: Written, *, status: int = _OK) -> Reply:
    content = json.dumps(written.item).encode()
    return Reply(content=content, status=status, warnings=written.warnings)


def _place_of(place: Place, record: Record) -> Place:
    return replace(place, namespace=record.namespace, name=record.name)


def _group(name: str, versions: Sequence[str]) -> Object:
    listed = [{"groupVersion": f"{name}/{each}", "version": each} for each in versions]
    return {"name": name, "versions": listed, "preferredVersion": listed[0]}


def _resource_list(group_version: str, resources: Sequence[Object]) -> Object:
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": group_version,
        "resources": list(resources),
    }


def _metadata_only(record: Record) -> Object:
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": record.content()["metadata"],
    }


def _shown(record: Record, place: Place, call: _Call) -> bytes:
    if call.wants_metadata:
        return json.dumps(_metadata_only(record)).encode()
    return record.text(place.kind, place.version)


def _event(change: Change, selected: Selection) -> str | None:
    """Return what a change is for who watches a selection; None: nothing."""
    match selected.holds(change.before), selected.holds(change.after):
        case False, True:
            return "ADDED"
        case True, True:
            return "MODIFIED"
        case True, False:
            return "DELETED"
        case _:
            return None
