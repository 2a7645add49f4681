"""The background process that holds one cluster of `make up`; everything dies with it.

It reports its steps on stdout and ends with `ready`. Whoever started it then says `keep`; if that
one goes away before, by Ctrl-C or worse, the keeper takes everything down again.

usage: python -m hack.keeper NAME bare|installed
"""

import json
import os
import shutil
import signal
import sys
import threading
from typing import Final, NoReturn

from hack import multikueue, tools
from hack.cluster import Cluster
from hack.controlplane import ControlPlane, Options
from hack.install import Installation
from hack.plane import Plane

READY: Final = "ready"
KEEP: Final = "keep"


def main() -> None:
    cluster = Cluster(name=sys.argv[1])
    signal.signal(signal.SIGTERM, _exit)
    kept = threading.Event()
    threading.Thread(target=_watch_starter, args=(kept,), daemon=True).start()
    try:
        _hold(cluster, installed=sys.argv[2] == "installed")
    finally:
        if not kept.is_set():
            shutil.rmtree(cluster.folder, ignore_errors=True)


def _hold(cluster: Cluster, *, installed: bool) -> None:
    options = Options(name=cluster.name or "kueue-fallback")
    with ControlPlane(cluster.state, options=options, report=_report) as plane:
        endpoints: dict[str, str] = {}
        if installed:
            _report("kueue-fallback")
            watched = f"clusters.watchWorkers={{{','.join(multikueue.WORKERS)}}}"
            installation = Installation(plane, chart_values=[watched])
            installation.up()
            endpoints = installation.endpoints
            shutil.copy(installation.ca_certificate, cluster.ca_certificate)
        _write_files(cluster, plane, endpoints)
        _report(READY)
        # The exit comes as a signal.
        threading.Event().wait()


def _write_files(cluster: Cluster, plane: Plane, endpoints: dict[str, str]) -> None:
    cluster.programs.mkdir()
    for name in ("kubectl", "helm"):
        (cluster.programs / name).symlink_to(tools.program(name))
    for name, text in own_programs().items():
        (cluster.programs / name).write_text(text)
        (cluster.programs / name).chmod(0o755)
    cluster.endpoints.write_text(json.dumps(endpoints, indent=2) + "\n")
    partial = cluster.folder / "kubeconfig.partial"
    shutil.copy2(plane.kubeconfig, partial)
    partial.rename(cluster.kubeconfig)


def own_programs() -> dict[str, str]:
    """Run the checkout's command line, whichever Python is on the user's PATH.

    The second one is what kubectl asks for the plugin's words.
    """
    python = os.path.abspath(sys.executable)  # noqa: PTH100 - resolve() would leave the venv
    asked = "from webhook.__main__ import complete; complete()"
    return {
        "kubectl-fallback": f'#!/bin/sh\nexec "{python}" -P -m webhook "$@"\n',
        "kubectl_complete-fallback": f'#!/bin/sh\nexec "{python}" -P -c "{asked}" "$@"\n',
    }


def _report(step: str) -> None:
    print(step, flush=True)


def _watch_starter(kept: threading.Event) -> None:
    """Take the end of stdin without `keep` before it for the starter's end."""
    if sys.stdin.readline().strip() == KEEP:
        kept.set()
    else:
        os.kill(os.getpid(), signal.SIGTERM)


def _exit(*_: object) -> NoReturn:
    # Once is enough; a second signal must not cut the end short.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise SystemExit(1)


if __name__ == "__main__":
    main()
