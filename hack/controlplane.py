"""A real control plane on loopback: etcd, Kubernetes, KWOK for the nodes, and Kueue.

It needs no container and no rights; several run side by side, each on ports and in a folder of
its own.
"""

import base64
import contextlib
import dataclasses
import http.client
import json
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import yaml

from hack import flags, kueue, kwok, pki, tools
from hack.api import ApiClient, ApiError, Object
from hack.definitions import are_served
from hack.ports import Ports
from hack.processes import Processes, Program, end_leftovers
from hack.waiting import POLL_SECONDS, WAIT_SECONDS

Report = Callable[[str], None]

_kueue_certificate: Final[dict[str, str]] = {}
"""What the first Kueue of this process has made, for all others: it takes a third of a start."""


class NotReadyError(Exception):
    """Something did not become ready in time, or died meanwhile."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a test may want otherwise."""

    apiserver_flags: Sequence[str] = ()
    feature_gates: Mapping[str, bool] = dataclasses.field(default_factory=dict)
    # Merged into Kueue's Configuration, mapping by mapping.
    kueue_config: Object = dataclasses.field(default_factory=dict)
    # Further ones of the kube-controller-manager.
    controllers: Sequence[str] = ()
    # Further CustomResourceDefinitions, there before Kueue starts.
    definitions: Sequence[Object] = ()
    # The context's name in the kubeconfig.
    name: str = "kueue-fallback"


class ControlPlane:
    """One control plane; `up`, use `client` or `kubectl`, then `down`."""

    def __init__(
        self, state: Path, *, options: Options | None = None, report: Report = lambda _: None
    ) -> None:
        self.state = state.resolve()
        self.options = options or Options()
        self.programs = tools.ensure()
        self.ports = Ports()
        self.processes = Processes(self.state)
        self.pki = pki.Pki(self.state / "pki")
        self.kubeconfig = self.state / "kubeconfig"
        self._kueue_certificates = self.state / "kueue-certificates"
        self._kueue_config = self.state / "kueue.yaml"
        names = ("etcd", "peer", "api", "webhook", "health")
        self._port = {name: self.ports.lease() for name in names}
        self._report = report
        self._issue()
        self.client = ApiClient.with_certificate(
            self.api_port,
            authority=self.pki.certificate("ca"),
            certificate=self.pki.certificate("admin"),
            key=self.pki.key("admin"),
        )

    def __enter__(self) -> Self:
        try:
            self.up()
        except BaseException:
            self.down()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.down()

    @property
    def api_port(self) -> int:
        return self._port["api"]

    @property
    def server(self) -> str:
        return f"https://127.0.0.1:{self.api_port}"

    # All of it.

    def up(self) -> None:
        """Start everything and return when Jobs can be created."""
        self._start_storage()
        rendered = json.loads(self.programs.kueue_objects.read_text())
        self.wait("kube-apiserver", self._is_api_ready)
        self._start_controllers()
        self.client.create_all(self.options.definitions)
        self._install_kueue(rendered)
        self.wait("kueue", self.is_kueue_ready)

    def down(self) -> None:
        """End everything; nothing is kept, so nothing is asked to end in order."""
        for name in reversed(self.processes.names()):
            self.processes.kill(name)
        end_leftovers(self.state)
        self.client.close()
        self.ports.release()

    # Single programs: etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kwok, kueue.

    def start(self, name: str) -> None:
        """Start a program again and wait until it is ready."""
        self.processes.start(name)
        if name == "kube-apiserver":
            self.wait(name, self._is_api_ready)
        if name == "kueue":
            self.wait(name, self.is_kueue_ready)

    def stop(self, name: str) -> None:
        self.processes.stop(name)

    def kill(self, name: str) -> None:
        self.processes.kill(name)

    def send_kueue_through(self, address: str) -> None:
        """Start Kueue again; from then on it asks a proxy, which has rights of its own."""
        kubeconfig = self.state / "kueue.kubeconfig"
        authority = self.pki.certificate("ca")
        pki.write_kubeconfig(kubeconfig, server=address, authority=authority, user={}, name="proxy")
        self.kill("kueue")
        self._run_kueue(kubeconfig)
        self.wait("kueue", self.is_kueue_ready)

    def compact_etcd(self) -> None:
        """Forget all earlier revisions, so that a watch from one of them is answered 410."""
        key = base64.b64encode(b"any").decode()
        revision = self._etcd("/v3/kv/range", {"key": key})["header"]["revision"]
        self._etcd("/v3/kv/compaction", {"revision": revision, "physical": True})

    def is_kueue_ready(self) -> bool:
        return http_status(self._port["health"], "/readyz") == http.client.OK

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
        kubectl = [str(self.programs.path("kubectl")), "--kubeconfig", str(self.kubeconfig)]
        return subprocess.run(
            [*kubectl, *arguments], input=given, capture_output=True, text=True, check=False
        )

    # How it starts.

    def _issue(self) -> None:
        self.pki.issue_server("apiserver", "localhost", "127.0.0.1", "10.0.0.1")
        self.pki.issue_client("admin", user="admin", group="system:masters")
        self.pki.new_signing_key("service-accounts")
        user = {
            "client-certificate-data": pki.encoded(self.pki.certificate("admin")),
            "client-key-data": pki.encoded(self.pki.key("admin")),
        }
        pki.write_kubeconfig(
            self.kubeconfig,
            server=self.server,
            authority=self.pki.certificate("ca"),
            user=user,
            name=self.options.name,
        )

    def _start_storage(self) -> None:
        self._report("etcd")
        client, peer = (f"http://127.0.0.1:{self._port[name]}" for name in ("etcd", "peer"))
        self._run("etcd", **flags.etcd(self.state / "etcd", client=client, peer=peer))
        self._report("kube-apiserver")
        wanted = flags.api_server(
            self.pki,
            self.state / "apiserver",
            etcd=client,
            port=self.api_port,
            gates=self.options.feature_gates,
        )
        self._run("kube-apiserver", *self.options.apiserver_flags, **wanted)

    def _start_controllers(self) -> None:
        self._report("kube-controller-manager, kube-scheduler, kwok")
        wanted = flags.controller_manager(self.kubeconfig, self.pki, more=self.options.controllers)
        self._run("kube-controller-manager", **wanted)
        self._run("kube-scheduler", **flags.scheduler(self.kubeconfig))
        stages = self.state / "stages.yaml"
        read = [yaml.safe_load((self.programs.kwok_stages / p).read_text()) for p in kwok.STAGES]
        stages.write_text(yaml.safe_dump_all(kwok.played(read)))
        self._run("kwok", **flags.kwok(self.kubeconfig, stages))
        self.client.create_all(kwok.nodes())

    def _install_kueue(self, rendered: Sequence[Object]) -> None:
        self._report("kueue")
        config = kueue.configuration(
            rendered,
            ports=self._port,
            certificates=str(self._kueue_certificates),
            extra=self.options.kueue_config,
        )
        items = kueue.objects(
            rendered,
            port=self._port["webhook"],
            certificate=dict(_kueue_certificate),
            config=config,
            version=tools.kueue_version(),
        )
        self.install(items, namespace=kueue.NAMESPACE)
        self._kueue_config.write_text(yaml.safe_dump(config, sort_keys=False))
        # It is there already, unless this Kueue is the first.
        self._copy_kueue_certificate()
        self._run_kueue(self.kubeconfig)
        self.wait("kueue's certificate", self._copy_kueue_certificate)

    def _run_kueue(self, kubeconfig: Path) -> None:
        self._run("kueue", config=self._kueue_config, kubeconfig=kubeconfig, zap_log_level=2)

    def _copy_kueue_certificate(self) -> bool:
        """Do what the kubelet does for a mounted Secret; Kueue waits for the files."""
        secret = self.client.get(
            "v1", "Secret", kueue.CERTIFICATE_SECRET, namespace=kueue.NAMESPACE
        )
        _kueue_certificate.update(secret.get("data") or {})
        return pki.write_mounted(secret, self._kueue_certificates)

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

    def _is_api_ready(self) -> bool:
        try:
            return self.client.send("GET", "/readyz").body == b"ok"
        except ApiError:
            return False

    def _run(self, name: str, *more: str, **given: object) -> None:
        command = [str(self.programs.path(name)), *flags.spelled(given), *more]
        self.processes.run(Program(name=name, command=command))

    def _end_of_log(self, name: str, *, lines: int = 15) -> str:
        return "\n".join(self.processes.log(name).read_text(errors="replace").splitlines()[-lines:])

    def _etcd(self, path: str, message: Object) -> dict[str, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self._port["etcd"], timeout=30)
        with contextlib.closing(connection):
            connection.request("POST", path, json.dumps(message))
            answer: dict[str, Any] = json.loads(connection.getresponse().read())
        return answer


def http_status(port: int, path: str) -> int:
    """GET over plain HTTP on loopback; 0 when nothing answers."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    with contextlib.closing(connection):
        try:
            connection.request("GET", path)
            return connection.getresponse().status
        except (OSError, http.client.HTTPException):
            return 0
