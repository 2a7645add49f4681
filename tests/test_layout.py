"""What the repository holds beside its code, and what must hold for all of it."""

import ast
import functools
import re
import subprocess
import tomllib
from collections import Counter
from pathlib import Path

import pytest
import yaml

from tests.e2e.conftest import FIRST

ROOT = Path(__file__).resolve().parents[1]
PINNED = re.compile(r"^[a-z0-9][a-z0-9._-]*==[^ ]+( ; .+)? \\$")
DECISIONS = sorted((ROOT / "docs/decisions").glob("*.md"))


def files():
    listed = subprocess.run(
        ["git", "ls-files"], capture_output=True, text=True, check=True, cwd=ROOT
    )
    return [ROOT / name for name in listed.stdout.splitlines() if (ROOT / name).is_file()]


@pytest.mark.parametrize("name", FIRST)
def test_what_the_end_to_end_tests_begin_with_is_there(name):
    assert (ROOT / "tests/e2e" / f"{name}.py").exists()


@pytest.mark.parametrize("name", ["build.txt", "run.txt", "demo.txt", "dev.txt"])
def test_every_locked_dependency_has_hashes_and_no_index_is_named(name):
    lines = (ROOT / "requirements" / name).read_text().splitlines()

    others = [line for line in lines if not PINNED.match(line)]
    assert [line for line in others if not line.startswith("    --hash=sha256:")] == []


def test_the_lock_for_development_has_the_versions_that_run():
    run, demo, dev = (_pins(name) for name in ("run.txt", "demo.txt", "dev.txt"))

    assert run.items() <= demo.items() <= dev.items()


def test_the_lock_holds_every_dependency_of_the_project():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    groups = project["dependency-groups"]

    asked = {*project["project"]["dependencies"], *groups["test"], *groups["lint"]}
    names = {_name(each) for each in {*asked, *project["build-system"]["requires"]}}
    assert names - set(_pins("dev.txt")) == set()


def test_who_installs_the_wheel_gets_the_very_gunicorn_that_was_tested():
    dependencies = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]

    assert f"gunicorn=={_pins('dev.txt')['gunicorn']}" in dependencies


def _pins(name):
    lines = (ROOT / "requirements" / name).read_text().splitlines()
    pins = [line.split(" ")[0].split("==") for line in lines if "==" in line]
    return {_name(package): version for package, version in pins}


def _name(requirement):
    return re.split(r"[<>=~!\[ ]", requirement)[0].lower().replace("_", "-")


def test_the_chart_and_the_project_have_one_version():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    chart = yaml.safe_load((ROOT / "helm/Chart.yaml").read_text())

    assert {chart["version"], chart["appVersion"]} == {project}


@pytest.mark.parametrize("path", DECISIONS, ids=lambda path: path.stem)
def test_a_decision_says_why_what_was_refused_and_how_to_undo_it(path):
    text = path.read_text()

    headings = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert headings == ["Context", "Decision", "Refused", "Price", "To undo it"]
    assert text.startswith(f"# {int(path.stem[:4])}. ")
    assert len(text.split()) <= 350, "a record is read on one page"


def test_every_decision_is_linked_from_the_architecture():
    architecture = (ROOT / "docs/architecture.md").read_text()

    assert [path.name for path in DECISIONS if f"decisions/{path.name}" not in architecture] == []


def test_every_decision_that_the_code_names_is_there():
    numbers = {path.name[:4] for path in DECISIONS}
    named = [
        (path, number)
        for path in files()
        if path.suffix in (".py", ".toml", ".yaml", ".go")
        for number in re.findall(r"\bdecisions?[ /](\d{4})\b", path.read_text())
    ]

    assert named
    assert [(path, number) for path, number in named if number not in numbers] == []


def test_architecture_and_decisions_name_what_is_there():
    """Each module that they name exists, and has the tables and functions that they name of it."""
    pages = [path.read_text() for path in (ROOT / "docs/architecture.md", *DECISIONS)]
    named = {
        path
        for page in pages
        for path in re.findall(r"`((?:webhook|certs|hack|bench|tests)/[\w/]+\.py)`", page)
    }
    members = {
        found
        for page in pages
        for found in re.findall(r"`(\w+)` (?:of|in) `(webhook/[\w/]+\.py)`", page)
    }

    assert [path for path in sorted(named) if not (ROOT / path).is_file()] == []
    assert members
    assert [
        (name, path)
        for name, path in sorted(members)
        if not re.search(rf"^(?:def |class )?{name}\b", (ROOT / path).read_text(), re.MULTILINE)
    ] == []


def test_the_saved_snapshot_holds_a_full_gpu_queue_a_free_cpu_queue_and_the_policy():
    text = (ROOT / "examples/snapshot.json").read_text()
    items = yaml.safe_load(text)["items"]

    counts = {
        item["metadata"]["name"]: (
            item["status"].get("reservingWorkloads", 0),
            item["status"].get("pendingWorkloads", 0),
        )
        for item in items
        if item["kind"] == "ClusterQueue"
    }
    policy = yaml.safe_load((ROOT / "examples/policy.yaml").read_text())
    (saved,) = (item for item in items if item["kind"] == "FallbackPolicy")
    assert counts == {"gpu-cq": (4, 11), "cpu-cq": (0, 0)}
    assert saved["metadata"]["name"] == policy["metadata"]["name"]
    assert "managedFields" not in text


def modules():
    return [
        path
        for path in sorted((ROOT / "webhook").rglob("*.py"))
        if path.name not in {"__init__.py", "__main__.py", "gunicorn.conf.py"}
    ]


@functools.cache
def parsed(path):
    return ast.parse(path.read_text())


def test_no_module_name_is_used_twice():
    counted = Counter(path.stem for path in modules())

    assert [name for name, count in counted.items() if count > 1] == []


def test_no_class_name_is_used_twice():
    classes = Counter(
        node.name
        for path in modules()
        for node in parsed(path).body
        if isinstance(node, ast.ClassDef)
    )

    assert [name for name, count in classes.items() if count > 1] == []


WITHOUT_AN_OBJECT = frozenset(
    {"give", "held", "kept", "of", "put", "read", "said", "seen", "shown", "step", "take", "told"}
    | {"written"}
)


def test_what_a_module_offers_says_what_it_does_to_what():
    found = [
        f"{path.relative_to(ROOT)}: {node.name}"
        for path in modules()
        for node in parsed(path).body
        if isinstance(node, ast.FunctionDef) and node.name in WITHOUT_AN_OBJECT
    ]

    assert found == []


def test_the_root_holds_no_more_than_the_command_line_the_settings_and_the_metrics():
    found = {path.name for path in (ROOT / "webhook").glob("*.py")}

    assert found == {"__init__.py", "__main__.py", "settings.py", "metric_table.py"}


def test_no_test_module_imports_another():
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if re.match(r"\s*(from|import) tests\S*(\.| import )test_", line)
    ]

    assert found == []


def test_a_kind_of_job_is_known_in_its_own_folder_alone():
    elsewhere = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in sorted((ROOT / "webhook").rglob("*.py"))
        if path.parent != ROOT / "webhook/jobs"
        if "batch" in path.read_text()
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Constant)
        and re.fullmatch(r"(/apis/)?batch(/v1\S*)?", str(node.value))
    ]

    assert elsewhere == []
