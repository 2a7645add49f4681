"""The chart installed by helm itself, as its users do, on a control plane without kubelets.

In the kubelet's place what the pods would run is run here, with their ServiceAccounts' tokens. Of
the chart only the Service is another one: it leads the API server to localhost.
"""

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

from hack import tools
from hack.api import Object
from hack.install import NAMESPACE, PATIENT, ROOT, SERVICE, Installation, kubeconfig_of
from hack.plane import NotReadyError, Plane
from hack.waiting import WAIT_SECONDS

Found = TypeVar("Found")

HELM_SECONDS: Final = 330.0
"""It gives up by itself after five minutes."""
_POLL_SECONDS: Final = 0.1
_EXTERNAL: Final = """
apiVersion: v1
kind: Service
metadata:
  name: {{ include "kueue-fallback.fullname" . }}
  namespace: {{ .Release.Namespace }}
  labels:
    {{- include "kueue-fallback.labels" (dict "root" . "component" "webhook") | nindent 4 }}
spec:
  type: ExternalName
  externalName: localhost
  ports:
    - name: webhook
      port: {{ .Values.service.port }}
"""


class HelmError(Exception):
    """Helm did not do what it was asked to; what it wrote."""


class Release(Installation):
    """One release of the chart and the processes of its pods."""

    def __init__(self, plane: Plane, folder: Path, **more: Any) -> None:
        super().__init__(plane, **more)
        self.folder = folder

    def package(self, *, version: str = "", change: Callable[[Path], None] = lambda _: None) -> str:
        """Package the checkout's chart with the other Service; *change* edits the copy before."""
        chart = self.folder / f"chart-{version}"
        shutil.copytree(ROOT / "helm", chart)
        (chart / "templates/service.yaml").write_text(_EXTERNAL)
        change(chart)
        words = ["--version", version] if version else []
        done = self.helm("package", str(chart), "-d", str(self.folder / "packages"), *words)
        return done.stdout.split(": ")[-1].strip()

    def helm(self, *words: str, check: bool = True) -> "subprocess.CompletedProcess[str]":
        done = subprocess.run(
            self._command(words), capture_output=True, text=True, check=False, env=self.environment
        )
        if check and done.returncode:
            raise HelmError(done.stderr)
        return done

    @contextlib.contextmanager
    def helming(self, *words: str) -> "Iterator[subprocess.Popen[str]]":
        """Run helm while something else happens; it has ended well in the end."""
        with subprocess.Popen(
            self._command(words),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=self.environment,
        ) as process:
            try:
                yield process
            except BaseException:
                process.kill()
                raise

    def _command(self, words: tuple[str, ...]) -> list[str]:
        program = tools.program("helm")
        return [str(program), "--kubeconfig", str(self.plane.kubeconfig), "-n", NAMESPACE, *words]

    @property
    def environment(self) -> Mapping[str, str]:
        homes = ("HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME")
        return {**os.environ, **{home: str(self.folder / home) for home in homes}}

    @property
    def values(self) -> list[str]:
        """What this control plane needs: its port, and pods that wait until they are ended."""
        given = [f"service.port={self.port}", f"certificates.mode={self.certificates}"]
        if self.certificates == "files":
            given.append(f"certificates.files.caBundle={self.pki.ca_bundle}")
        given += PATIENT
        # A process that is asked to end has five seconds here.
        given.append("webhook.drainSeconds=2")
        given.append(r"podAnnotations.sim\.example\.com/cpu-run=1h")
        return [word for value in given for word in ("--set", value)]

    # In the kubelet's place.

    def run_pods(self) -> None:
        """Start what the Deployments' pods would run, once their objects are there."""
        config_map = _awaited(lambda: self._find("ConfigMap"), "the settings")
        _awaited(lambda: self._find("ServiceAccount"), "the ServiceAccount")
        _awaited(lambda: self._find("ServiceAccount", f"{SERVICE}-controller"), "the other one")
        self.run(config_map["data"]["settings.yaml"])

    def run_hook(self, part: str) -> "subprocess.CompletedProcess[str]":
        """Run what the hook's pod would run, with its rights, and let the pod end with it."""
        pod = _awaited(lambda: self.pod_of(part), f"the pod of {part}")
        kubeconfig = kubeconfig_of(self.plane, f"{SERVICE}-{part}")
        arguments = pod["spec"]["containers"][0]["args"]
        command = [sys.executable, "-m", "webhook", *arguments, "--kubeconfig", str(kubeconfig)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
        self.end_pod(pod, "Succeeded" if done.returncode == 0 else "Failed")
        return done

    def end_pod(self, pod: Object, phase: str) -> None:
        name = pod["metadata"]["name"]
        status = {"status": {"phase": phase}}
        self.plane.client.patch(
            "v1", "Pod", name, status, namespace=NAMESPACE, subresource="status"
        )

    def pod_of(self, part: str) -> Object | None:
        selector = f"app.kubernetes.io/component={part}"
        pods = self.plane.client.list("v1", "Pod", namespace=NAMESPACE, selector=selector)
        running = [pod for pod in pods if pod["status"].get("phase") == "Running"]
        return running[0] if running else None

    def _find(self, kind: str, name: str = SERVICE) -> Object | None:
        return self.plane.client.find("v1", kind, name, namespace=NAMESPACE)


def _awaited(look: Callable[[], Found | None], what: str) -> Found:
    deadline = time.monotonic() + WAIT_SECONDS
    while (found := look()) is None:
        if time.monotonic() > deadline:
            raise NotReadyError(f"waited {WAIT_SECONDS:.0f} s in vain for {what}")
        time.sleep(_POLL_SECONDS)
    return found
