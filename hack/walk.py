"""Walk a new admin's way on a real control plane, and write down what was typed and printed.

usage: python -m hack.walk [--faster 4] [--output docs/walk.md]
"""

import argparse
import re
import socket
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from hack.controlplane import ControlPlane
from hack.install import ROOT
from hack.release import Release
from hack.terminal import Ran, Terminal

PAGE: Final = ROOT / "docs/walk.md"
EXAMPLES: Final = ROOT / "examples"
LIGHT_SECONDS: Final = 20
MINIMUM_GAIN_SECONDS: Final = 30
_SHOW: Final = "-n research -L kueue-fallback.dev/option -L kueue.x-k8s.io/queue-name"
_REASON: Final = (
    "kubectl get job light-21 -n research "
    "-o jsonpath='{.metadata.annotations.kueue-fallback\\.dev/reason}{\"\\n\"}'"
)
_ONLY_CPU: Final = (
    'for n in $(seq 16); do sed "s/generateName: light-/name: cpu-$n/" light.yaml; echo ---; done'
    " | kubectl annotate --local -f - kueue-fallback.dev/allow=cpu -o yaml"
    " | kubectl create -f - 2>&1 | tail -3"
)
_LOGGED: Final = re.compile(r"[IWE]\d{4} \d\d:")
"""How kubectl begins a line about a watch that it takes up again."""
_HEAD: Final = """\
# A walk

This page shows what a new admin types, from install to uninstall, and what was printed.

Made by `python -m hack.walk` on a real control plane (etcd, kube-apiserver, Kueue).
The machine had two cores, and other programs ran on it.
The webhook runs as local processes, not pods.
Therefore `status` lists no servers; the lines in which helm finds no logs of pods are left out.
Run times are 1/{faster:g} of the examples'.
A test runs the same commands for every change.
"""


class WalkError(Exception):
    """A command did not end well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    title: str
    text: str
    commands: tuple[str, ...]


def steps() -> tuple[Step, ...]:
    return (_install(), _observe(), _forty_jobs(), _advise(), _enforce(), _undo(), _uninstall())


def _install() -> Step:
    return Step(
        title="Install",
        text="`helm install` returns only after the API server has called the webhook.",
        commands=(
            "helm install kueue-fallback helm/ -n kueue-fallback --create-namespace",
            "kubectl fallback probe",
            "kubectl apply -f queues.yaml",
        ),
    )


def _observe() -> Step:
    return Step(
        title="Observe",
        text="A policy that decides, counts and logs, and touches nothing.",
        commands=(
            "cat policy.yaml",
            "kubectl fallback check -f policy.yaml",
            "kubectl apply -f policy.yaml",
            "kubectl wait --for=condition=Ready fbp/light-gpu --timeout=60s",
            "kubectl get fbp",
            "kubectl fallback status",
        ),
    )


def _forty_jobs() -> Step:
    return Step(
        title="Forty Jobs",
        text="Twenty heavy and twenty light Jobs come for four GPUs and run as they would anyway.\n"
        "Once a few have ended it is known how long they run, and a light one would be sent to the "
        "CPUs; before that it would stay.",
        commands=(
            _create_all("20", "heavy", "light", tail=2),
            "kubectl wait -n research --for=condition=Complete job/light-3 --timeout=5m",
            "kubectl fallback explain -n research -f light.yaml",
            "kubectl wait -n research --for=condition=Complete job --all --timeout=10m | wc -l",
            "kubectl get jobs -n research -L kueue-fallback.dev/option | head -4",
            "kubectl fallback report --since 1h -n research",
            "kubectl fallback report --run-times",
        ),
    )


def _advise() -> Step:
    return Step(
        title="Advise",
        text="Now each Job gets its annotations, one that would be changed a warning too, and all "
        "still run where they were sent.",
        commands=(
            _mode("Advise"),
            _until("Advise"),
            _create_all("21 80", "heavy"),
            _create("light", "light-21"),
            _REASON,
        ),
    )


def _enforce() -> Step:
    return Step(
        title="Enforce",
        text="A light Job is sent to the CPU queue; no policy is for the heavy one.",
        commands=(
            _mode("Enforce"),
            _until("Enforce"),
            _create("light", "light-22"),
            _create("heavy", "heavy-81"),
            f"kubectl get jobs light-22 heavy-81 {_SHOW}",
            "kubectl fallback explain light-22 -n research",
            "kubectl fallback explain heavy-81 -n research",
        ),
    )


def _undo() -> Step:
    return Step(
        title="Undo",
        text="Sixteen Jobs that allow nothing but CPUs are more than fit there at once; one of "
        "those that wait is put back.",
        commands=(
            _ONLY_CPU,
            "kubectl fallback undo cpu-16 -n research",
            f"kubectl get job cpu-16 {_SHOW}",
        ),
    )


def _uninstall() -> Step:
    return Step(
        title="Uninstall",
        text="Jobs that were decided go on as they are; the policies stay until their definition "
        "is deleted.",
        commands=(
            "helm uninstall kueue-fallback -n kueue-fallback",
            _create("light", "light-23"),
            "kubectl delete crd fallbackpolicies.kueue-fallback.dev",
        ),
    )


def _create(kind: str, name: str) -> str:
    return f"{_named(kind, name)} | kubectl create -f -"


def _create_all(numbers: str, *kinds: str, tail: int = 1) -> str:
    """Create Jobs of each kind in turn, by one kubectl."""
    each = "; echo ---; ".join(_named(kind, f"{kind}-$n") for kind in kinds)
    return (
        f"for n in $(seq {numbers}); do {each}; echo ---; done | kubectl create -f - | tail -{tail}"
    )


def _named(kind: str, name: str) -> str:
    return f'sed "s/generateName: {kind}-/name: {name}/" {kind}.yaml'


def _mode(mode: str) -> str:
    return f"""kubectl patch fbp light-gpu --type=merge -p '{{"spec":{{"mode":"{mode}"}}}}'"""


def _until(mode: str) -> str:
    """Wait until the servers have seen it: until then Jobs are decided as before."""
    ask = "kubectl create -f light.yaml --dry-run=server -o yaml 2>/dev/null"
    return f"""until {ask} | grep -q '"mode":"{mode}"'; do sleep 0.2; done"""


def write_files(folder: Path, *, faster: float) -> None:
    """Write the files that the walk uses: the examples, with shorter run times on GPUs.

    Nobody waits for what runs on CPUs, and the one that is undone waits behind it.
    """
    (folder / "queues.yaml").write_text((EXAMPLES / "queues.yaml").read_text())
    for kind in ("light", "heavy"):
        text = (EXAMPLES / f"{kind}-job.yaml").read_text()
        short = re.sub(
            r"(gpu-run: )(\d+)s", lambda found: f"{found[1]}{_short(int(found[2]), faster)}", text
        )
        (folder / f"{kind}.yaml").write_text(short)
    policy = yaml.safe_load((EXAMPLES / "policy.yaml").read_text())
    policy["spec"]["mode"] = "Observe"
    policy["spec"]["options"][1]["slowdown"] = 3.5
    gain = {"time": _short(MINIMUM_GAIN_SECONDS, faster), "percent": 10}
    policy["spec"]["strategy"] = {
        "type": "FinishTime",
        "finishTime": {"runTime": _short(LIGHT_SECONDS, faster), "minimumGain": gain},
    }
    # With it variables are set so that they can change while a Job waits, and be undone.
    policy["spec"]["reconsider"] = {"after": "10m"}
    (folder / "policy.yaml").write_text(yaml.safe_dump(policy, sort_keys=False))


def _short(seconds: int, faster: float) -> str:
    return f"{max(1, round(seconds / faster))}s"


def walk(terminal: Terminal) -> Iterator[tuple[Step, list[tuple[str, Ran]]]]:
    """Take the steps, one after the other.

    Raises:
        WalkError: a command failed.

    """
    for step in steps():
        ran = []
        for command in step.commands:
            done = terminal.run(command)
            if done.code:
                raise WalkError(f"$ {command}\n{done.output}")
            ran.append((command, done))
        yield step, ran


def section(step: Step, ran: list[tuple[str, Ran]]) -> str:
    lines = [f"## {step.title}", "", step.text, "", "```console"]
    for command, done in ran:
        lines += [f"$ {command}", *_shown(done.output)]
    return "\n".join([*lines, "```", ""])


def _shown(output: str) -> Iterator[str]:
    """Leave out what only this machine says: its name, and what programs log beside it."""
    for line in output.rstrip().splitlines():
        if "failed to stream pod logs" not in line and not _LOGGED.match(line):
            yield re.sub(rf"\b{re.escape(socket.gethostname())}(?=[ _])", "POD", line).rstrip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--faster", type=float, default=4.0, help="divides all run times")
    parser.add_argument("--output", type=Path, default=PAGE)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kueue-fallback-walk-") as name:
        folder = Path(name) / "walk"
        folder.mkdir()
        write_files(folder, faster=given.faster)
        with ControlPlane(Path(name) / "plane", report=print) as plane:
            release = Release(plane, Path(name), certificates="selfManaged")
            try:
                sections = [section(*taken) for taken in walk(Terminal(release, folder))]
            finally:
                release.down()
    given.output.write_text("\n".join([_HEAD.format(faster=given.faster), *sections]))


if __name__ == "__main__":
    main()
