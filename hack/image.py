"""Build the image of the Dockerfile: `make image`.

usage: python -m hack.image [--tag NAME] [--base IMAGE | --debian SUITE] [--twice] [...]

--debian makes the base from Debian's packages, for places that reach no registry of images.
--twice builds two times from nothing, and exits with 1 unless all layers are the same.
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from hack import image_base
from hack.image_builder import (
    BUILDERS,
    ROOT,
    Builder,
    Built,
    Wish,
    build,
    built,
    find_builder,
    git_revision,
    project_version,
)

NO_BUILDER: Final = f"""\
No program that builds images was found; looked for {", ".join(BUILDERS)}.
On Debian and Ubuntu, as root: apt-get install --no-install-recommends buildah
With it and mmdebstrap, `python -m hack.image --debian trixie` needs no registry of images."""


def main() -> None:
    given = _arguments()
    builder = find_builder(given.store)
    if builder is None:
        sys.exit(NO_BUILDER)
    if given.twice and builder.program != "buildah":
        sys.exit(f"--twice needs buildah; {builder.program} tells no digests of layers")
    try:
        base = image_base.make(builder, given.debian) if given.debian else given.base
        wish = Wish(
            tag=given.tag,
            base=base,
            revision=git_revision(),
            oci=given.format == "oci",
            cached=not given.no_cache,
        )
        if given.twice:
            sys.exit(_twice(builder, wish))
        build(builder, wish)
    except image_base.MissingError as error:
        sys.exit(str(error))
    except subprocess.CalledProcessError as error:
        sys.exit(f"{error.cmd[0]} failed; its last lines above say why")
    print(f"built {wish.tag} with {builder.program}")


def build_twice(builder: Builder, wish: Wish) -> tuple[Built, Built]:
    """Build two times without any cache, each from a new copy of the same sources."""
    with tempfile.TemporaryDirectory(prefix="kueue-fallback-image-") as folder:
        copies = [copy_context(wish.context, Path(folder) / name) for name in ("first", "second")]
        first, second = (_build_copy(builder, wish, copy) for copy in copies)
    return first, second


def _build_copy(builder: Builder, wish: Wish, context: Path) -> Built:
    build(builder, replace(wish, cached=False, context=context))
    return built(builder, wish.tag)


def copy_context(root: Path, target: Path) -> Path:
    """Copy what a builder sees of the sources."""
    for name in context_files(root):
        copy = target / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes((root / name).read_bytes())
    return target


def context_files(root: Path = ROOT) -> Iterator[str]:
    """Name the files that .dockerignore lets through, and what describes the build."""
    yield from ("Dockerfile", ".dockerignore")
    for line in (root / ".dockerignore").read_text().splitlines():
        if line.startswith("!"):
            path = root / line[1:]
            for each in sorted(path.rglob("*")) if path.is_dir() else [path]:
                if each.is_file() and "__pycache__" not in each.parts:
                    yield str(each.relative_to(root))


def _twice(builder: Builder, wish: Wish) -> int:
    first, second = build_twice(builder, wish)
    print("\n".join(table(first, second)))
    return 0 if first.layers == second.layers else 1


def table(first: Built, second: Built) -> Iterator[str]:
    yield "| | MB | first build | second build |"
    yield "|---|---:|---|---|"
    names = ("Python", "dependencies", "project")
    for name, size, one, two in zip(names, first.sizes, first.layers, second.layers, strict=True):
        yield f"| {name} | {size / 1e6:.1f} | `{one}` | `{two}` |"
    yield f"| image | {sum(first.sizes) / 1e6:.1f} | `{first.digest}` | `{second.digest}` |"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="hack.image", description="Build the image.")
    parser.add_argument(
        "--tag", default=f"kueue-fallback:{project_version()}", help="[%(default)s]"
    )
    parser.add_argument("--base", default="", help="any Debian with python3 [the Dockerfile's]")
    parser.add_argument("--debian", default="", help="make the base of this suite's packages")
    parser.add_argument("--format", choices=("docker", "oci"), default="docker", help="[docker]")
    parser.add_argument("--store", default="", help="folder for images, not the builder's own")
    parser.add_argument("--no-cache", action="store_true", help="repeat every step")
    parser.add_argument("--twice", action="store_true", help="build twice, compare the layers")
    return parser.parse_args()


if __name__ == "__main__":
    main()
