"""Reads the kubeconfigs of worker clusters, one Secret each, every few seconds.

A Secret is read by name, so that no right to list is needed, and again and again, so that a
rotated one needs no restart. What could run a program or read a local file is rejected.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

import yaml

from webhook.api.errors import ClusterError, Forbidden, NotServed
from webhook.api.kubernetes_api import KubernetesApi
from webhook.model import fields
from webhook.model.fields import FieldError, as_mapping

PREFIX: Final = "kueue-fallback-worker-"
"""Prefix of the Secrets' names; the MultiKueueCluster's name follows."""
KEY: Final = "kubeconfig"
AGAIN_SECONDS: Final = (3.0, 5.0)

_NOT_OURS: Final = {
    "cluster": ("certificate-authority", "insecure-skip-tls-verify", "proxy-url"),
    "user": ("exec", "auth-provider", "tokenFile", "client-certificate", "client-key"),
}
"""What would run a program, read a local file or skip verification; Kueue rejects it, too."""
_TEXTS: Final = ("server", "tls-server-name", "token")
"""What is used verbatim."""


class Kubeconfig(NamedTuple):
    """How to reach a worker cluster."""

    cluster: str
    content: Mapping[str, Any] | None
    """None: the cluster cannot be reached, and *problem* says why."""
    problem: str = ""


class KubeconfigReader:
    """Reads the clusters' Secrets in a loop and reports all that is known after each pass."""

    def __init__(
        self,
        namespace: str,
        transport: KubernetesApi,
        names: Callable[[], Iterable[str]],
        tell: Callable[[tuple[Kubeconfig, ...]], None],
        *,
        wait: Callable[[], None],
    ) -> None:
        """Read the kubeconfigs of the clusters that *names* returns.

        *wait* is called after each pass.
        """
        self._namespace = namespace
        self._transport = transport
        self._names = names
        self._tell = tell
        self._wait = wait
        self._known: dict[str, Kubeconfig] = {}

    def run(self) -> None:
        while True:
            self.step()

    def step(self) -> None:
        """Read all kubeconfigs, report those that are known, and wait."""
        before, self._known = self._known, {}
        for name in self._names():
            found = self._read(name) or before.get(name)
            if found is not None:
                self._known[name] = found
        self._tell(tuple(self._known.values()))
        self._wait()

    def _read(self, name: str) -> Kubeconfig | None:
        """Read one; None: keep the previous one, because the API server does not answer."""
        secret = f"{PREFIX}{name}"
        try:
            source = self._transport.get(f"/api/v1/namespaces/{self._namespace}/secrets/{secret}")
            return Kubeconfig(name, _content(source))
        except NotServed:
            return Kubeconfig(name, None, f"there is no Secret {secret}")
        except Forbidden as error:
            return Kubeconfig(name, None, str(error))
        except FieldError as error:
            # Its message must not quote a secret.
            return Kubeconfig(name, None, f"Secret {secret}: {error}")
        except ClusterError:
            return None


def _content(secret: Mapping[str, Any]) -> Mapping[str, Any]:
    path = f"data.{KEY}"
    text = fields.text(fields.mapping(secret, "data", ""), KEY, "data")
    try:
        content = as_mapping(yaml.safe_load(base64.b64decode(text)), path)
    except (ValueError, binascii.Error, yaml.YAMLError):
        raise FieldError(path, "expected a kubeconfig") from None
    for kind, names in _NOT_OURS.items():
        for item, here in fields.objects(content, f"{kind}s", path):
            forbidden = [name for name in names if fields.mapping(item, kind, here).get(name)]
            if forbidden:
                raise FieldError(f"{here}.{kind}.{forbidden[0]}", "not allowed here")
            _check_texts(fields.mapping(item, kind, here), f"{here}.{kind}")
    return content


def _check_texts(source: Mapping[str, Any], path: str) -> None:
    """Reject texts that would only fail later, in the watch's threads, with errors that quote them.

    HTTP allows no line break in a header, and a token that was read from a file often has one.

    Raises:
        FieldError: a text is not one line of ASCII.

    """
    for name in _TEXTS:
        text = fields.text(source, name, path)
        if not (text.isascii() and text.isprintable()):
            raise FieldError(f"{path}.{name}", "expected one line of ASCII")
