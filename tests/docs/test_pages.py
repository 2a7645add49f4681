"""What the pages promise: links that lead somewhere, and a row for every alert."""

import re
import tomllib

import pytest
import yaml

from hack import tools
from tests.docs.pages import ALL_PAGES, ROOT, title_anchor
from webhook.model.policy.fallback_policy import seconds

LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)")
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# With its registry and a version: what `latest` or no registry means differs from place to place.
PULLED = re.compile(r"registry\.k8s\.io/\S+:\d\S*")


def anchors(text):
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    named = re.findall(r'<a id="([^"]+)">', text)
    return {
        *named,
        *map(title_anchor, headings),
    }


@pytest.mark.parametrize("page", ALL_PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_to_a_file_and_a_heading(page):
    for target, anchor in LINK.findall(page.read_text()):
        if target.startswith("http"):
            continue
        path = (page.parent / target).resolve() if target else page
        assert path.exists(), target
        if anchor:
            assert anchor in anchors(path.read_text()), f"{target}#{anchor}"


def test_the_index_names_every_page():
    index = (ROOT / "docs/README.md").read_text()
    named = {target for target, _ in LINK.findall(index)}

    pages = {page.name for page in (ROOT / "docs").glob("*.md")} - {"README.md"}
    assert pages <= named


def test_every_alert_has_its_row_in_the_table_of_failures():
    groups = yaml.safe_load((ROOT / "helm/files/alerts.yaml").read_text())["groups"]
    alerts = {rule["alert"] for group in groups for rule in group["rules"]}
    rows = [line for line in (ROOT / "docs/operations.md").read_text().splitlines() if "|" in line]

    named = {name for row in rows for name in re.findall(r"`(KueueFallback\w+)`", row)}
    anchored = {name for row in rows for name in re.findall(r'<a id="(KueueFallback\w+)">', row)}
    assert named == anchored == alerts


def images(text):
    return re.findall(r"^ *(?:- )?image: (.+)$", text, re.MULTILINE)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_image_of_an_example_can_be_pulled_anywhere_and_stays_the_same(path):
    assert [image for image in images(path.read_text()) if not PULLED.fullmatch(image)] == []


def test_the_page_of_kind_has_the_versions_that_are_tested():
    page = (ROOT / "docs/kind.md").read_text()
    kueue = tools.kueue_version().removeprefix("v")

    assert re.findall(r"charts/kueue --version (\S+)", page) == [kueue]
    assert re.findall(r"kueue-fallback:(\S+)", page) == [PROJECT["version"]]


def test_the_cluster_of_kind_has_a_worker_for_the_fake_gpus():
    cluster = yaml.safe_load((ROOT / "examples/kind/cluster.yaml").read_text())
    page = (ROOT / "docs/kind.md").read_text()

    assert (cluster["apiVersion"], cluster["kind"]) == ("kind.x-k8s.io/v1alpha4", "Cluster")
    assert f"--name {cluster['name']}" in page
    assert cluster["nodes"] == [
        {"role": "control-plane"},
        {"role": "worker", "labels": {"accelerator": "t4"}},
    ]
    assert "-l accelerator=t4" in page


def test_the_page_of_installs_names_each_program_and_python():
    page = (ROOT / "docs/install.md").read_text()

    assert {name for name in PROJECT["scripts"] if f"`{name}`" in page} >= {
        "kubectl-fallback",
        "kueue-fallback",
    }
    named = {each.rpartition(" ")[2] for each in PROJECT["classifiers"] if "Python :: 3." in each}
    assert {version for version in named if version in page} == named


def test_the_first_policy_says_how_long_the_first_job_runs():
    text = (ROOT / "docs/get-started.md").read_text()
    (policy,) = [
        document
        for block in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
        for document in yaml.safe_load_all(block)
        if document["kind"] == "FallbackPolicy"
    ]
    (job,) = yaml.safe_load_all((ROOT / "examples/light-job.yaml").read_text())
    runs = job["spec"]["template"]["metadata"]["annotations"]
    told = policy["spec"]["strategy"]["finishTime"]["runTime"]
    slowdowns = {option["name"]: option.get("slowdown", 1) for option in policy["spec"]["options"]}

    gpu = seconds(runs["sim.example.com/gpu-run"])
    assert seconds(told) == gpu
    assert slowdowns["cpu"] * gpu == seconds(runs["sim.example.com/cpu-run"])
