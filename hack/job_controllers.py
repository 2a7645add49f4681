"""Run the controllers of other kinds of Jobs beside a control plane, with their webhooks.

Their webhooks have the names that they have in a cluster, and so their places among Kueue's and
this project's: the API server calls them in the order of their configurations' names.
"""

import dataclasses
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from hack import job_programs, kueue, pki
from hack.api import Object
from hack.plane import Plane, http_status
from hack.processes import Program

HTTP_OK: Final = 200
# Under what each takes for the folder of temporary files: controller-runtime's default.
CERTIFICATES: Final = "k8s-webhook-server/serving-certs"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What one controller has for itself: a folder, two ports, and the namespace it is said in."""

    folder: Path
    health: int
    webhook: int
    namespace: str

    @property
    def certificates(self) -> Path:
        return self.folder / CERTIFICATES

    @property
    def health_address(self) -> str:
        return f"127.0.0.1:{self.health}"

    def configured(self, group: str, **more: object) -> str:
        """Write a configuration as controllers of Kubernetes' own projects have it."""
        config = {
            "apiVersion": f"config.{group}/v1alpha1",
            "kind": "Configuration",
            "health": {"healthProbeBindAddress": self.health_address},
            "metrics": {"bindAddress": "0"},
            "webhook": {"port": self.webhook, "host": "127.0.0.1"},
            "leaderElection": {"leaderElect": False},
            **more,
        }
        path = self.folder / "config.yaml"
        path.write_text(json.dumps(config))
        return f"--config={path}"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class JobController:
    """How a controller runs here."""

    namespace: str
    program: str = ""
    """What is built for it; empty: what has its own name."""
    service: str = ""
    """The Service that its webhooks are called by."""
    selects_namespaces: bool = True
    """Whether its webhooks are called where their configuration says; else they are everywhere."""
    arguments: Callable[[Place], Sequence[str]]
    secret: str = ""
    """Where it keeps a certificate of its own making; none: it takes the one that it is given."""
    writes_authority: bool = False
    """Whether it makes its certificate itself, and tells the API server of its authority."""
    is_asked: bool = True
    """Whether it answers when asked for its health."""
    objects: Callable[[Place], Sequence[Object]] = lambda _: ()
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)


def _appwrapper_objects(place: Place) -> Sequence[Object]:
    config = {
        "certManagement": {"certificateDir": str(place.certificates)},
        "controllerManager": {
            "metrics": {"bindAddress": "0"},
            "health": {"bindAddress": place.health_address},
        },
    }
    metadata = {"name": "appwrapper-operator-config", "namespace": place.namespace}
    data = {"config.yaml": json.dumps(config)}
    return [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}]


def _lws_webhook(place: Place) -> Object:
    return {"port": place.webhook, "host": "127.0.0.1", "certDir": str(place.certificates)}


JOB_CONTROLLERS: Final[Mapping[str, JobController]] = {
    "appwrapper": JobController(
        namespace="appwrapper-system",
        service="appwrapper-webhook-service",
        secret="appwrapper-webhook-server-cert",  # noqa: S106 - a name
        arguments=lambda _: (),
        objects=_appwrapper_objects,
    ),
    "jobset": JobController(
        namespace="jobset-system",
        service="jobset-webhook-service",
        arguments=lambda place: (
            place.configured("jobset.x-k8s.io", internalCertManagement={"enable": False}),
        ),
    ),
    "kuberay": JobController(
        namespace="ray-system",
        arguments=lambda place: (
            "--metrics-addr=0",
            f"--health-probe-bind-address={place.health_address}",
            "--enable-leader-election=false",
        ),
    ),
    "lws": JobController(
        namespace="lws-system",
        service="lws-webhook-service",
        arguments=lambda place: (
            place.configured(
                "lws.x-k8s.io",
                internalCertManagement={"enable": False},
                webhook=_lws_webhook(place),
            ),
            "--metrics-bind-address=0",
        ),
    ),
    "mpi-operator": JobController(
        namespace="mpi-operator",
        arguments=lambda place: (f"--lock-namespace={place.namespace}", "--kube-api-qps=100"),
        is_asked=False,
    ),
    "spark-operator": JobController(
        namespace="spark-operator",
        arguments=lambda place: (
            *("controller", "start"),
            f"--health-probe-bind-address={place.health_address}",
            "--namespaces=",
        ),
        # It hands them on to spark-submit.
        environment={"KUBERNETES_SERVICE_HOST": "localhost", "KUBERNETES_SERVICE_PORT": "443"},
    ),
    "spark-webhook": JobController(
        namespace="spark-operator",
        program="spark-operator",
        service="spark-operator-webhook-svc",
        selects_namespaces=False,
        writes_authority=True,
        arguments=lambda place: (
            *("webhook", "start"),
            f"--health-probe-bind-address={place.health_address}",
            "--namespaces=",
            f"--webhook-port={place.webhook}",
            f"--webhook-cert-dir={place.certificates}",
            "--mutating-webhook-name=mutating-webhook-configuration",
            "--validating-webhook-name=validating-webhook-configuration",
            "--webhook-svc-name=spark-operator-webhook-svc",
            f"--webhook-svc-namespace={place.namespace}",
            f"--webhook-secret-namespace={place.namespace}",
        ),
    ),
    "trainer": JobController(
        namespace="kubeflow-system",
        service="kubeflow-trainer-controller-manager",
        arguments=lambda place: (
            place.configured("trainer.kubeflow.org", certManagement={"enable": False}),
        ),
    ),
    "training-operator": JobController(
        namespace="kubeflow",
        service="training-operator",
        secret="training-operator-webhook-cert",  # noqa: S106 - a name
        arguments=lambda place: (
            "--metrics-bind-address=0",
            f"--health-probe-bind-address={place.health_address}",
            f"--webhook-server-port={place.webhook}",
            "--kube-api-qps=100",
            "--kube-api-burst=200",
            # All but MPIJobs, whose older version than the MPI operator's is not installed.
            *(
                f"--enable-scheme={kind}job"
                for kind in ("jax", "paddle", "pytorch", "tf", "xgboost")
            ),
        ),
    ),
}


class JobControllers:
    """The controllers that run beside one control plane, which ends them with its own programs."""

    def __init__(self, plane: Plane, *, environment: Mapping[str, str] | None = None) -> None:
        self._plane = plane
        self._environment = dict(environment or {})

    def start(self, *names: str) -> None:
        """Start those that do not run, built first if they never were; wait until all are ready."""
        missing = [name for name in names if not self._plane.processes.is_running(name)]
        built = {
            name: job_programs.ensure(JOB_CONTROLLERS[name].program or name) for name in missing
        }
        places = {name: self._start(name, built[name]) for name in missing}
        for name, place in places.items():
            self._wait(name, place, built[name])

    def _start(self, name: str, built: job_programs.Built) -> Place:
        lease = self._plane.ports.lease
        place = Place(
            folder=self._plane.state / "controllers" / name,
            health=lease(),
            webhook=lease(),
            namespace=JOB_CONTROLLERS[name].namespace,
        )
        place.certificates.mkdir(parents=True)
        self._plane.install(self._objects(name, place, built), namespace=place.namespace)
        self._run(name, place, built)
        return place

    def _wait(self, name: str, place: Place, built: job_programs.Built) -> None:
        controller = JOB_CONTROLLERS[name]
        if controller.secret:
            self._plane.wait(f"{name}'s certificate", lambda: self._is_copied(name, place))
        if controller.writes_authority:
            self._plane.wait(f"{name}'s authority", lambda: self._is_trusted(built))
        if controller.is_asked:
            self._plane.wait(name, partial(_is_ready, place))

    def _run(self, name: str, place: Place, built: job_programs.Built) -> None:
        environment = {
            **self._environment,
            **JOB_CONTROLLERS[name].environment,
            "KUBECONFIG": str(self._plane.kubeconfig),
            "TMPDIR": str(place.folder),
            "NAMESPACE": place.namespace,
            "MY_POD_NAMESPACE": place.namespace,
            "WEBHOOK_PORT": str(place.webhook),
        }
        command = [str(built.program), *JOB_CONTROLLERS[name].arguments(place)]
        self._plane.processes.run(
            Program(name=name, command=command, environment=environment, folder=place.folder)
        )

    def _objects(self, name: str, place: Place, built: job_programs.Built) -> list[Object]:
        controller = JOB_CONTROLLERS[name]
        found = list(controller.objects(place))
        if not controller.service:
            return found
        metadata = {"name": controller.service, "namespace": place.namespace}
        found.append({"apiVersion": "v1", "kind": "Service", "metadata": metadata})
        found += built.webhooks()
        for item in found:
            self._call_here(item, place, controller)
            kueue.point_at_loopback(item, service=controller.service, port=place.webhook)
        if controller.secret:
            metadata = {"name": controller.secret, "namespace": place.namespace}
            found.append({"apiVersion": "v1", "kind": "Secret", "metadata": metadata})
        elif not controller.writes_authority:
            self._issue(name, place)
        return found

    def _call_here(self, item: Object, place: Place, controller: JobController) -> None:
        for caller in item.get("webhooks", ()):
            caller["clientConfig"]["service"]["namespace"] = place.namespace
            if not controller.writes_authority:
                caller["clientConfig"]["caBundle"] = self._plane.pki.ca_bundle
            if not controller.selects_namespaces:
                del caller["namespaceSelector"]

    def _issue(self, name: str, place: Place) -> None:
        issued = self._plane.pki
        issued.issue_server(name, f"{JOB_CONTROLLERS[name].service}.{place.namespace}.svc")
        shutil.copy(issued.certificate(name), place.certificates / "tls.crt")
        shutil.copy(issued.key(name), place.certificates / "tls.key")

    def _is_copied(self, name: str, place: Place) -> bool:
        secret = self._plane.client.get(
            "v1", "Secret", JOB_CONTROLLERS[name].secret, namespace=place.namespace
        )
        return pki.write_mounted(secret, place.certificates)

    def _is_trusted(self, built: job_programs.Built) -> bool:
        """Tell whether all configurations of its webhooks name the authority."""
        found = [
            self._plane.client.get(item["apiVersion"], item["kind"], item["metadata"]["name"])
            for item in built.webhooks()
        ]
        callers = [caller for item in found for caller in item["webhooks"]]
        return all(caller["clientConfig"].get("caBundle") for caller in callers)


def _is_ready(place: Place) -> bool:
    return http_status(place.health, "/readyz") == HTTP_OK
