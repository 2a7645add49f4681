"""Make the tables of Kueue's own scheduler tests, or say how far our model agrees with them.

usage: python -m hack.kueue_tables make [--dumped FOLDER]
       python -m hack.kueue_tables agreement [--update]

`make` takes the tables out of the Kueue module that go/go.mod names, which needs Go 1.26 and half a
minute once Go has built Kueue, and writes what replays need into tests/kueue_tables/data.
`agreement` replays them and prints the share of each table; with --update it also writes what it
found into tests/kueue_tables/agreement.yaml.
"""

import argparse
import importlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from hack.kueue_tables.pruned import TABLES, lines, pruned

ROOT: Final = Path(__file__).resolve().parents[2]
GO: Final = Path(__file__).resolve().parent / "go"
DATA: Final = ROOT / "tests/kueue_tables/data"


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m hack.kueue_tables",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    make = commands.add_parser("make", help="write tests/kueue_tables/data")
    make.add_argument("--dumped", type=Path, help="take what go/dump.sh has written there")
    agreement = commands.add_parser("agreement", help="print the share of cases that agree")
    agreement.add_argument(
        "--update", action="store_true", help="write it into tests/kueue_tables/agreement.yaml"
    )
    given = parser.parse_args()
    if given.command == "make":
        _make(given.dumped)
    else:
        sys.path.insert(0, str(ROOT))
        # The replays belong to the tests, of which nothing here depends otherwise.
        importlib.import_module("tests.kueue_tables.agreement").report(update=given.update)


def _make(dumped: Path | None) -> None:
    if dumped is not None:
        _write(dumped)
        return
    with tempfile.TemporaryDirectory() as folder:
        print("Taking the tables out of Kueue's tests; the first time Go builds Kueue.", flush=True)
        packages = {"PACKAGES": "\n".join(TABLES)}
        try:
            subprocess.run(
                [GO / "dump.sh", folder], env={**os.environ, **packages}, check=True, cwd=GO
            )
        except subprocess.CalledProcessError as error:
            sys.exit(f"{GO / 'dump.sh'} failed with {error.returncode}; it needs Go 1.26")
        _write(Path(folder))


def _write(dumped: Path) -> None:
    DATA.mkdir(parents=True, exist_ok=True)
    for package, tests in TABLES.items():
        prefix = package.removeprefix("pkg/").replace("/", "-")
        for test in tests:
            source = dumped / f"{prefix}.{test}.json"
            if not source.is_file():
                sys.exit(f"no table {test} in {package}: {source} is missing")
            text = lines(pruned(json.loads(source.read_text())))
            (DATA / f"{test}.json").write_text(text)
            print(f"{test}: {text.count(chr(10)) - 4} cases, {len(text) // 1024 + 1} KiB")


if __name__ == "__main__":
    main()
