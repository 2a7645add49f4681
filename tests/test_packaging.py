"""The wheel, built and installed as users get it, with nothing of the checkout on its path."""

import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
POLICY = ROOT / "examples/policy.yaml"
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
        command, capture_output=True, text=True, check=False, cwd=cwd, timeout=300
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    # A copy, so that the build leaves nothing in the checkout and takes nothing old from it.
    for name in run("git", "ls-files", "-co", "--exclude-standard", cwd=ROOT).splitlines():
        if name.startswith(("webhook/", "certs/", "hack/", "bench/", "tests/")) or "/" not in name:
            copy = source / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes((ROOT / name).read_bytes())
    build = ("pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation")
    run(sys.executable, "-m", *build, "--wheel-dir", str(target), str(source))
    (built,) = target.glob("*.whl")
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
