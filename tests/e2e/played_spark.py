"""Spark's own program, played: the pods of driver and executors, as spark-submit is told.

The spark-operator runs ``$SPARK_HOME/bin/spark-submit``, which is Java and makes the driver, which
makes the executors. Here both are made at once, without the overhead that Spark adds to memory.
"""

import itertools
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

UNITS = {"k": "Ki", "m": "Mi", "g": "Gi"}
CONTAINERS = {"driver": "spark-kubernetes-driver", "executor": "spark-kubernetes-executor"}


def install(home: Path, kubectl: Path) -> Path:
    """Put the program where the operator looks for it; return the folder for ``SPARK_HOME``."""
    program = home / "bin/spark-submit"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {__file__} {kubectl} "$@"\n')
    program.chmod(0o755)
    return home


def pods_of(told: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the driver and its executors."""
    driver = told["spark.kubernetes.driver.pod.name"]
    prefix = driver.removesuffix("-driver")
    executors = int(told.get("spark.executor.instances", 1))
    return [
        _pod(told, "driver", driver),
        *(_pod(told, "executor", f"{prefix}-exec-{n}") for n in range(1, executors + 1)),
    ]


def _pod(told: Mapping[str, str], role: str, name: str) -> dict[str, Any]:
    of_role = f"spark.kubernetes.{role}"
    labels = {"spark-role": role, **_below(told, f"{of_role}.label.")}
    memory = told[f"spark.{role}.memory"]
    requests = {
        "cpu": told[f"{of_role}.request.cores"],
        "memory": memory[:-1] + UNITS[memory[-1]],
    }
    container = {
        "name": CONTAINERS[role],
        "image": told.get(f"{of_role}.container.image", "spark"),
        "resources": {"requests": requests},
    }
    metadata = {
        "name": name,
        "namespace": told["spark.kubernetes.namespace"],
        "labels": labels,
        "annotations": _below(told, f"{of_role}.annotation."),
    }
    spec = {"restartPolicy": "Never", "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _below(told: Mapping[str, str], prefix: str) -> dict[str, str]:
    return {key.removeprefix(prefix): told[key] for key in told if key.startswith(prefix)}


def _submit(kubectl: str, arguments: Sequence[str]) -> None:
    pairs = itertools.pairwise(arguments)
    told = dict(text.split("=", 1) for flag, text in pairs if flag == "--conf")
    items = {"apiVersion": "v1", "kind": "List", "items": pods_of(told)}
    subprocess.run([kubectl, "create", "-f", "-"], input=json.dumps(items), text=True, check=True)


if __name__ == "__main__":
    _submit(sys.argv[1], sys.argv[2:])
