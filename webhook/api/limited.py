"""Bounds how many objects of a resource are read, where tenants may write as many as they like."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from webhook.api.resources import Limit, ReadObject, full_name, key_of
from webhook.model.fields import FieldError

_ALL = "*"
"""Stands for a name in the key of what is left out; no object has it."""


class LimitedReads:
    """Tells which objects are read, and which are left out."""

    def __init__(self, limit: Limit | None) -> None:
        """*limit* None: all are read."""
        self._limit = limit
        self._names: dict[str, set[str]] = {}
        self._full: set[str] = set()
        """Namespaces some of whose objects are left out."""
        self.is_old = False
        """Whether a new list might read other objects than are read now."""

    def forget(self) -> None:
        """Begin a new list."""
        self._names.clear()
        self._full.clear()
        self.is_old = False

    def left_out(self, source: Mapping[str, Any], event_type: str = "ADDED") -> ReadObject | None:
        """Return what is known in place of an object that is left out; None: it is to be read."""
        if self._limit is None:
            return None
        try:
            namespace, name = key_of(source)
        except FieldError:
            return None
        names = self._names.setdefault(namespace, set())
        if event_type == "DELETED":
            # Its place is free for one that was left out.
            self.is_old |= name in names and bool(self._full)
            names.discard(name)
            return None
        if name in names or self._has_room(names):
            names.add(name)
            return None
        self._full.add(namespace)
        self.is_old |= bool(names) and name < max(names)
        return ReadObject((namespace, _ALL), None, self._problem(namespace))

    def _has_room(self, names: set[str]) -> bool:
        limit = self._limit
        if limit is None:
            return True
        total = sum(map(len, self._names.values()))
        return len(names) < limit.in_namespace and total < limit.in_cluster

    def _problem(self, namespace: str) -> str:
        limit = self._limit
        most = f"{limit.in_namespace} of a namespace and {limit.in_cluster} in all" if limit else ""
        return f"{full_name((namespace, _ALL))}: only {most} are read"
