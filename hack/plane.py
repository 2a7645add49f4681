"""What a real and an embedded control plane have in common: a folder, ports, keys, processes."""

import contextlib
import http.client
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

from hack import kueue, pki, tools
from hack.api import ApiClient, ApiError, Object
from hack.definitions import are_served
from hack.ports import Ports
from hack.processes import Processes, end_leftovers
from hack.waiting import POLL_SECONDS, WAIT_SECONDS


class NotReadyError(Exception):
    """Something did not become ready in time, or died meanwhile."""


class UpAndDown(ABC):
    """What is up in a `with` block, and is ended also where it does not get up."""

    @abstractmethod
    def up(self) -> None:
        """Start everything and return when it can be used."""

    @abstractmethod
    def down(self) -> None:
        """End everything that was started."""

    def __enter__(self) -> Self:
        try:
            self.up()
        except BaseException:
            self.down()
            raise
        return self

    def __exit__(self, *_failure: object) -> None:
        self.down()


class Plane(UpAndDown):
    """One control plane; `up`, use `client` or `kubectl`, then `down`."""

    def __init__(self, state: Path, *, name: str) -> None:
        """Keep all in the folder *state*; *name*: of the context in the kubeconfig."""
        self.state = state.resolve()
        self.ports = Ports()
        self.processes = Processes(self.state)
        self.pki = pki.Pki(self.state / "pki")
        self.kubeconfig = self.state / "kubeconfig"
        self.api_port = self.ports.lease()
        self._issue(name)
        self.client = ApiClient.with_certificate(
            self.api_port,
            authority=self.pki.certificate("ca"),
            certificate=self.pki.certificate("admin"),
            key=self.pki.key("admin"),
        )

    @property
    def server(self) -> str:
        return f"https://127.0.0.1:{self.api_port}"

    def down(self) -> None:
        """End everything; nothing is kept, so nothing is asked to end in order."""
        for name in reversed(self.processes.names()):
            self.processes.kill(name)
        end_leftovers(self.state)
        self.client.close()
        self.ports.release()

    # Single programs.

    def start(self, name: str) -> None:
        """Start a program again; the API server is ready then."""
        self.processes.start(name)

    def stop(self, name: str) -> None:
        self.processes.stop(name)

    def kill(self, name: str) -> None:
        self.processes.kill(name)

    # Use.

    def wait(self, what: str, is_ready: Callable[[], bool]) -> None:
        """Wait until something is ready; say which program died when one did."""
        deadline = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < deadline:
            if died := self.processes.died():
                raise NotReadyError(f"{died[0]} ended:\n{self._end_of_log(died[0])}")
            with contextlib.suppress(OSError, http.client.HTTPException):
                if is_ready():
                    return
            time.sleep(POLL_SECONDS)
        raise NotReadyError(f"{what} was not ready after {WAIT_SECONDS:.0f} s")

    def kubectl(
        self, *arguments: str, given: str | None = None
    ) -> "subprocess.CompletedProcess[str]":
        """Run kubectl as the administrator."""
        kubectl = [str(tools.program("kubectl")), "--kubeconfig", str(self.kubeconfig)]
        return subprocess.run(
            [*kubectl, *arguments], input=given, capture_output=True, text=True, check=False
        )

    def install(self, items: Sequence[Object], *, namespace: str) -> None:
        """Apply a chart's objects: the namespace, definitions, then everything else at once."""
        self.client.apply(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
        )
        items = [kueue.merged({"metadata": {"namespace": namespace}}, item) for item in items]
        definitions = [item for item in items if item["kind"] == "CustomResourceDefinition"]
        rest = [item for item in items if item["kind"] != "CustomResourceDefinition"]
        self.client.apply_all(definitions)
        self.wait("definitions", lambda: are_served(self.client, definitions))
        # A configuration that calls a webhook comes last: what it would call runs only later.
        rest.sort(key=lambda item: "webhooks" in item)
        self.client.apply_all(rest)

    def is_api_ready(self) -> bool:
        try:
            return self.client.send("GET", "/readyz").body == b"ok"
        except ApiError:
            return False

    def _issue(self, name: str) -> None:
        self.pki.issue_server("apiserver", "localhost", "127.0.0.1", "10.0.0.1")
        self.pki.issue_client("admin", user="admin", group="system:masters")
        user = {
            "client-certificate-data": pki.encoded(self.pki.certificate("admin")),
            "client-key-data": pki.encoded(self.pki.key("admin")),
        }
        pki.write_kubeconfig(
            self.kubeconfig,
            server=self.server,
            authority=self.pki.certificate("ca"),
            user=user,
            name=name,
        )

    def _end_of_log(self, name: str, *, lines: int = 15) -> str:
        return "\n".join(self.processes.log(name).read_text(errors="replace").splitlines()[-lines:])


def http_status(port: int, path: str) -> int:
    """GET over plain HTTP on loopback; 0 when nothing answers."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    with contextlib.closing(connection):
        try:
            connection.request("GET", path)
            return connection.getresponse().status
        except (OSError, http.client.HTTPException):
            return 0
