"""A terminal on a control plane: runs command lines as a user would type them.

What helm starts as pods is run here in their place (see hack/release.py); nothing else is played.
"""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hack import tools
from hack.install import ROOT
from hack.release import HELM_SECONDS, Release

_LOGS: Final = re.compile(
    r"kubectl (?:-n kueue-fallback )?logs (?:-n kueue-fallback )?deployment/kueue-fallback"
    r"(?: --since[ =]\S+)?"
)
_INSTALLS: Final = frozenset({"install", "upgrade", "rollback"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What a command line printed, errors in between, and how it ended."""

    output: str
    code: int


class Terminal:
    """Commands are run in *folder*, with the control plane's programs and this checkout's own."""

    def __init__(self, release: Release, folder: Path) -> None:
        self.release = release
        self.folder = folder

    def run(self, text: str) -> Ran:
        words = shlex.split(text, comments=True)
        if words[0] == "helm" and words[1] in {*_INSTALLS, "uninstall"}:
            return self._helm(words[1:])
        done = subprocess.run(
            ["bash", "-c", self._with_logs(text)],
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            env=self._environment(),
        )
        return Ran(output=done.stdout, code=done.returncode)

    def _with_logs(self, text: str) -> str:
        """Read the server's log where it is: no kubelet has one."""
        log = self.release.plane.processes.log(self.release.replicas[0].name)
        return _LOGS.sub(f"cat {shlex.quote(str(log))}", text)

    def _environment(self) -> dict[str, str]:
        named = self.release.plane.state / "bin" / "kubectl"
        if not named.exists():
            named.parent.mkdir(exist_ok=True)
            named.symlink_to(tools.program("kubectl"))
        programs = (Path(sys.executable).parent, named.parent)
        path = os.pathsep.join((*map(str, programs), os.environ["PATH"]))
        own = {"KUBECONFIG": str(self.release.plane.kubeconfig), "PYTHONPATH": str(ROOT)}
        return {**self.release.environment, **own, "PATH": path}

    def _helm(self, words: Sequence[str]) -> Ran:
        """Let helm do it while the pods and hooks that it waits for are run."""
        verb, release = words[0], self.release
        with release.helming(*self._words(words)) as helm:
            if verb == "install":
                release.run_pods()
            release.run_hook("probe" if verb in _INSTALLS else "unfinished")
            output, _ = helm.communicate(timeout=HELM_SECONDS)
        if verb == "uninstall" and helm.returncode == 0:
            release.down()
        return Ran(output=output, code=helm.returncode)

    def _words(self, words: Sequence[str]) -> list[str]:
        """Take the chart whose Service leads here; the namespace is given to helm already."""
        found = list(words)
        at = found.index("-n")
        del found[at : at + 2]
        if "helm/" not in found:
            return found
        found[found.index("helm/")] = self.release.package()
        return [*found, *self.release.values]
