"""What a release publishes, made as the release workflow does, and installed as users get it.

Nothing of the checkout is on its path.
"""

import configparser
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
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
VERSION = PROJECT["version"]
PROCESSORS = {"x86_64": "amd64", "aarch64": "arm64", "arm64": "arm64"}
HEAVY = ("cryptography", "flask", "gunicorn", "kubernetes", "matplotlib", "prometheus_client")
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


def test_the_wheel_holds_the_two_packages_with_their_files_programs_and_licence(wheel):
    packed = zipfile.ZipFile(wheel)
    about = {name.rpartition("/")[2]: name for name in packed.namelist() if ".dist-info/" in name}

    programs = configparser.ConfigParser()
    programs.read_string(packed.read(about["entry_points.txt"]).decode())
    assert dict(programs["console_scripts"]) == PROJECT["scripts"]
    assert {"kueue-fallback", "kubectl-fallback"} <= set(PROJECT["scripts"])
    assert packed.read(about["LICENSE"]) == (ROOT / "LICENSE").read_bytes()
    assert {name for name in packed.namelist() if ".dist-info/" not in name} == {
        str(path.relative_to(ROOT))
        for top in ("certs", "webhook")
        for path in (ROOT / top).rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }


def test_an_empty_environment_gets_the_commands_from_the_wheel(wheel, tmp_path):
    venv.create(tmp_path / "empty")
    install = (sys.executable, "-m", "pip", "--python", str(tmp_path / "empty/bin/python"))
    install += ("install", "--quiet", "--no-compile")
    run(*install, "--requirement", str(ROOT / "requirements/run.txt"))
    # Without an index it is installed only if what it asks for is among the locked versions.
    run(*install, "--no-index", str(wheel))
    kueue_fallback, plugin = (
        str(tmp_path / "empty/bin" / name) for name in ("kueue-fallback", "kubectl-fallback")
    )

    text = run(plugin, "--help", cwd=tmp_path)
    listed = {line.split()[0] for line in text.splitlines() if line.startswith("  ")}
    checked = run(kueue_fallback, "check", "-f", str(POLICY), cwd=tmp_path)

    assert {"check", "control", "explain", "off", "on", "serve"} <= listed
    assert checked == f"{POLICY}:3: FallbackPolicy light-gpu is valid\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["check", "-f", str(POLICY)],
        ["simulate", "-f", str(ROOT / "examples/scenarios/uniform.yaml"), "--strategy", "static"],
        ["explain", "--help"],
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
    explained = run(
        *(*bare, "explain", "-f", str(ROOT / "examples/light-job.yaml")),
        *("--snapshot", str(ROOT / "examples/snapshot.json")),
        cwd=tmp_path,
    )

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
