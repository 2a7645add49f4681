"""Make the folders that become the image's layers; runs in the Dockerfile, under its base.

usage: image_root.py python|dependencies|project ENVIRONMENT LAYER [BELOW]

A layer holds files alone that its contents decide: one date, plain modes, byte code that names its
source by hash and not by date. So the same sources make the same layer anywhere, any day.
"""

import compileall
import os
import py_compile
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path

# What no server needs. The second list is modules in C, with libraries of their own.
UNUSED = "ensurepip idlelib lib2to3 pydoc_data sqlite3 test tkinter turtle.py turtledemo venv"
UNUSED_C = r"(_curses|_dbm|_gdbm|_sqlite3|_test|_tkinter|_xx|readline|xx)"
# The Kubernetes client's asynchronous twin, and what only that asks for.
UNUSED_CLIENT = "kubernetes/aio"
UNUSED_PACKAGES = (
    "aiohappyeyeballs aiohttp aiohttp_retry aiosignal frozenlist multidict propcache yarl"
)
# Its models and calls, each loaded when asked for; the webhook sends and reads plain JSON.
UNUSED_MODULES = ("kubernetes/client/api", "kubernetes/client/models")
# Loaded by name while running, which no list of needed libraries shows: the end of a thread.
BY_NAME = ("libgcc_s.so.1",)
FILES = (
    "/etc/ld.so.conf",
    "/etc/os-release",
    "/etc/ssl/certs/ca-certificates.crt",
    "/usr/lib/ssl/openssl.cnf",
)
WRITTEN = {
    "etc/passwd": "root:x:0:0:root:/:/nonexistent\n"
    "kueue-fallback:x:65532:65532:kueue-fallback:/:/nonexistent\n",
    "etc/group": "root:x:0:\nkueue-fallback:x:65532:\n",
    "etc/nsswitch.conf": "hosts: files dns\n",
}
FOLDERS = ("dev", "proc", "run", "sys", "tmp")


def main() -> None:
    kind, environment, layer, *below = sys.argv[1:]
    target = Path(layer)
    if kind == "python":
        python(Path(environment), target)
    elif kind == "dependencies":
        dependencies(Path(environment), target)
    else:
        project(Path(environment), target, Path(below[0]))
    finish(target)


def dependencies(environment: Path, layer: Path) -> None:
    """Take the environment without what is never imported or started."""
    (packages,) = environment.glob("lib/python*/site-packages")
    shutil.rmtree(packages / UNUSED_CLIENT)
    for folder in UNUSED_MODULES:
        for module in (packages / folder).glob("*.py"):
            if module.name != "__init__.py":
                module.unlink()
    for name in UNUSED_PACKAGES.split():
        shutil.rmtree(packages / name)
        (described,) = packages.glob(f"{name}-*.dist-info")
        shutil.rmtree(described)
    for script in (environment / "bin").iterdir():
        if not script.name.startswith("python"):
            script.unlink()
    shutil.rmtree(environment / "include", ignore_errors=True)
    for path in _files(environment):
        _take(path, layer)


def project(environment: Path, layer: Path, below: Path) -> None:
    """Take what the environment has got since the layer below was made."""
    for path in _files(environment):
        if not os.path.lexists(_inside(below, path)):
            _take(path, layer)


def python(environment: Path, layer: Path) -> None:
    """Take the interpreter, its library, and the shared libraries of both and the environment."""
    for path in (Path(sys.executable), *_standard_library(), *map(Path, FILES)):
        if path.exists():
            copy(path, layer)
    programs = [path for path in _files(layer) if _is_elf(path)]
    programs += [path for path in _files(environment) if _is_elf(path)]
    for path in sorted(_libraries(programs)):
        copy(path, layer)
    for folder in FOLDERS:
        (layer / folder).mkdir(parents=True, exist_ok=True)
    for name, text in WRITTEN.items():
        (layer / name).write_text(text)
    _describe_packages(layer)
    _index_libraries(layer)


def finish(layer: Path) -> None:
    """Make the layer independent of when, where and by whom it was made."""
    _compile(layer)
    _level(layer)


def copy(path: Path, layer: Path) -> None:
    """Copy a file to its place in the layer, with every link on the way to it."""
    walked = Path("/")
    for index, part in enumerate(path.parts[1:], start=2):
        walked /= part
        inside = _inside(layer, walked)
        if walked.is_symlink():
            target = walked.readlink()
            if not inside.is_symlink():
                inside.symlink_to(target)
            rest = Path(*path.parts[index:])
            copy(Path(os.path.normpath(walked.parent / target / rest)), layer)
            return
        if walked.is_dir():
            inside.mkdir(parents=True, exist_ok=True)
    shutil.copy(path, _inside(layer, path))


def _take(path: Path, layer: Path) -> None:
    """Copy a file, or a link as it is: what it leads to is in another layer."""
    inside = _inside(layer, path)
    inside.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(path, inside, follow_symlinks=False)


def _inside(layer: Path, path: Path) -> Path:
    return layer / path.relative_to("/")


def _files(folder: Path) -> Iterator[Path]:
    """Find files and links to files; no byte code."""
    for root, folders, names in os.walk(folder):
        folders[:] = sorted(set(folders) - {"__pycache__"})
        yield from (Path(root) / name for name in sorted(names))


def _standard_library() -> Iterator[Path]:
    root = Path(sysconfig.get_path("stdlib"))
    unused = {root / name for name in UNUSED.split()}
    unused |= {root / name for name in ("site-packages", "dist-packages")}
    unused |= set(root.glob("config-*"))
    for path in _files(root):
        in_c = path.parent.name == "lib-dynload" and re.match(UNUSED_C, path.name)
        if not in_c and unused.isdisjoint((path, *path.parents)) and path.suffix != ".a":
            yield path


def _is_elf(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def _libraries(programs: Iterable[Path]) -> set[Path]:
    command = ["ldd", *map(str, programs)]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    if "not found" in listed:
        sys.exit(f"a library is missing:\n{listed}")
    found = {Path(name) for name in re.findall(r"(/\S+) \(0x", listed)}
    (folder,) = {path.parent for path in found if path.name.startswith("libc.so")}
    return found | {folder / name for name in BY_NAME}


def _describe_packages(layer: Path) -> None:
    """Keep what dpkg knows about the packages that files came from, for scanners."""
    names = [str(path.relative_to(layer)) for path in _files(layer)]
    # Some files are listed as they were before /lib and /bin became links into /usr.
    guesses = [f"/{guess}" for name in names for guess in {name, name.removeprefix("usr/")}]
    asked = subprocess.run(["dpkg", "-S", *guesses], capture_output=True, text=True, check=False)
    owners = set(re.findall(r"^([a-z0-9.+-]+(?::[a-z0-9]+)?): /", asked.stdout, re.MULTILINE))
    folder = layer / "var/lib/dpkg/status.d"
    folder.mkdir(parents=True)
    for owner in sorted(owners):
        status = subprocess.run(["dpkg", "-s", owner], capture_output=True, text=True, check=True)
        (folder / owner.partition(":")[0]).write_text(status.stdout)


def _index_libraries(layer: Path) -> None:
    """Let the loader find libraries where only its configuration says that there are some."""
    shutil.copytree("/etc/ld.so.conf.d", layer / "etc/ld.so.conf.d", dirs_exist_ok=True)
    subprocess.run(["ldconfig", "-X", "-r", str(layer)], check=True)
    shutil.rmtree(layer / "var/cache", ignore_errors=True)


def _compile(layer: Path) -> None:
    done = compileall.compile_dir(
        layer,
        quiet=1,
        maxlevels=20,
        stripdir=str(layer),
        prependdir="/",
        invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
    )
    if not done:
        sys.exit("some modules could not be compiled")


def _level(layer: Path) -> None:
    """Give everything one date and plain modes."""
    date = int(os.environ["SOURCE_DATE_EPOCH"])
    for path in sorted(layer.rglob("*"), reverse=True):
        if not path.is_symlink():
            executable = path.is_dir() or path.stat().st_mode & 0o111
            path.chmod(0o755 if executable else 0o644)
        os.utime(path, (date, date), follow_symlinks=False)
    temporary = layer / "tmp"
    if temporary.is_dir():
        temporary.chmod(0o1777)
    os.utime(layer, (date, date))


if __name__ == "__main__":
    main()
