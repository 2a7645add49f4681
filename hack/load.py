"""Build the program in hack/client, once, and run it: what it prints comes back as objects.

It is Go: a client in Python would take from the webhook the very CPU time that is measured.
"""

import dataclasses
import json
import subprocess
from collections.abc import Generator
from pathlib import Path
from typing import Any, Final

from hack import tools

SOURCES: Final = Path(__file__).resolve().with_name("client")

Figures = dict[str, Any]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """What reviews are sent to: a port on loopback, and the name that its certificate has."""

    port: int
    authority: Path
    server_name: str
    bodies: Path

    def flags(self) -> tuple[str, ...]:
        return (
            f"-url=https://127.0.0.1:{self.port}/mutate",
            f"-ca={self.authority}",
            f"-server-name={self.server_name}",
            f"-bodies={self.bodies}",
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ApiServer:
    """Where Jobs are created, by whom, and what they are."""

    port: int
    authority: Path
    certificate: Path
    key: Path
    namespace: str
    bodies: Path

    def flags(self) -> tuple[str, ...]:
        return (
            f"-server=https://127.0.0.1:{self.port}",
            f"-ca={self.authority}",
            f"-cert={self.certificate}",
            f"-key={self.key}",
            f"-namespace={self.namespace}",
            f"-bodies={self.bodies}",
        )


def reviews(target: Webhook, *flags: str) -> Figures:
    """Post reviews as an API server does; the flags say when, `client reviews -h` lists them."""
    return _run("reviews", *target.flags(), *flags)


def jobs(target: ApiServer, *flags: str) -> Figures:
    """Create Jobs at an API server, as kubectl does."""
    return _run("jobs", *target.flags(), *flags)


def jobs_meanwhile(target: ApiServer, *flags: str) -> Generator[Figures]:
    """Create Jobs and yield what came back in each interval, as it comes; see `client jobs -h`."""
    command = [str(program()), "jobs", *target.flags(), *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            for line in process.stdout or ():
                yield json.loads(line)
        finally:
            process.terminate()


def _run(command: str, *flags: str) -> Figures:
    done = subprocess.run(
        [program(), command, *flags], stdout=subprocess.PIPE, text=True, check=True
    )
    found: Figures = json.loads(done.stdout)
    return found


def program() -> Path:
    """Return the program, building it first when these sources were never built here."""
    return tools.built("client", sorted(SOURCES.iterdir()), _build) / "client"


def _build(folder: Path) -> None:
    with tools.Progress("building the load program"):
        tools.Go().run("build", "-trimpath", "-o", str(folder / "client"), ".", cwd=SOURCES)


if __name__ == "__main__":
    print(program())
