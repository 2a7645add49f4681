"""Build the controllers of the kinds of Jobs that Kueue queues, each when it is first asked for.

They come from the Go `tool` dependencies, some from modules of their own as they need other
versions than the control plane, and go into the same cache as its programs.
"""

import dataclasses
import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import yaml

from hack import tools
from hack.api import Object

MANIFESTS: Final = "webhooks.json"
_WEBHOOKS: Final = frozenset({"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"})


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One place of a program's sources that would take the machine's only port or folder."""

    file: str
    before: str
    after: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class JobProgram:
    """Where a controller comes from."""

    source: str
    """The Go module that its sources are in."""
    package: str
    """Its main package."""
    module: Path = tools.TOOLS / "kueue-0.19"
    """What requires it; with Kueue, where the same version of Kubernetes will do."""
    webhooks: str = ""
    """The folder of the module from which kustomize makes its webhooks."""
    change: Change | None = None


JOB_PROGRAMS: Final[Mapping[str, JobProgram]] = {
    "appwrapper": JobProgram(
        source="github.com/project-codeflare/appwrapper",
        package="github.com/project-codeflare/appwrapper/cmd",
        webhooks="config/default",
        change=Change(
            file="cmd/main.go",
            before="Port:    9443,",
            after='Port: func() (p int) { fmt.Sscan(os.Getenv("WEBHOOK_PORT"), &p); return }(),',
        ),
    ),
    "jobset": JobProgram(
        source="sigs.k8s.io/jobset", package="sigs.k8s.io/jobset", webhooks="config/default"
    ),
    "kuberay": JobProgram(
        source="github.com/ray-project/kuberay/ray-operator",
        package="github.com/ray-project/kuberay/ray-operator",
        module=tools.TOOLS / "kuberay",
    ),
    "lws": JobProgram(
        source="sigs.k8s.io/lws", package="sigs.k8s.io/lws/cmd", webhooks="config/default"
    ),
    "mpi-operator": JobProgram(
        source="github.com/kubeflow/mpi-operator",
        package="github.com/kubeflow/mpi-operator/cmd/mpi-operator",
        change=Change(
            file="cmd/mpi-operator/app/server.go",
            before="healthCheckPort = 8080",
            after="healthCheckPort = 0",
        ),
    ),
    "spark-operator": JobProgram(
        source="github.com/kubeflow/spark-operator/v2",
        package="github.com/kubeflow/spark-operator/v2/cmd/operator",
        module=tools.TOOLS / "spark-operator",
        webhooks="config/default",
    ),
    "trainer": JobProgram(
        source="github.com/kubeflow/trainer/v2",
        package="github.com/kubeflow/trainer/v2/cmd/trainer-controller-manager",
        webhooks="manifests/base/webhook",
    ),
    "training-operator": JobProgram(
        source="github.com/kubeflow/training-operator",
        package="github.com/kubeflow/training-operator/cmd/training-operator.v1",
        module=tools.TOOLS / "training-operator",
        webhooks="manifests/overlays/standalone",
        change=Change(
            file="pkg/cert/cert.go",
            before='"/tmp/k8s-webhook-server/serving-certs"',
            after='"k8s-webhook-server/serving-certs"',
        ),
    ),
}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """One finished build: the program, and what asks the API server to call its webhooks."""

    root: Path

    @property
    def program(self) -> Path:
        return self.root / "program"

    def webhooks(self) -> list[Object]:
        return list(json.loads((self.root / MANIFESTS).read_text()))


def ensure(name: str) -> Built:
    """Return a controller, building it first when this version was never built here."""
    wanted = JOB_PROGRAMS[name]

    def build(root: Path) -> None:
        with tools.Progress(f"building {name}, a controller of Jobs, for the first time"):
            _build(wanted, root)

    return Built(root=tools.built(f"controllers/{name}", tools.required_by(wanted.module), build))


def _build(wanted: JobProgram, root: Path) -> None:
    go = tools.Go()
    sources = go.downloaded(wanted.source, at=wanted.module)
    modfile = changed_sources(sources, wanted, root / "changed") if wanted.change else None
    go.build(wanted.package, target=root / "program", module=wanted.module, modfile=modfile)
    shutil.rmtree(root / "changed", ignore_errors=True)
    found = _kustomized(sources, wanted.webhooks) if wanted.webhooks else []
    (root / MANIFESTS).write_text(json.dumps(found))


def changed_sources(sources: Path, wanted: JobProgram, folder: Path) -> Path:
    """Copy the sources, with the change; return a go.mod that takes them from there."""
    copied, modfile = folder / "sources", folder / "go.mod"
    tools.copy(sources, copied)
    change = wanted.change
    if change is not None:
        path = copied / change.file
        text = path.read_text()
        if text.count(change.before) != 1:
            raise SystemExit(f"{wanted.source}: {change.file} has not one {change.before!r}")
        path.write_text(text.replace(change.before, change.after))
    required = (wanted.module / "go.mod").read_text()
    modfile.write_text(f"{required}\nreplace {wanted.source} => {copied}\n")
    shutil.copy(wanted.module / "go.sum", modfile.with_name("go.sum"))
    return modfile


def _kustomized(sources: Path, folder: str) -> list[Object]:
    """Return the webhooks' configurations under the names that they have in a cluster."""
    kubectl = tools.program("kubectl")
    done = subprocess.run(
        # A folder that is not relative and begins with a host's name would be fetched from there.
        [kubectl, "kustomize", folder],
        cwd=sources,
        capture_output=True,
        check=True,
    )
    items = yaml.load_all(done.stdout, Loader=yaml.CSafeLoader)
    return [item for item in items if item and item["kind"] in _WEBHOOKS]


if __name__ == "__main__":
    try:
        for each in sys.argv[1:] or JOB_PROGRAMS:
            print(ensure(each).root)
    except KeyboardInterrupt:
        sys.exit("Interrupted; nothing half-built is kept.")
