"""Viewers that may see only so much."""


class Only:
    """Somebody who may see what is named."""

    def __init__(self, *names):
        self._names = frozenset(names)

    def may_get(self, names, *, group, resource):
        return frozenset(names) & {
            name.removeprefix(f"{resource}.{group}/") for name in self._names
        }

    def may_list_jobs(self, namespaces):
        return frozenset(namespaces) & self._names
