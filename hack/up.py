"""`make up`: start a cluster in the background, with this project installed from the checkout.

usage: python -m hack.up [--name NAME] [--bare]
"""

import argparse
import os
import re
import signal
import subprocess
import sys
import time
from typing import Final, NoReturn

from hack import keeper, tools
from hack.cluster import ROOT, Cluster
from hack.processes import MARK

ENDINGS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_ended: Final[list[int]] = []


def main() -> None:
    parser = argparse.ArgumentParser(prog="make up", description=__doc__.splitlines()[0])
    parser.add_argument("--name", default="", type=_name, help="a second cluster beside the first")
    parser.add_argument("--bare", action="store_true", help="without this project")
    given = parser.parse_args()
    cluster = Cluster(name=given.name)
    for ending in ENDINGS:
        signal.signal(ending, _end)
    # With the lock comes the cluster's folder: from then on an end must find who deletes it.
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDINGS)
    try:
        with cluster.locked() as lock:
            _up(cluster, lock, bare=given.bare)
    except BlockingIOError:
        _say_who_holds(cluster)
    except KeyboardInterrupt:
        sys.exit("Interrupted; nothing is left running.")


def _up(cluster: Cluster, lock: int, *, bare: bool) -> None:
    started = time.monotonic()
    up = False
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDINGS)
        _clear_leftovers(cluster)
        tools.ensure()
        with _start_keeper(cluster, lock, bare=bare) as process:
            _follow(process, cluster)
            if _ended:
                raise SystemExit(1)
            _tell_to_keep(process)
            up = True
            # It goes on without us.
            process.returncode = 0
    finally:
        if not up:
            # A second Ctrl-C must not leave anything behind.
            for ending in ENDINGS:
                signal.signal(ending, signal.SIG_IGN)
            cluster.remove()
    print(f"Up in {time.monotonic() - started:.0f} s.\n\n{next_steps(cluster, bare=bare)}")


def _clear_leftovers(cluster: Cluster) -> None:
    """Remove what a crash left; the lock was free, so nobody keeps it."""
    if cluster.state.exists():
        print(f"Clearing what a crash left in {cluster.folder.name}.", flush=True)
        cluster.clear()


def _start_keeper(cluster: Cluster, lock: int, *, bare: bool) -> "subprocess.Popen[str]":
    with cluster.log.open("w") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "hack.keeper", cluster.name, "bare" if bare else "installed"],
            cwd=ROOT,
            env={**os.environ, MARK: str(cluster.state)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            pass_fds=(lock,),
            start_new_session=True,
        )


def _follow(process: "subprocess.Popen[str]", cluster: Cluster) -> None:
    """Show the keeper's steps until it is ready."""
    steps = iter(process.stdout or ())
    step = next(steps, "").strip()
    while step != keeper.READY:
        if not step:
            raise SystemExit(f"The cluster did not start:\n{cluster.log.read_text()[-4000:]}")
        with tools.Progress(f"starting {step}"):
            step = next(steps, "").strip()


def _tell_to_keep(process: "subprocess.Popen[str]") -> None:
    if process.stdin:
        process.stdin.write(f"{keeper.KEEP}\n")
        process.stdin.flush()


def next_steps(cluster: Cluster, *, bare: bool) -> str:
    folder = os.path.relpath(cluster.folder)
    name = f" NAME={cluster.name}" if cluster.name else ""
    lines = [
        "Type next:",
        f'  export KUBECONFIG="$PWD/{folder}/kubeconfig" PATH="$PWD/{folder}/bin:$PATH"',
        "  kubectl apply -f examples/queues.yaml",
    ]
    if not bare:
        lines += [
            "  kubectl apply -f examples/policy.yaml",
            "  for n in {1..14}; do kubectl create -f examples/heavy-job.yaml; done",
            "  kubectl create -f examples/light-job.yaml",
            "  kubectl get jobs -n research -L kueue-fallback.dev/option",
            "  kubectl fallback explain -f examples/light-job.yaml",
        ]
    lines += [
        f"  make down{name}",
        f"Logs: {folder}/state/logs. Addresses: {folder}/endpoints.json",
    ]
    return "\n".join(lines)


def _say_who_holds(cluster: Cluster) -> None:
    if not cluster.kubeconfig.exists():
        sys.exit(f"{cluster.folder.name} is being started elsewhere.")
    bare = not cluster.ca_certificate.exists()
    print(f"Already running.\n\n{next_steps(cluster, bare=bare)}")


def _name(text: str) -> str:
    if not re.fullmatch(r"[a-z0-9-]*", text):
        raise argparse.ArgumentTypeError("a name is made of a-z, 0-9 and -")
    return text


def _end(ending: int, _frame: object) -> NoReturn:
    # Python ignores what is raised while a finalizer runs, so the signal is noted, too.
    _ended.append(ending)
    raise KeyboardInterrupt if ending == signal.SIGINT else SystemExit(1)


if __name__ == "__main__":
    main()
