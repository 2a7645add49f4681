"""Build promtool, which checks alert rules and metrics, once, into the cache of `hack.tools`.

It is a module of its own, so that another version of it does not rebuild the control plane.
"""

import hashlib
import sys
from pathlib import Path
from typing import Final

from hack import tools

MODULE: Final = Path(__file__).resolve().parent / "promtool"
PACKAGE: Final = "github.com/prometheus/prometheus/cmd/promtool"
# It would otherwise bring the libraries of two dozen clouds, to find servers that it never asks.
TAGS: Final = "remove_all_sd"


def ensure() -> Path:
    """Return the program, building it first when this version was never built here."""
    digest = hashlib.sha256(TAGS.encode())
    for name in ("go.mod", "go.sum"):
        digest.update((MODULE / name).read_bytes())
    return tools.built_program("promtool", digest.hexdigest()[:16], _build)


def _build(go: tools.Go, target: Path) -> None:
    flags = ("-trimpath", "-tags", TAGS, "-ldflags", "-s -w", "-o", str(target))
    with tools.Progress("building promtool; the first time takes about 3 minutes"):
        go.run("build", *flags, PACKAGE, cwd=MODULE)


if __name__ == "__main__":
    try:
        print(ensure())
    except KeyboardInterrupt:
        sys.exit("Interrupted; nothing half-built is kept.")
