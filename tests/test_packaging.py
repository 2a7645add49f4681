"""What a release publishes, made as the release workflow does, and installed as users get it.

Nothing of the checkout is on its path.
"""

import hashlib
import platform
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
import yaml

from hack.waiting import WAIT_SECONDS

ROOT = Path(__file__).resolve().parents[1]
POLICY = ROOT / "examples/policy.yaml"
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
PROCESSORS = {"x86_64": "amd64", "aarch64": "arm64", "arm64": "arm64"}
# What the command line needs before it has a command; the rest waits for who asks for it.
NEEDED = ("annotated-types", "click", "pydantic", "pydantic-core", "PyYAML")
NEEDED += ("typing-extensions", "typing-inspection")
HEAVY = ("cryptography", "flask", "gunicorn", "kubernetes", "prometheus_client")
LOADED = f"""
import sys
from webhook.__main__ import main
try:
    main(sys.argv[1:], standalone_mode=False)
except SystemExit as end:
    assert not end.code, end.code
print("loaded:", sorted(set(sys.modules) & set({HEAVY!r})))
"""

pytestmark = pytest.mark.xdist_group("packaging")


def run(*command, cwd=None):
    result = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=cwd, timeout=WAIT_SECONDS
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def released(tmp_path_factory):
    """What a release publishes, of the platform and the Python that the tests run under alone."""
    folder = tmp_path_factory.mktemp("released")
    here = f"{platform.system()}-{PROCESSORS[platform.machine()]}".lower()
    python = "{}.{}".format(*sys.version_info)
    given = ("--repository", "Some-Org/kueue-fallback", "--platforms", here, "--pythons", python)
    run(
        *(sys.executable, "-m", "hack.artifacts", f"v{VERSION}", *given),
        *("--folder", str(folder)),
        cwd=ROOT,
    )
    return folder


@pytest.fixture(scope="module")
def wheel(released):
    (built,) = released.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """Install the wheel where there is nothing else, in the locked versions; return its `bin`."""
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder)
    python = str(folder / "bin/python")
    install = (sys.executable, "-m", "pip", "--python", python, "install", "--quiet")
    locked = ROOT / "requirements/run.txt"
    pins = [_without_hashes(line) for line in locked.read_text().splitlines() if "==" in line]
    constraints = folder / "constraints.txt"
    constraints.write_text("\n".join(pins))
    run(*install, "--constraint", str(constraints), *NEEDED)
    run(*install, "--no-deps", str(wheel))
    return folder / "bin"


def _without_hashes(line):
    return line.removesuffix("\\").strip()


def test_the_wheel_holds_the_two_packages_and_nothing_else(wheel):
    names = zipfile.ZipFile(wheel).namelist()

    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"certs", "webhook"}


def test_the_wheel_holds_every_module_and_the_files_that_these_read(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())

    modules = [path for top in ("webhook", "certs") for path in (ROOT / top).rglob("*.py")]
    assert {str(path.relative_to(ROOT)) for path in modules} <= names
    assert {"webhook/py.typed", "webhook/console/openapi.yaml"} <= names


def test_the_wheel_holds_what_the_page_is_drawn_with(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())

    files = (ROOT / "webhook/console/templates").iterdir()
    assert {str(path.relative_to(ROOT)) for path in files} <= names


def test_the_wheel_carries_the_licence(wheel):
    (name,) = (n for n in zipfile.ZipFile(wheel).namelist() if n.endswith("LICENSE"))

    assert zipfile.ZipFile(wheel).read(name) == (ROOT / "LICENSE").read_bytes()


@pytest.mark.parametrize("program", ["kueue-fallback", "kubectl-fallback"])
def test_help_lists_the_commands(installed, tmp_path, program):
    text = run(str(installed / program), "--help", cwd=tmp_path)

    listed = {line.split()[0] for line in text.splitlines() if line.startswith("  ")}
    assert {"check", "control", "explain", "off", "on", "serve"} <= listed


def test_the_example_policy_is_accepted_by_the_installed_command(installed, tmp_path):
    text = run(str(installed / "kueue-fallback"), "check", "-f", str(POLICY), cwd=tmp_path)

    assert text == f"{POLICY}:3: FallbackPolicy light-gpu is valid\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["check", "-f", str(POLICY)],
        ["completion", "bash"],
        *([name, "--help"] for name in ("explain", "off", "status", "tail", "undo")),
    ],
)
def test_no_server_client_or_cryptography_is_loaded_to_answer(tmp_path, arguments):
    text = run(sys.executable, "-c", LOADED, *arguments, cwd=tmp_path)

    assert text.splitlines()[-1] == "loaded: []"


def test_the_chart_has_the_tags_version_and_runs_the_published_image(released):
    """What it renders was looked at when it was made: it would not be here otherwise."""
    with tarfile.open(released / f"kueue-fallback-{VERSION}.tgz") as packed:
        chart, values = (
            yaml.safe_load(packed.extractfile(f"kueue-fallback/{name}.yaml"))
            for name in ("Chart", "values")
        )

    assert (chart["version"], chart["appVersion"]) == (VERSION, VERSION)
    assert values["image"]["repository"] == "ghcr.io/some-org/kueue-fallback"


def test_the_plugin_for_krew_runs_with_nothing_but_python(released, tmp_path):
    (archive,) = released.glob("kubectl-fallback_*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path / "store", filter="data")
    # krew links to the file in its store.
    (tmp_path / "kubectl-fallback").symlink_to(tmp_path / "store/kubectl-fallback")

    bare = (sys.executable, "-S", str(tmp_path / "kubectl-fallback"))
    version = run(*bare, "version", "--client", cwd=tmp_path)
    explained = run(
        *(*bare, "explain", "-f", str(ROOT / "examples/light-job.yaml")),
        *("--snapshot", str(ROOT / "examples/snapshot.json")),
        cwd=tmp_path,
    )

    assert version == f"Client: {VERSION}\n"
    assert explained.startswith("Policy light-gpu (Enforce): sent to cpu-lq (cpu): starts now")


def test_the_checksums_are_those_of_all_files(released):
    lines = (released / "SHA256SUMS").read_text().splitlines()

    sums = dict(reversed(line.split("  ")) for line in lines)
    files = {path.name: path for path in released.iterdir() if path.name != "SHA256SUMS"}
    assert sums == {
        name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files.items()
    }
    manifest = yaml.safe_load((released / "fallback.yaml").read_text())
    (archive,) = manifest["spec"]["platforms"]
    assert archive["sha256"] == sums[archive["uri"].rpartition("/")[2]]
