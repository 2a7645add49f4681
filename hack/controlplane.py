"""A real control plane on loopback: etcd, Kubernetes, KWOK for the nodes, and Kueue.

It needs no container and no rights; several run side by side, each on ports and in a folder of
its own.
"""

import base64
import contextlib
import dataclasses
import http.client
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from hack import flags, kueue, kwok, pki, tools
from hack.api import Object
from hack.plane import Plane, http_status
from hack.processes import Program

Report = Callable[[str], None]

_kueue_certificate: Final[dict[str, str]] = {}
"""What the first Kueue of this process has made, for all others: it takes a third of a start."""


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


class ControlPlane(Plane):
    """One control plane of real programs."""

    def __init__(
        self, state: Path, *, options: Options | None = None, report: Report = lambda _: None
    ) -> None:
        self.options = options or Options()
        self.programs = tools.ensure()
        super().__init__(state, name=self.options.name)
        self.pki.new_signing_key("service-accounts")
        self._kueue_certificates = self.state / "kueue-certificates"
        self._kueue_config = self.state / "kueue.yaml"
        names = ("etcd", "peer", "webhook", "health")
        self._port = {name: self.ports.lease() for name in names}
        self._report = report

    # All of it.

    def up(self) -> None:
        self._start_storage()
        rendered = json.loads(self.programs.kueue_objects.read_text())
        self.wait("kube-apiserver", self.is_api_ready)
        self._start_controllers()
        self.client.create_all(self.options.definitions)
        self._install_kueue(rendered)
        self.wait("kueue", self.is_kueue_ready)

    # Single programs: etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kwok, kueue.

    def start(self, name: str) -> None:
        """Start a program again and wait until it is ready."""
        super().start(name)
        if name == "kube-apiserver":
            self.wait(name, self.is_api_ready)
        if name == "kueue":
            self.wait(name, self.is_kueue_ready)

    def send_kueue_through(self, address: str) -> None:
        """Start Kueue again; from then on it asks a proxy, which has rights of its own."""
        kubeconfig = self.state / "kueue.kubeconfig"
        authority = self.pki.certificate("ca")
        pki.write_kubeconfig(kubeconfig, server=address, authority=authority, user={}, name="proxy")
        self.kill("kueue")
        self._run_kueue(kubeconfig)
        self.wait("kueue", self.is_kueue_ready)

    def forget_versions(self) -> None:
        """Forget all earlier revisions, so that a watch from one of them is answered 410."""
        key = base64.b64encode(b"any").decode()
        revision = self._etcd("/v3/kv/range", {"key": key})["header"]["revision"]
        self._etcd("/v3/kv/compaction", {"revision": revision, "physical": True})

    def is_kueue_ready(self) -> bool:
        return http_status(self._port["health"], "/readyz") == http.client.OK

    # How it starts.

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

    def _run(self, name: str, *more: str, **given: object) -> None:
        command = [str(self.programs.path(name)), *flags.spelled(given), *more]
        self.processes.run(Program(name=name, command=command))

    def _etcd(self, path: str, message: Object) -> dict[str, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self._port["etcd"], timeout=30)
        with contextlib.closing(connection):
            connection.request("POST", path, json.dumps(message))
            answer: dict[str, Any] = json.loads(connection.getresponse().read())
        return answer
