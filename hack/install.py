"""Install this checkout on a control plane as its users would: the chart, TLS, the processes.

The chart is rendered by helm, and two things are replaced: its Deployments by processes, which have
the ServiceAccounts' own tokens and so no more rights than the chart gives them; and its Service by
one that sends the API server to localhost, which still checks the certificate against its name.
"""

import dataclasses
import http.client
import subprocess
import sys
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Final, Literal

import yaml

from hack import pki, tools
from hack.api import Object
from hack.plane import Plane, UpAndDown, http_status
from hack.processes import Program

ROOT: Final = Path(__file__).resolve().parent.parent
NAMESPACE: Final = "kueue-fallback"
SERVICE: Final = "kueue-fallback"
SERVER_ACCOUNT: Final = "kueue-fallback"
CONTROLLER_ACCOUNT: Final = "kueue-fallback-controller"
# No kubelet renews these tokens, and a cluster of `make up` may stay for weeks.
TOKEN_SECONDS: Final = 30 * 24 * 3600
REPLACED: Final = frozenset({"Deployment", "Service"})
WAITED_FOR: Final = ("webhook.timeoutSeconds=30",)
"""Values of the chart by which, on a busy machine, a Job is decided late rather than not at all."""
PATIENT: Final = (*WAITED_FOR, "settings.max_state_age=120")
"""The same also where the last sign of the cluster's state has come late."""

Certificates = Literal["files", "selfManaged"]
Balanced = Literal["reviews", "connections"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """One webhook server and its ports."""

    name: str
    listen: int
    metrics: int
    console: int

    def is_ready(self) -> bool:
        return is_ready(self.metrics)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Controller:
    """One controller and its port."""

    name: str
    metrics: int

    def is_ready(self) -> bool:
        return is_ready(self.metrics)


class Installation(UpAndDown):
    """The project on one control plane; `up`, then `down`, or a `with` block."""

    def __init__(
        self,
        plane: Plane,
        *,
        replicas: int = 1,
        serve_flags: Sequence[str] = (),
        chart_values: Sequence[str] = (),
        certificates: Certificates = "files",
        balanced: Balanced = "reviews",
    ) -> None:
        self.checkout = ROOT
        """Another one, set before `up`, installs another version."""
        self.plane = plane
        self.certificates = certificates
        self.pki = pki.Pki(plane.state / "webhook-pki")
        self.replicas = tuple(self._replica(number) for number in range(replicas))
        self.port = self.replicas[0].listen if replicas == 1 else plane.ports.lease()
        self.controllers: tuple[Controller, ...] = (
            Controller(name="controller", metrics=plane.ports.lease()),
        )
        self._serve_flags = tuple(serve_flags)
        self._chart_values = tuple(chart_values)
        self._environment: dict[str, str] = {}
        # Only who has the servers' key could end TLS in between.
        self._balanced = "connections" if certificates == "selfManaged" else balanced

    @property
    def ca_certificate(self) -> Path:
        return self.pki.certificate("ca")

    @property
    def controller_metrics(self) -> int:
        return self.controllers[0].metrics

    @property
    def endpoints(self) -> dict[str, str]:
        first = self.replicas[0]
        return {
            "webhook": f"https://127.0.0.1:{self.port}",
            "metrics": f"http://127.0.0.1:{first.metrics}",
            "console": f"http://127.0.0.1:{first.console}",
        }

    def up(self) -> None:
        """Install the chart, start all processes and return when every replica is ready."""
        rendered = self._rendered()
        self._environment = environment_of(rendered)
        self.plane.install(self._replacing(rendered), namespace=NAMESPACE)
        self.run(settings_of(rendered))

    def run(self, settings: str) -> None:
        """Start what the chart's pods would run, with their settings; wait until all is ready."""
        self.pki.issue_server("tls", f"{SERVICE}.{NAMESPACE}.svc", "localhost", "127.0.0.1")
        self._settings.write_text(settings)
        server = kubeconfig_of(self.plane, SERVER_ACCOUNT)
        # Of the addresses this one says more than a port: whether the console is open.
        console_host = yaml.safe_load(settings)["console_listen"].rpartition(":")[0]
        for replica in self.replicas:
            self._run_replica(replica, server, console_host)
        if len(self.replicas) > 1:
            self._run_proxy()
        for controller in self.controllers:
            self._run_controller(controller)
        self.wait_until_ready()

    def down(self) -> None:
        """End the processes; the chart's objects stay, as the control plane is thrown away."""
        for controller in self.controllers:
            # It gives the Lease back, for which the next one would have to wait.
            self.plane.stop(controller.name)
        for name in ("proxy", *(replica.name for replica in self.replicas)):
            self.plane.kill(name)

    def wait_until_ready(self) -> None:
        self.plane.wait("webhook", lambda: all(replica.is_ready() for replica in self.replicas))
        self.plane.wait("controller", lambda: all(each.is_ready() for each in self.controllers))

    # Single replicas.

    def start(self, number: int = 0) -> None:
        """Start a replica again and wait until it is ready."""
        self.plane.start(self.replicas[number].name)
        self.plane.wait(self.replicas[number].name, self.replicas[number].is_ready)

    def stop(self, number: int = 0) -> None:
        self.plane.stop(self.replicas[number].name)

    def kill(self, number: int = 0) -> None:
        self.plane.kill(self.replicas[number].name)

    def add_controller(self) -> None:
        """Start one more controller and wait until it is ready."""
        name = f"controller-{len(self.controllers)}"
        added = Controller(name=name, metrics=self.plane.ports.lease())
        self.controllers = (*self.controllers, added)
        self._run_controller(added)
        self.plane.wait(name, added.is_ready)

    # How it is installed.

    def objects(self) -> list[Object]:
        """Return what the chart installs here, with a Service that leads to its port."""
        return self._replacing(self._rendered())

    def _replacing(self, rendered: Sequence[Object]) -> list[Object]:
        kept = (item for item in rendered if item["kind"] not in REPLACED)
        return [*kept, service(self.port)]

    def _rendered(self) -> list[Object]:
        values = [f"certificates.mode={self.certificates}", f"service.port={self.port}"]
        if self.certificates == "files":
            values.append(f"certificates.files.caBundle={self.pki.ca_bundle}")
        values += self._chart_values
        template = [
            "helm",
            "template",
            SERVICE,
            str(self.checkout / "helm"),
            "-n",
            NAMESPACE,
            "--no-hooks",
        ]
        given = [word for value in values for word in ("--set", value)]
        rendered = subprocess.run(
            [*template, "--include-crds", *given],
            executable=tools.program("helm"),
            capture_output=True,
            text=True,
            check=False,
        )
        if rendered.returncode:
            raise RuntimeError(f"helm template helm/ failed:\n{rendered.stderr}")
        return [item for item in yaml.load_all(rendered.stdout, Loader=yaml.CSafeLoader) if item]

    @property
    def _settings(self) -> Path:
        return self.plane.state / "settings.yaml"

    def _replica(self, number: int) -> Replica:
        lease = self.plane.ports.lease
        return Replica(name=f"webhook-{number}", listen=lease(), metrics=lease(), console=lease())

    def _run_replica(self, replica: Replica, kubeconfig: Path, console_host: str) -> None:
        self._run(
            replica.name,
            *("webhook", "serve", f"--config={self._settings}", f"--kubeconfig={kubeconfig}"),
            *self._certificate_flags(),
            f"--listen=127.0.0.1:{replica.listen}",
            f"--metrics-listen=127.0.0.1:{replica.metrics}",
            f"--console-listen={console_host}:{replica.console}",
            "--drain-seconds=0",  # whoever stops a replica here wants it gone
            *self._serve_flags,
        )

    def _certificate_flags(self) -> tuple[str, ...]:
        if self.certificates != "files":
            return ()
        return f"--tls-cert={self.pki.certificate('tls')}", f"--tls-key={self.pki.key('tls')}"

    def _run_controller(self, controller: Controller) -> None:
        kubeconfig = kubeconfig_of(self.plane, CONTROLLER_ACCOUNT)
        self._run(
            controller.name,
            *("webhook", "control", f"--config={self._settings}", f"--kubeconfig={kubeconfig}"),
            f"--metrics-listen=127.0.0.1:{controller.metrics}",
        )

    def _run_proxy(self) -> None:
        if self._balanced == "connections":
            ports = (str(replica.listen) for replica in self.replicas)
            self._run("proxy", "hack.forward", str(self.port), *ports)
            return
        files = (self.pki.certificate("tls"), self.pki.key("tls"), self.ca_certificate)
        addresses = map(str, (*files, *(replica.listen for replica in self.replicas)))
        self._run("proxy", "hack.proxy", str(self.port), *addresses)

    def _run(self, name: str, module: str, *arguments: str) -> None:
        command = [sys.executable, "-P", "-m", module, *arguments]
        # The checkout's own modules, wherever the caller stands; the proxy is this one's.
        checkout = self.checkout if module == "webhook" else ROOT
        environment = {"PYTHONPATH": str(checkout), "PYTHONUNBUFFERED": "1"}
        environment |= self._environment if module == "webhook" else {}
        # Older versions start children that import from the folder they are in.
        folder = checkout if checkout is not ROOT else None
        program = Program(name=name, command=command, environment=environment, folder=folder)
        self.plane.processes.run(program)


def kubeconfig_of(plane: Plane, account: str, *, namespace: str = NAMESPACE) -> Path:
    """Write a kubeconfig with a token of the ServiceAccount, and with nothing else."""
    path = plane.client.path("v1", "ServiceAccount", namespace=namespace, name=account)
    wanted = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": TOKEN_SECONDS},
    }
    token = plane.client.send("POST", f"{path}/token", wanted).json()["status"]["token"]
    kubeconfig = plane.state / f"{account}.kubeconfig"
    pki.write_kubeconfig(
        kubeconfig,
        server=plane.server,
        authority=plane.pki.certificate("ca"),
        user={"token": token},
        name=account,
    )
    return kubeconfig


def service(port: int) -> Object:
    """Make the Service that leads the API server to a port on loopback."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": SERVICE, "namespace": NAMESPACE},
        "spec": {
            "type": "ExternalName",
            "externalName": "localhost",
            "ports": [{"name": "webhook", "port": port}],
        },
    }


def environment_of(items: Sequence[Object]) -> dict[str, str]:
    """Take the environment variables out of the chart's Deployments, which all have the same."""
    found = [
        container.get("env", ())
        for item in items
        if item["kind"] == "Deployment"
        for container in item["spec"]["template"]["spec"]["containers"]
    ]
    return {each["name"]: each["value"] for each in chain.from_iterable(found)}


def settings_of(items: Sequence[Object]) -> str:
    """Take the settings out of the chart's ConfigMap, as its pods would read them."""
    data = [item.get("data", {}) for item in items if item["kind"] == "ConfigMap"]
    text: str = next(each["settings.yaml"] for each in data if "settings.yaml" in each)
    return text


def is_ready(metrics_port: int) -> bool:
    return http_status(metrics_port, "/readyz") == http.client.OK
