"""The chart installed by helm itself, as its users do, on a control plane without kubelets.

A test plays the kubelet: it runs what the pods would run, with their ServiceAccounts' tokens. Of
the chart, only the Service is another one: it leads the API server to localhost.
"""

import contextlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import yaml

from hack.install import NAMESPACE, ROOT, SERVICE, Installation, kubeconfig_of
from tests.e2e.plane import wait_for

EXTERNAL = """
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


class Release(Installation):
    """One release of the chart and the processes of its pods."""

    def __init__(self, plane, folder, **more):
        super().__init__(plane, **more)
        self.folder = folder

    def package(self, *, version="", change=lambda chart: None):
        """Package the checkout's chart with the other Service; *change* edits the copy before."""
        chart = self.folder / f"chart-{version}"
        shutil.copytree(ROOT / "helm", chart)
        (chart / "templates/service.yaml").write_text(EXTERNAL)
        change(chart)
        words = ["--version", version] if version else []
        done = self.helm("package", str(chart), "-d", str(self.folder / "packages"), *words)
        return done.stdout.split(": ")[-1].strip()

    def helm(self, *words, check=True):
        done = subprocess.run(
            self._command(words), capture_output=True, text=True, check=False, env=self._environment
        )
        assert not check or done.returncode == 0, done.stderr
        return done

    @contextlib.contextmanager
    def helming(self, *words):
        """Run helm while something else happens; it has ended well in the end."""
        with subprocess.Popen(
            self._command(words),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=self._environment,
        ) as process:
            try:
                yield process
            except BaseException:
                process.kill()
                raise

    def _command(self, words):
        program = self.plane.programs.path("helm")
        return [program, "--kubeconfig", self.plane.kubeconfig, "-n", NAMESPACE, *words]

    @property
    def _environment(self):
        homes = ("HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME")
        return {**os.environ, **{home: str(self.folder / home) for home in homes}}

    @property
    def values(self):
        """What this control plane needs: its port, and pods that wait for the test to end them."""
        given = [f"service.port={self.port}", f"certificates.mode={self.certificates}"]
        if self.certificates == "files":
            given.append(f"certificates.files.caBundle={self.pki.ca_bundle}")
        # A process that is asked to end has five seconds here.
        given.append("webhook.drainSeconds=2")
        given.append(r"podAnnotations.sim\.example\.com/cpu-run=1h")
        return [word for value in given for word in ("--set", value)]

    def run_pods(self):
        """Start what the Deployments' pods would run, once their objects are there."""
        config_map = wait_for(lambda: self._find("ConfigMap"), "the settings are installed")
        wait_for(lambda: self._find("ServiceAccount"), "the ServiceAccounts are installed")
        wait_for(lambda: self._find("ServiceAccount", f"{SERVICE}-controller"), "the other one too")
        self.run(config_map["data"]["settings.yaml"])

    def run_hook(self, part):
        """Run what the hook's pod would run, with its rights, and let the pod end with it."""
        account = f"{SERVICE}-{part}"
        pod = wait_for(lambda: self.pod_of(part), f"the pod of {part} is there")
        kubeconfig = kubeconfig_of(self.plane, account)
        arguments = pod["spec"]["containers"][0]["args"]
        command = [sys.executable, "-m", "webhook", *arguments, "--kubeconfig", str(kubeconfig)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
        self.end_pod(pod, "Succeeded" if done.returncode == 0 else "Failed")
        return done

    def end_pod(self, pod, phase):
        name = pod["metadata"]["name"]
        status = {"status": {"phase": phase}}
        self.plane.client.patch(
            "v1", "Pod", name, status, namespace=NAMESPACE, subresource="status"
        )

    def pod_of(self, part):
        selector = f"app.kubernetes.io/component={part}"
        pods = self.plane.client.list("v1", "Pod", namespace=NAMESPACE, selector=selector)
        running = [pod for pod in pods if pod["status"].get("phase") == "Running"]
        return running[0] if running else None

    def _find(self, kind, name=SERVICE):
        return self.plane.client.find("v1", kind, name, namespace=NAMESPACE)


def former(chart: Path) -> None:
    """Make the chart an older one: a definition with a field less, and another setting."""
    path = chart / "files/fallbackpolicies.yaml"
    definition = yaml.safe_load(path.read_text())
    del definition["spec"]["names"]["shortNames"]
    path.write_text(yaml.safe_dump(definition))
    values = chart / "values.yaml"
    values.write_text(values.read_text().replace("settings: {}", "settings: {keep_alive: 100}"))
