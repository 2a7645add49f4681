"""Viewers that may see only so much."""


class Only:
    """Somebody who may see what is named."""

    def __init__(self, *names):
        self._names = frozenset(names)

    def may_get(self, names, *, group, resource):
        return frozenset(names) & {
            name.removeprefix(f"{resource}.{group}/") for name in self._names
        }

    requester = None

    def may_create(self, namespace, kind):
        return f"create {kind} in {namespace}" in self._names

    def may_list_jobs(self, namespaces, kind="Job"):
        of_kind = "" if kind == "Job" else f"{kind} in "
        return frozenset(name for name in namespaces if of_kind + name in self._names)
