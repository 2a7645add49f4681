"""Measure what the webhook costs, on control planes of its own.

usage: python -m bench [--quick] [--dry-run] [-o json] [--folder FOLDER] [SECTION...]

Sections: `creates` of Jobs at the API server, against its own policy engine; `state`, the webhook
beside 20,000 pending Workloads. Exits with 1 when a target is missed. Every figure is wall time,
so what else runs on the machine counts: the load average is printed beside them.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench import creates, report, state
from bench.plane import installed, say
from bench.report import QUICK, Figures, Scale

SECTIONS: Final = {"creates": creates, "state": state}


def main() -> None:
    given = arguments()
    scale = QUICK if given.quick else Scale()
    kinds = ("dry run",) if given.dry_run else tuple(creates.KINDS)
    figures: Figures = {"machine": report.machine()}
    if "creates" in given.sections:
        with installed() as installation:
            figures["creates"] = creates.measure(installation, scale, say, kinds=kinds)
        keep(figures, given.folder)
    if "state" in given.sections:
        with installed() as installation:
            figures["cluster"] = state.fill(installation, scale, say)
            figures["state"] = state.measure(installation, scale, say)
        keep(figures, given.folder)
    sys.exit(0 if _tell(figures, given) else 1)


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__.splitlines()[0])
    parser.add_argument("sections", nargs="*", type=_section, help=f"of {', '.join(SECTIONS)}")
    parser.add_argument("--quick", action="store_true", help="less of everything")
    parser.add_argument("--dry-run", action="store_true", help="keep no Job, only ask")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")
    parser.add_argument("--folder", type=Path, help="for bench.json")
    found = parser.parse_args(given)
    found.sections = found.sections or list(SECTIONS)
    return found


def _section(text: str) -> str:
    """Check it here: argparse's own choices refuse that none is given."""
    if text not in SECTIONS:
        raise argparse.ArgumentTypeError(f"{text} is none of {', '.join(SECTIONS)}")
    return text


def keep(figures: Figures, folder: Path | None) -> None:
    """Write down what is measured so far: what took half an hour must outlive an interruption."""
    if folder is None:
        return
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "bench.json").write_text(json.dumps(figures, indent=1))


def _tell(figures: Figures, given: argparse.Namespace) -> bool:
    """Print the figures and tell whether every target is met."""
    found = {name: SECTIONS[name].targets(figures[name]) for name in SECTIONS if name in figures}
    if given.output == "json":
        print(json.dumps(figures, indent=1))
    else:
        print(_text(figures, found))
    return all(target.is_met for targets in found.values() for target in targets)


def _text(figures: Figures, targets: dict[str, list[report.Target]]) -> str:
    lines = [", ".join(f"{key} {value}" for key, value in figures["machine"].items())]
    if "cluster" in figures:
        lines.append(", ".join(f"{key} {value}" for key, value in figures["cluster"].items()))
    for name, wanted in targets.items():
        lines += ["", f"== {name} ==", *SECTIONS[name].lines(figures[name]), ""]
        lines += [target.line() for target in wanted]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
