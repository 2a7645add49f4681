"""What the API server does with an object on its way into the store: the verbs, without HTTP."""

import contextlib
import copy
import dataclasses
import random
import string
import threading
import uuid
from collections.abc import Callable
from typing import Any, Final, TypeVar

from hack.api import APPLY_PATCH, Object
from hack.embedded import object_rules
from hack.embedded.object_store import ObjectStore, Record, now
from hack.embedded.patching import applied, created_by, patched, updated_by
from hack.embedded.refusals import (
    RefusedCall,
    already_exists,
    bad_request,
    conflict,
)
from hack.embedded.served_kinds import ServedKind, ServedKinds, api_version
from hack.embedded.webhook_calls import Admission, Place, Write

ATTEMPTS: Final = 5
"""At a patch, while others write the same object."""
NAME_LENGTH: Final = 5
LETTERS: Final = string.ascii_lowercase + string.digits
DEFINITIONS: Final = "customresourcedefinitions"
COLLECTOR: Final = {"username": "system:serviceaccount:kube-system:generic-garbage-collector"}
Change = Callable[[Object], Object]
_Result = TypeVar("_Result")
_KEPT: Final = ("uid", "creationTimestamp", "deletionTimestamp", "generation", "name", "namespace")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The object as it is now, and what webhooks warned of."""

    item: Object
    warnings: tuple[str, ...] = ()


class ResourceApi:
    """Creates, changes and deletes objects of a store as Kubernetes does."""

    def __init__(self, store: ObjectStore, kinds: ServedKinds, admission: Admission) -> None:
        self._store, self._kinds, self._admission = store, kinds, admission

    def create(self, place: Place, item: Object, *, operation: str = "Update") -> Written:
        """Create an object; *operation*: of its managedFields."""
        if place.kind.is_namespaced:
            self._check_namespace(place.namespace)
        item = _placed(place, item)
        item["metadata"]["managedFields"] = created_by(
            item, manager=place.manager, operation=operation, at=now()
        )
        object_rules.begin(place.kind, place.version, item)
        write, warnings = self._admission.mutate(_write(place, "CREATE", item, None))
        item = _placed(place, write.item or item)
        _identify(item["metadata"])
        object_rules.prepare(place.kind, item)
        object_rules.check(place.kind, item, None)
        warnings += self._admission.validate(_write(place, "CREATE", item, None))
        if place.is_dry_run:
            if self._store.find(place.kind, place.namespace, item["metadata"]["name"]):
                raise already_exists(place.kind, item["metadata"]["name"])
            return Written(item=item, warnings=tuple(warnings))
        record = self._store.create(place.kind, item)
        self._take_up(place.kind, item)
        return Written(item=record.item(place.kind, place.version), warnings=tuple(warnings))

    def _check_namespace(self, namespace: str) -> None:
        kind = self._kinds.find("", "v1", "namespaces")
        if kind is not None:
            self._store.get(kind, "", namespace)

    def replace(self, place: Place, item: Object) -> Written:
        wanted = str(item.get("metadata", {}).get("resourceVersion") or "")
        return self._update(place, lambda _: item, version=wanted)

    def patch(self, place: Place, patch: Any, content_type: str) -> Written:
        metadata = patch.get("metadata") if isinstance(patch, dict) else None
        wanted = str((metadata or {}).get("resourceVersion") or "")
        if content_type != APPLY_PATCH:
            return self._update(
                place, lambda item: patched(item, patch, content_type), version=wanted
            )
        if not isinstance(patch, dict):
            raise bad_request("an applied configuration is an object")
        is_new = self._store.find(place.kind, place.namespace, place.name) is None
        if is_new and not place.subresource:
            metadata = {**patch.get("metadata", {}), "name": place.name}
            try:
                return self.create(place, {**patch, "metadata": metadata}, operation="Apply")
            except RefusedCall as refused:
                if refused.reason != "AlreadyExists":
                    raise
        return self._update(
            place,
            lambda item: applied(
                item, patch, manager=place.manager, subresource=place.subresource, at=now()
            ),
            version=wanted,
            tracks=False,
        )

    def delete(self, place: Place, options: Object) -> Object:
        """Delete an object, or mark it where somebody has to finish first; return it."""

        def attempt() -> Object:
            record = self._store.get(place.kind, place.namespace, place.name)
            before = record.item(place.kind, place.version)
            _check_preconditions(place, before, options.get("preconditions") or {})
            self._admission.validate(_write(place, "DELETE", None, before))
            return before if place.is_dry_run else self._delete(place.kind, record, options)

        return _again(attempt, ATTEMPTS)

    # Change.

    def _update(
        self, place: Place, change: Change, *, version: str, tracks: bool = True
    ) -> Written:
        """Write what *change* makes of the object; again where it was written meanwhile.

        With a *version* only of that one. *tracks*: note who has changed what.
        """

        def attempt() -> Written:
            record = self._store.get(place.kind, place.namespace, place.name)
            if version not in ("", str(record.version)):
                raise conflict(place.kind, place.name)
            return self._write_changed(place, record, change, tracks=tracks)

        return _again(attempt, 1 if version else ATTEMPTS)

    def _write_changed(
        self, place: Place, record: Record, change: Change, *, tracks: bool
    ) -> Written:
        before = record.item(place.kind, place.version)
        changed = change(copy.deepcopy(before))
        if changed["metadata"].get("uid") not in (None, before["metadata"].get("uid")):
            raise conflict(place.kind, place.name, "Precondition failed: UID in precondition")
        item = _merged(place, before, _placed(place, changed))
        if tracks:
            item["metadata"]["managedFields"] = updated_by(
                before, item, manager=place.manager, subresource=place.subresource, at=now()
            )
        if not place.subresource:
            object_rules.fill_in(place.kind, place.version, item)
        write, warnings = self._admission.mutate(_write(place, "UPDATE", item, before))
        item = _merged(place, before, _placed(place, write.item or item))
        object_rules.check(place.kind, item, before)
        warnings += self._admission.validate(dataclasses.replace(write, item=item))
        if not place.is_dry_run and item != before:
            record = self._store.update(place.kind, item, version=record.version)
            if item["metadata"].get("deletionTimestamp") and not item["metadata"].get("finalizers"):
                return Written(item=self._remove(place.kind, record), warnings=tuple(warnings))
            self._take_up(place.kind, item)
            item = record.item(place.kind, place.version)
        return Written(item=item, warnings=tuple(warnings))

    def _take_up(self, kind: ServedKind, item: Object) -> None:
        """Do what follows from an object: a definition's kind is served."""
        if kind.plural != DEFINITIONS:
            return
        self._kinds.define(item)
        record = self._store.get(kind, "", item["metadata"]["name"])
        changed = record.content()
        if "status" not in changed:
            status = object_rules.established(changed["spec"])
            self._store.put(kind, {**changed, "status": status})

    # Deletion.

    def _delete(self, kind: ServedKind, record: Record, options: Object) -> Object:
        item = record.content()
        if not item["metadata"].get("finalizers"):
            orphans = options.get("propagationPolicy") == "Orphan"
            return self._remove(kind, record, orphans=orphans)
        if not item["metadata"].get("deletionTimestamp"):
            item["metadata"] |= {"deletionTimestamp": now(), "deletionGracePeriodSeconds": 0}
            record = self._store.update(kind, item, version=record.version)
        return record.item(kind, kind.versions[0])

    def _remove(self, kind: ServedKind, record: Record, *, orphans: bool = False) -> Object:
        last = self._store.remove(kind, record.namespace, record.name, version=record.version)
        item = last.item(kind, kind.versions[0])
        if not orphans:
            # As the garbage collector does, in the background.
            threading.Thread(target=self._collect, args=(kind, item), daemon=True).start()
        return item

    def _collect(self, kind: ServedKind, owner: Object) -> None:
        """Delete what the owner owned; of a namespace and of a definition all that is theirs."""
        if kind.plural == DEFINITIONS:
            kind = self._kinds.forget(owner)
            for record in self._store.all_of(kind)[0]:
                self._delete_owned(kind, record)
            return
        for other in self._kinds:
            if kind.full_name == "namespaces" and other.is_namespaced:
                found = self._store.all_of(other, owner["metadata"]["name"])[0]
            else:
                found = self._store.owned_by(owner["metadata"].get("uid", ""), other)
            for record in found:
                self._delete_owned(other, record)

    def _delete_owned(self, kind: ServedKind, record: Record) -> None:
        place = Place(
            kind=kind,
            version=kind.versions[0],
            namespace=record.namespace,
            name=record.name,
            user=COLLECTOR,
        )
        # Somebody may be faster, or a webhook refuse it.
        with contextlib.suppress(RefusedCall):
            self.delete(place, {})


def _again(attempt: Callable[[], _Result], times: int) -> _Result:
    """Try so often while others write the same object."""
    for _ in range(times - 1):
        try:
            return attempt()
        except RefusedCall as refused:
            if refused.reason != "Conflict":
                raise
    return attempt()


def _write(place: Place, operation: str, item: Object | None, before: Object | None) -> Write:
    name = place.name or ((item or {}).get("metadata") or {}).get("name", "")
    named = dataclasses.replace(place, name=name)
    return Write(place=named, operation=operation, item=item, before=before)


def _placed(place: Place, item: Object) -> Object:
    """Return a copy of an object as one of the call's kind, version and namespace."""
    named = {
        "apiVersion": api_version(place.kind.group, place.version),
        "kind": place.kind.kind,
    }
    for key, value in named.items():
        if item.get(key, value) != value:
            raise bad_request(f"{key} {item[key]} in the object, and {value} in the URL")
    metadata = dict(item.get("metadata") or {})
    if place.kind.is_namespaced:
        if metadata.get("namespace", place.namespace) != place.namespace:
            raise bad_request("the namespace of the object does not match the one of the URL")
        metadata["namespace"] = place.namespace
    else:
        metadata.pop("namespace", None)
    if place.name and metadata.get("name", place.name) != place.name:
        raise bad_request("the name of the object does not match the name on the URL")
    others = {key: value for key, value in item.items() if key not in named}
    return {**named, **others, "metadata": metadata}


def _identify(metadata: Object) -> None:
    if not metadata.get("name"):
        if not (prefix := metadata.get("generateName")):
            raise bad_request("name or generateName is required")
        ending = "".join(random.choices(LETTERS, k=NAME_LENGTH))  # noqa: S311 - no secret
        metadata["name"] = prefix + ending
    metadata.pop("resourceVersion", None)
    metadata |= {"uid": str(uuid.uuid4()), "creationTimestamp": now(), "generation": 1}


def _merged(place: Place, before: Object, item: Object) -> Object:
    """Return the object with those changes that a call of its subresource may make."""
    is_status = place.subresource == "status"
    if is_status:
        # Of the rest it changes nothing, except who has set the status.
        kept = {key: value for key, value in before.items() if key != "status"}
        managed = {"managedFields": item["metadata"].get("managedFields") or []}
        changed = {"metadata": {**before["metadata"], **managed}}
        status = {"status": item["status"]} if "status" in item else {}
        return {**kept, **changed, **status}
    metadata = {**item["metadata"]}
    for key in _KEPT:
        metadata.pop(key, None)
        if key in before["metadata"]:
            metadata[key] = before["metadata"][key]
    metadata["resourceVersion"] = before["metadata"]["resourceVersion"]
    found = {**item, "metadata": metadata}
    if place.kind.has_status:
        found.pop("status", None)
        if "status" in before:
            found["status"] = before["status"]
    if _desired(found) != _desired(before):
        metadata["generation"] = before["metadata"].get("generation", 0) + 1
    return found


def _desired(item: Object) -> Object:
    return {key: value for key, value in item.items() if key not in {"metadata", "status"}}


def _check_preconditions(place: Place, item: Object, wanted: Object) -> None:
    for key, value in wanted.items():
        if value and item["metadata"].get(key) != value:
            raise conflict(
                place.kind,
                place.name,
                f"Precondition failed: {key} in precondition: {value}, "
                f"in object: {item['metadata'].get(key)}",
            )
