"""What the Dockerfile promises, read from its text: runs everywhere, and builds nothing."""

import re
import subprocess
import sys
import tomllib
import zipfile

import pytest
from werkzeug.wrappers import Response

from hack.ports import Ports
from hack.waiting import WAIT_SECONDS
from tests.image import dockerfile
from tests.image.dockerfile import ROOT
from tests.servers import running
from webhook.server.addresses import split_address
from webhook.server.gunicorn_app import Server
from webhook.settings import Settings

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
BEFORE, (BUILD, FINAL) = dockerfile.read()
# What the image leaves out, made impossible to import; then everything is imported.
WITHOUT = """
import importlib, pkgutil, sys
sys.modules["kubernetes.aio"] = None
for top in ("certs", "webhook"):
    for module in pkgutil.walk_packages(importlib.import_module(top).__path__, f"{top}."):
        if not module.name.endswith((".gunicorn.conf", "__main__")):
            importlib.import_module(module.name)
import kubernetes.client, kubernetes.config
"""


def run(*command, cwd=ROOT):
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=cwd, timeout=WAIT_SECONDS
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_both_stages_stand_on_a_base_that_can_be_replaced():
    assert BEFORE == [("ARG", "BASE=python:3.13-slim")]
    assert (BUILD.base, FINAL.base) == ("${BASE} AS build", "${BASE}")


def test_the_user_is_a_number_and_not_root():
    assert FINAL.value("USER") == "65532:65532"


def test_every_installation_is_checked_by_hashes_or_reaches_no_index():
    locked, own = (each for each in BUILD.commands() if each.startswith("pip install "))

    assert locked == (
        "pip install --no-compile --require-hashes --only-binary :all: "
        "-r requirements/build.txt -r requirements/run.txt"
    )
    assert {"--no-deps", "--no-index", "--no-build-isolation"} < set(own.split())
    assert BUILD.values("ADD") + FINAL.values("ADD") == []


def test_what_is_copied_is_let_through_and_nothing_else():
    lines = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line[0] != "#"]

    assert lines[0] == "*"
    assert {line.removeprefix("!") for line in lines if line[0] == "!"} == BUILD.copied()
    assert [line for line in lines[1:] if line[0] != "!"] == ["**/__pycache__", "**/*.pyc"]


@pytest.mark.xdist_group("packaging")
def test_what_is_copied_is_enough_for_the_project(tmp_path):
    source, wheels = tmp_path / "source", tmp_path / "wheels"
    sources = run("git", "ls-files", *BUILD.copied()).splitlines()
    for name in sources:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes((ROOT / name).read_bytes())

    build = ("wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(wheels))
    run(sys.executable, "-m", "pip", *build, ".", cwd=source)

    (wheel,) = wheels.iterdir()
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert packed == {name for name in sources if name.startswith(("certs/", "webhook/"))}


def test_nothing_needs_what_is_removed():
    (removed,) = (each for each in BUILD.commands() if each.startswith("rm "))

    assert removed == "rm -rf /opt/kueue-fallback/lib/python3*/site-packages/kubernetes/aio"
    assert run(sys.executable, "-c", WITHOUT) == ""


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
    }


@pytest.mark.parametrize(("status", "verdict"), [(200, 0), (503, 1)])
def test_the_health_check_asks_the_server(status, verdict):
    app = Response(status=status)
    server = Server(listen=("127.0.0.1:0",), load_application=lambda: app, with_tls=0)

    with running(server) as port:
        assert _check_health(port).returncode == verdict


def test_the_health_check_fails_when_nobody_answers():
    ports = Ports()

    assert _check_health(ports.lease()).returncode == 1

    ports.release()


def _check_health(port):
    program, *arguments = FINAL.words("HEALTHCHECK")
    assert program == "python"
    assert str(split_address(Settings().metrics_listen)[1]) in arguments[-1]
    asked = [each.replace("8080", str(port)) for each in arguments]
    return subprocess.run([sys.executable, *asked], capture_output=True, check=False)
