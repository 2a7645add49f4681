"""What one context of a kubeconfig says, read without the Kubernetes client.

Only a kubeconfig of one file is read here, or its content. Whatever may be wrong in it is none of
this module's business: it finds no context then, and who asks leaves it to the Kubernetes client.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

FILES: Final = ("certificate-authority", "client-certificate", "client-key")
"""Fields that name files; behind ``-data`` they have what would be in these, as base64."""
_DEFAULT: Final = "~/.kube/config"


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeconfigContext:
    """A context with its cluster and its user, which are parts of the kubeconfig's content."""

    namespace: str
    """Empty: none is named."""
    cluster: dict[str, Any]
    user: dict[str, Any]
    folder: Path
    """From there the names of files lead."""

    @property
    def embeds(self) -> bool:
        """Return whether it has what would be in files."""
        return any(f"{key}-data" in part for part in (self.cluster, self.user) for key in FILES)


def read_context(kubeconfig: str, name: str = "") -> KubeconfigContext | None:
    """Read a context of a file, or of the default one; *name* is empty for the current one.

    None: it is not there, or it takes more than one file to know.
    """
    kubeconfig = kubeconfig or os.environ.get("KUBECONFIG", _DEFAULT)
    try:
        path = Path(os.path.expanduser(kubeconfig))  # noqa: PTH111 - pathlib's may raise
        # A pipe can be read only once.
        if os.pathsep in kubeconfig or not path.is_file():
            return None
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        return None
    return context_in(content, name, folder=path.absolute().parent)


def context_in(
    content: object, name: str = "", *, folder: Path = Path()
) -> KubeconfigContext | None:
    """Return a context of a kubeconfig's content; the arguments are as for ``read_context``."""
    context = _named(content, "context", name or _value(content, "current-context"))
    cluster = _named(content, "cluster", _value(context, "cluster"))
    user = _named(content, "user", _value(context, "user"))
    namespace = _value(context, "namespace") or ""
    if cluster is None or user is None or not isinstance(namespace, str):
        return None
    return KubeconfigContext(namespace=namespace, cluster=cluster, user=user, folder=folder)


def write_embedded(context: KubeconfigContext, folder: Path) -> None:
    """Let *context* name files in the *folder* for what is embedded in it, as kubectl prefers it.

    Raises:
        OSError: a file cannot be written.
        TypeError, ValueError: something is no base64.

    """
    for part in (context.cluster, context.user):
        for key in FILES:
            if data := part.pop(f"{key}-data", None):
                written = folder / key
                written.write_bytes(base64.standard_b64decode(data))
                part[key] = str(written)


def _value(source: object, key: str) -> object:
    return source.get(key) if isinstance(source, Mapping) else None


def _named(content: object, kind: str, name: object) -> dict[str, Any] | None:
    """Return the context, cluster or user of that name; None: there is not exactly one."""
    entries: Any = _value(content, f"{kind}s")
    if not isinstance(entries, list):
        return None
    names = [_value(entry, "name") for entry in entries]
    if None in names or names.count(name) != 1:
        return None
    found = _value(entries[names.index(name)], kind)
    return found if isinstance(found, dict) else None
