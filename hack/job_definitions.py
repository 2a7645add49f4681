"""The CustomResourceDefinitions of the kinds of Jobs that Kueue queues, from their Go modules.

They are read when they are first asked for, into the same cache as the programs.
"""

import hashlib
import json
from pathlib import Path
from typing import Any, Final

import yaml

from hack import tools
from hack.definitions import without_texts

Object = dict[str, Any]

KUEUE: Final = tools.TOOLS / "kueue-0.19"

# Module, and its files. The training operator's MPIJob is an older version of the MPI operator's.
_FILES: Final = (
    ("github.com/kubeflow/mpi-operator", "manifests/base/kubeflow.org_mpijobs.yaml"),
    ("github.com/kubeflow/spark-operator/v2", "config/crd/bases/*.yaml"),
    ("github.com/kubeflow/trainer/v2", "manifests/base/crds/trainer*.yaml"),
    ("github.com/kubeflow/training-operator", "manifests/base/crds/kubeflow.org_[!m]*.yaml"),
    ("github.com/project-codeflare/appwrapper", "config/crd/bases/*.yaml"),
    ("github.com/ray-project/kuberay/ray-operator", "config/crd/bases/ray.io_*.yaml"),
    ("sigs.k8s.io/jobset", "config/components/crd/bases/*.yaml"),
    ("sigs.k8s.io/lws", "config/crd/bases/*.yaml"),
)


def definitions() -> list[Object]:
    """Return them as what `kubectl create` takes."""
    listed = hashlib.sha256(repr(_FILES).encode()).hexdigest()[:8]
    folder = tools.built(f"job-definitions-{listed}", tools.required_by(KUEUE), _keep)
    return list(json.loads((folder / "definitions.json").read_text()))


def _keep(folder: Path) -> None:
    go = tools.Go()
    found = [
        yaml.load(path.read_text(), Loader=yaml.CSafeLoader)
        for module, pattern in _FILES
        for path in sorted(go.downloaded(module, at=KUEUE).glob(pattern))
    ]
    (folder / "definitions.json").write_text(json.dumps([_plain(one) for one in found]))


def _plain(definition: Object) -> Object:
    """Return a definition without what asks for a controller's own webhook, and without texts."""
    definition["spec"].pop("conversion", None)
    return without_texts(definition)
