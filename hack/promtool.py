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
KEPT_BUILDS: Final = 2


def ensure() -> Path:
    """Return the program, building it first when this version was never built here."""
    folder = tools.cache_folder() / "promtool"
    finished = folder / _fingerprint()
    if finished.exists():
        return finished
    folder.mkdir(parents=True, exist_ok=True)
    with tools.one_builder(folder / "lock"):
        if not finished.exists():
            _build(finished)
            _forget_old_builds(folder)
    return finished


def _fingerprint() -> str:
    digest = hashlib.sha256(TAGS.encode())
    for name in ("go.mod", "go.sum"):
        digest.update((MODULE / name).read_bytes())
    return digest.hexdigest()[:16]


def _build(finished: Path) -> None:
    """Build under another name first: what has the final name is whole."""
    partial = finished.with_suffix(".partial")
    go = tools.Go(program=tools.find_go())
    flags = ("-trimpath", "-tags", TAGS, "-ldflags", "-s -w", "-o", str(partial))
    with tools.Progress("building promtool; the first time takes about 3 minutes"):
        go.run("build", *flags, PACKAGE, cwd=MODULE)
    partial.rename(finished)


def _forget_old_builds(folder: Path) -> None:
    builds = sorted(folder.glob("*[0-9a-f]"), key=lambda path: path.stat().st_mtime)
    for path in builds[:-KEPT_BUILDS]:
        path.unlink()


if __name__ == "__main__":
    try:
        print(ensure())
    except KeyboardInterrupt:
        sys.exit("Interrupted; nothing half-built is kept.")
