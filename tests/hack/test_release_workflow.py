"""The release workflow, without GitHub: its shape, and its commands run with played programs.

What it makes without credentials is made really, by tests/test_packaging.py.
"""

import os
import re
import shutil
import subprocess
import tomllib

import pytest
import yaml

from hack import artifacts
from hack.install import ROOT

FILE = ROOT / ".github/workflows/release.yaml"
TEXT = FILE.read_text()
WORKFLOW = yaml.safe_load(TEXT)
JOBS = WORKFLOW["jobs"]
PINNED = re.compile(r"\S+/\S+@[0-9a-f]{40} # v\d+\.\d+\.\d+")
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
DIGEST = "sha256:" + "0" * 64
BASE_DIGEST = "sha256:" + "b" * 64
EXPRESSIONS = {
    "github.ref_type == 'tag' && github.ref_name || ''": "v0.1.0",
    "github.ref_name": "v0.1.0",
    "github.repository": "Some-Org/kueue-fallback",
    "secrets.GITHUB_TOKEN": "token",
}
ENVIRONMENT = {
    "GITHUB_ACTOR": "somebody",
    "GITHUB_REPOSITORY": "Some-Org/kueue-fallback",
    "GITHUB_REPOSITORY_OWNER": "Some-Org",
    "GITHUB_SHA": "f" * 40,
}
# Each writes down what it was asked; docker and helm answer what the real ones would.
PLAYED = f"""\
#!/bin/bash
printf '%q ' "${{0##*/}}" "$@" | sed 's/ $/\\n/' >> "$ASKED"
case "${{0##*/}} $1 $2" in
  "docker buildx build") echo '{{"containerimage.digest": "{DIGEST}"}}' > metadata.json ;;
  "docker buildx imagetools") case "$*" in
    *.Manifest.Digest*) echo "$BASE_DIGEST" ;;
    *) echo '{{"spdxVersion": "SPDX-2.3"}}' ;; esac ;;
  "helm push "*) printf 'Pushed: there\\nDigest: {DIGEST}\\n' >&2 ;;
  "cosign sign-blob "*) touch "$4" ;;
esac
"""


def steps(job):
    return [step for step in JOBS[job]["steps"] if "run" in step]


def filled(text):
    return re.sub(r"\$\{\{ (.*?) \}\}", lambda found: EXPRESSIONS[found[1]], text)


@pytest.fixture
def run(tmp_path):
    """Run a job's commands where it would; return what programs were asked."""
    programs, asked = tmp_path / "bin", tmp_path / "asked"
    programs.mkdir()
    asked.touch()
    for name in ("cosign", "docker", "gh", "helm", "make"):
        (programs / name).write_text(PLAYED)
        (programs / name).chmod(0o755)

    def run(job, folder, **more):
        for step in steps(job):
            given = {**JOBS[job].get("env", {}), **step.get("env", {})}
            done = subprocess.run(
                ["bash", "-eo", "pipefail", "-c", step["run"]],
                cwd=folder,
                env={
                    "PATH": f"{programs}:{os.environ['PATH']}",
                    "ASKED": str(asked),
                    "BASE_DIGEST": BASE_DIGEST,
                    **ENVIRONMENT,
                    **more,
                    **{name: filled(value) for name, value in given.items()},
                },
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, f"{step['name']}\n{done.stdout}{done.stderr}"
        return asked.read_text().splitlines()

    return run


def test_every_action_is_pinned_to_a_commit_and_says_its_version():
    used = re.findall(r"uses: (.+)", TEXT)

    assert len(used) == sum("uses" in step for job in JOBS.values() for step in job["steps"])
    assert [action for action in used if not PINNED.fullmatch(action)] == []


def test_each_job_has_the_rights_that_it_needs_alone():
    assert WORKFLOW["permissions"] == {}
    assert {name: job["permissions"] for name, job in JOBS.items()} == {
        "artifacts": {"contents": "read"},
        "image": {"contents": "read", "packages": "write", "id-token": "write"},
        "publish": {"contents": "write", "packages": "write", "id-token": "write"},
        "pypi": {"id-token": "write"},
    }


def test_only_a_tag_publishes():
    of_tags = {
        name for name, job in JOBS.items() if "github.ref_type == 'tag'" in job.get("if", "")
    }

    # YAML 1.1 takes the key `on` for a truth.
    assert WORKFLOW[True]["push"] == {"tags": ["v*"]}
    assert set(JOBS) - of_tags == {"artifacts"}


def test_nobody_who_names_a_tag_or_a_branch_writes_into_a_script():
    scripts = [step["run"] for name in JOBS for step in steps(name)]

    assert [text for text in scripts if "${{" in text] == []


def test_what_needs_no_credentials_is_a_target_of_make(run, tmp_path):
    assert run("artifacts", tmp_path) == [
        "make release RELEASE=v0.1.0 REPOSITORY=Some-Org/kueue-fallback"
    ]


def test_the_image_is_built_for_both_architectures_with_an_sbom_and_signed(run, tmp_path):
    shutil.copy(ROOT / "Dockerfile", tmp_path)

    login, base, build, sign, *sboms = run("image", tmp_path)

    image = artifacts.image_of("Some-Org/kueue-fallback")
    assert login == "docker login ghcr.io --username somebody --password-stdin"
    assert "--platform linux/amd64\\,linux/arm64 --push --sbom=true --provenance=mode=max" in build
    assert base.startswith("docker buildx imagetools inspect python:3.13-slim ")
    assert f"--build-arg BASE=python:3.13-slim@{BASE_DIGEST} " in build
    assert f"--tag {image}:0.1.0" in build
    assert sign == f"cosign sign --yes {image}@{DIGEST}"
    assert len(sboms) == 2
    assert {path.name for path in (tmp_path / "sboms").iterdir()} == {
        "image-amd64.spdx.json",
        "image-arm64.spdx.json",
    }


@pytest.mark.parametrize("answer", ["", "latest", BASE_DIGEST[:-1]])
def test_an_image_whose_base_has_no_digest_is_not_built(run, tmp_path, answer):
    shutil.copy(ROOT / "Dockerfile", tmp_path)

    with pytest.raises(AssertionError, match=f"no digest of python:3.13-slim: {answer}\n"):
        run("image", tmp_path, BASE_DIGEST=answer)

    assert "docker buildx build" not in (tmp_path / "asked").read_text()


def test_the_chart_is_pushed_and_signed_and_all_files_are_published(run, tmp_path):
    made, sboms = tmp_path / "build/release", tmp_path / "build/sboms"
    made.mkdir(parents=True)
    sboms.mkdir()
    (sboms / "image-amd64.spdx.json").write_text("{}")
    chart = made / "kueue-fallback-0.1.0.tgz"
    chart.write_text("chart")
    (made / artifacts.CHECKSUMS).write_text(f"{artifacts.sha256(chart)}  {chart.name}\n")

    asked = run("publish", tmp_path)

    charts = "ghcr.io/some-org/charts"
    _, _, push, sign, blob, release = asked
    assert push == f"helm push build/release/{chart.name} oci://{charts}"
    assert sign == f"cosign sign --yes {charts}/kueue-fallback@{DIGEST}"
    assert blob == "cosign sign-blob --yes --bundle SHA256SUMS.sigstore.json SHA256SUMS"
    assert release.startswith(
        "gh release create v0.1.0 ./SHA256SUMS ./SHA256SUMS.sigstore.json "
        "./image-amd64.spdx.json ./kueue-fallback-0.1.0.tgz --repo Some-Org/kueue-fallback "
    )


@pytest.mark.parametrize(
    ("tag", "why"),
    [
        ("0.1.0", "a tag is v, three numbers, and for a candidate -rc.1"),
        ("v0.1", "a tag is v, three numbers, and for a candidate -rc.1"),
        ("v9.9.9", f"the version in pyproject.toml is {VERSION}"),
    ],
)
def test_a_tag_that_is_not_the_projects_version_is_refused(tag, why):
    with pytest.raises(artifacts.ReleaseError, match=f"^{re.escape(why)}$"):
        artifacts.version_of(tag)


def test_the_manifest_for_krew_is_what_krew_takes(tmp_path):
    archive = tmp_path / "kubectl-fallback_0.1.0_linux_amd64.tar.gz"
    archive.write_text("packed")

    text = artifacts.krew_manifest({"linux-amd64": archive}, tag="v0.1.0", repository="a/b")

    manifest = yaml.safe_load(text)
    spec = manifest["spec"]
    assert manifest["apiVersion"] == "krew.googlecontainertools.github.com/v1alpha2"
    assert (manifest["kind"], manifest["metadata"]) == ("Plugin", {"name": "fallback"})
    # krew's own naming guide: up to 50 characters, no stop at the end.
    assert len(spec["shortDescription"]) <= 50
    assert not spec["shortDescription"].endswith(".")
    assert (spec["version"], spec["homepage"]) == ("v0.1.0", "https://github.com/a/b")
    assert spec["platforms"] == [
        {
            "selector": {"matchLabels": {"os": "linux", "arch": "amd64"}},
            "uri": f"https://github.com/a/b/releases/download/v0.1.0/{archive.name}",
            "sha256": artifacts.sha256(archive),
            "bin": "kubectl-fallback",
        }
    ]
