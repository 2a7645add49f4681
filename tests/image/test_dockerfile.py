"""What the Dockerfile promises, read from its text: runs everywhere, and builds nothing."""

import re
import subprocess
import sys
import tomllib

import pytest

from hack.image import context_files
from hack.image_builder import EPOCH
from tests.image import dockerfile
from tests.image.dockerfile import ROOT
from webhook.server.probes import Answer, serve, split_address
from webhook.settings import Settings

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
BEFORE, (BUILD, FINAL) = dockerfile.read()


def test_the_base_can_be_replaced_and_only_the_build_stands_on_it():
    assert [name for name, _ in BEFORE] == ["ARG"]
    assert BEFORE[0][1].startswith("BASE=python:3.13-slim-")
    assert (BUILD.base, FINAL.base) == ("${BASE} AS build", "scratch")


def test_the_final_stage_takes_only_the_layers_and_runs_nothing():
    layers = ("python", "dependencies", "project")

    assert FINAL.values("COPY") == [f"--from=build /layers/{layer}/ /" for layer in layers]
    assert FINAL.values("RUN") + FINAL.values("ADD") == []


def test_the_user_is_a_number_and_not_root():
    user, group = FINAL.value("USER").split(":")

    assert (user.isdecimal(), group.isdecimal()) == (True, True)
    assert int(user) > 10_000


def test_every_installation_is_checked_by_hashes_or_reaches_no_index():
    installations = [
        each for each in dockerfile.commands(BUILD) if re.search(r"pip\b.* install ", each)
    ]

    assert len(installations) == 3
    for each in installations:
        locked = "--require-hashes --only-binary :all: -r requirements/" in each
        assert locked or "--no-deps --no-index --find-links /wheels kueue-fallback" in each


def test_the_project_is_built_with_what_is_locked():
    (wheel,) = (each for each in dockerfile.commands(BUILD) if " wheel " in each)

    assert "--no-deps --no-build-isolation" in wheel
    text = (ROOT / "requirements/build.txt").read_text()
    assert text.startswith("setuptools==")
    assert text in (ROOT / "requirements/dev.txt").read_text()


def test_nothing_else_is_fetched():
    programs = {each.split()[0] for each in dockerfile.commands(BUILD)}

    assert programs == {"python3", "/build/bin/pip"}
    assert BUILD.values("ADD") == []


def test_every_file_that_is_copied_exists_and_is_let_through():
    copied = {word for value in BUILD.values("COPY") for word in value.split()[:-1]}
    seen = set(context_files())

    files = {name for name in copied if (ROOT / name).is_file()}
    folders = {name for name in copied if (ROOT / name).is_dir()}
    assert files | folders == copied
    assert files <= seen
    modules = {str(p.relative_to(ROOT)) for each in folders for p in (ROOT / each).rglob("*.py")}
    assert modules <= seen


def test_the_builder_sees_nothing_that_no_step_copies():
    copied = {word for value in BUILD.values("COPY") for word in value.split()[:-1]}

    unused = {
        name for name in context_files() if name not in copied and name.split("/")[0] not in copied
    }
    assert unused == {"Dockerfile", ".dockerignore"}


def test_all_files_have_the_date_that_the_builder_is_told():
    assert f"SOURCE_DATE_EPOCH={EPOCH}" in BUILD.values("ARG")


def test_it_starts_the_server_without_a_shell():
    assert FINAL.words("ENTRYPOINT") == ["kueue-fallback"]
    assert FINAL.words("CMD") == ["serve"]
    assert "kueue-fallback" in PROJECT["scripts"]


def test_the_ports_are_those_of_the_settings():
    settings = Settings()

    ports = [split_address(each)[1] for each in (settings.listen, settings.metrics_listen)]
    assert FINAL.value("EXPOSE") == " ".join(map(str, ports))


def test_the_labels_say_what_it_is():
    labels = dict(re.findall(r'org\.opencontainers\.image\.(\w+)="([^"]*)"', FINAL.value("LABEL")))

    assert labels == {
        "title": PROJECT["name"],
        "description": PROJECT["description"],
        "licenses": PROJECT["license"],
        "version": "${VERSION}",
        "revision": "${REVISION}",
    }
    assert f"VERSION={PROJECT['version']}" in FINAL.values("ARG")


@pytest.mark.parametrize(("status", "verdict"), [(200, 0), (503, 1)])
def test_the_health_check_asks_the_server(status, verdict):
    server = serve("127.0.0.1:0", {"/healthz": lambda: Answer(body=b"", status=status)})

    try:
        assert _check_health(server.server_address[1]).returncode == verdict
    finally:
        server.shutdown()
        server.server_close()


def test_the_health_check_fails_when_nobody_answers():
    server = serve("127.0.0.1:0", {})
    server.shutdown()
    server.server_close()

    assert _check_health(server.server_address[1]).returncode == 1


def _check_health(port):
    program, *arguments = FINAL.words("HEALTHCHECK")
    assert program == "python"
    assert str(split_address(Settings().metrics_listen)[1]) in arguments[-1]
    asked = [each.replace("8080", str(port)) for each in arguments]
    return subprocess.run([sys.executable, *asked], capture_output=True, check=False)
