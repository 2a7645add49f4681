"""Run `make up` and `make down` in tests, as make would."""

import subprocess
import sys

from hack.cluster import ROOT, Cluster


def command(script: str, cluster: Cluster, *arguments: str) -> list[str]:
    return [sys.executable, "-m", f"hack.{script}", "--name", cluster.name, *arguments]


def run(script: str, cluster: Cluster, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command(script, cluster, *arguments), cwd=ROOT, capture_output=True, text=True, check=False
    )
