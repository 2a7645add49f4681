"""A control plane of which only the API server is there, embedded; with the surface of the real."""

import ssl
from pathlib import Path
from typing import Final

from hack import kueue, tools
from hack.api import Object
from hack.embedded.api_server import EmbeddedServer
from hack.plane import Plane

API_SERVER: Final = "kube-apiserver"
NAMESPACES: Final = ("default", "kube-system", "kube-public", kueue.NAMESPACE)


class EmbeddedPlane(Plane):
    """One embedded API server with what a cluster with Kueue begins with; `up`, then `down`."""

    def __init__(self, state: Path, *, name: str = "kueue-fallback") -> None:
        super().__init__(state, name=name)
        tls = ssl.create_default_context(
            ssl.Purpose.CLIENT_AUTH, cafile=str(self.pki.certificate("ca"))
        )
        tls.verify_mode = ssl.CERT_OPTIONAL
        tls.load_cert_chain(self.pki.certificate("apiserver"), self.pki.key("apiserver"))
        self.embedded = EmbeddedServer(_at_first(), port=self.api_port, tls=tls)

    def up(self) -> None:
        self.embedded.start()

    def down(self) -> None:
        super().down()
        self.embedded.kill()

    def start(self, name: str) -> None:
        if name == API_SERVER:
            self.embedded.start()
        else:
            super().start(name)

    def stop(self, name: str) -> None:
        if name == API_SERVER:
            self.embedded.kill()
        else:
            super().stop(name)

    def kill(self, name: str) -> None:
        if name == API_SERVER:
            self.embedded.kill()
        else:
            super().kill(name)

    def forget_versions(self) -> None:
        """Forget all earlier versions, so that a watch from one of them is answered 410."""
        self.embedded.forget()


def _at_first() -> list[Object]:
    """Return the namespaces that are always there, and Kueue as it says that it runs."""
    namespaces: list[Object] = [
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}},
            "status": {"phase": "Active"},
        }
        for name in NAMESPACES
    ]
    return [*namespaces, *kueue.played(tools.kueue_version())]
