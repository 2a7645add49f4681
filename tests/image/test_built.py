"""The image, built for real without a daemon, and run as a cluster would: FULL=1, as root."""

import http.client
import json
import os
import shutil
import signal
import ssl
from datetime import UTC, datetime, timedelta

import pytest

from certs.issue import new_authority, new_leaf
from hack import image_base, image_run, tools
from hack.image import build_twice
from hack.image_builder import EPOCH, Wish, find_builder
from hack.ports import Ports
from tests.conftest import FULL
from tests.e2e.plane import wait_for
from tests.image.dockerfile import ROOT
from tests.reviews import light_job, review

SUITE = "trixie"
NOBODYS_SERVER = "https://127.0.0.1:1"


def missing():
    """Why nothing can be built here; empty: it can."""
    if not FULL:
        return "builds an image twice; FULL=1 takes the time"
    absent = [name for name in ("buildah", "mmdebstrap", "runc") if shutil.which(name) is None]
    if absent:
        return f"apt-get install --no-install-recommends {' '.join(absent)}"
    return "" if os.geteuid() == 0 else "only root may unpack and run images here"


pytestmark = [
    pytest.mark.skipif(bool(missing()), reason=missing()),
    pytest.mark.xdist_group("image"),
]


@pytest.fixture(scope="module")
def builder():
    builder = find_builder(str(tools.cache_folder() / "image/store"))
    yield builder
    builder.run("rmi", "--prune", "--force")


@pytest.fixture(scope="module")
def builds(builder):
    wish = Wish(tag="localhost/kueue-fallback:test", base=image_base.make(builder, SUITE))
    yield build_twice(builder, wish)
    builder.run("rmi", "--force", wish.tag)


@pytest.fixture(scope="module")
def root(builder, builds):
    with image_run.unpacked(builder, builds[1]) as root:
        yield root


@pytest.fixture
def files(tmp_path):
    """What a cluster mounts: settings, a certificate, a policy; readable by everyone."""
    shutil.copy(ROOT / "examples/policy.yaml", tmp_path)
    now, lifetime = datetime.now(UTC), timedelta(days=1)
    authority = new_authority("test", now=now, lifetime=lifetime)
    leaf = new_leaf(authority, ("localhost",), now=now, lifetime=lifetime)
    (tmp_path / "ca.crt").write_bytes(authority.certificate_pem)
    (tmp_path / "tls.crt").write_bytes(leaf.certificate_pem)
    (tmp_path / "tls.key").write_bytes(leaf.key_pem)
    (tmp_path / "kubeconfig").write_text(json.dumps(_kubeconfig()))
    tmp_path.chmod(0o755)
    return tmp_path


@pytest.fixture
def ports():
    ports = Ports()
    yield ports
    ports.release()


def test_two_builds_have_the_same_layers(builds):
    first, second = builds

    assert first.layers == second.layers
    assert len(first.layers) == 3
    assert first.config["Labels"] == second.config["Labels"]


def test_it_is_small(builds):
    assert sum(builds[0].sizes) < 100e6


def test_nothing_in_it_can_be_written_and_all_has_one_date(root):
    paths = [path for path in root.folder.rglob("*") if not path.is_symlink()]

    own = {path for path in paths if path.lstat().st_mtime == EPOCH}
    # The builder makes the root itself, and what the kernel's file systems are mounted on.
    assert {path.name for path in set(paths) - own} <= {"dev", "proc", "sys", "run", "etc"}
    modes = {path.stat().st_mode & 0o7777 for path in paths if path.name != "tmp"}
    assert modes == {0o644, 0o755}


def test_no_shell_no_package_manager_and_no_test_tool_is_in_it(root):
    (packages,) = root.folder.glob("opt/kueue-fallback/lib/python*/site-packages")
    found = {path.name for path in packages.iterdir()}

    assert found.isdisjoint({"aiohttp", "hypothesis", "matplotlib", "pip", "pytest", "setuptools"})
    programs = {path.name for path in root.folder.glob("**/bin/*")}
    assert {name.rstrip("0123456789.") for name in programs} == {
        "kubectl-fallback",
        "kubectl_complete-fallback",
        "kueue-fallback",
        "python",
    }


def test_scanners_find_where_the_libraries_came_from(root):
    described = {path.name for path in root.folder.glob("var/lib/dpkg/status.d/*")}

    assert {"libc6", "libssl3t64", "libgcc-s1"} <= described
    assert "VERSION_CODENAME=trixie" in (root.folder / "usr/lib/os-release").read_text()


def test_the_command_runs_as_anyone_on_a_read_only_root(root, files):
    version = root.run("--version")
    checked = root.run("check", "-f", "/given/policy.yaml", files=files)

    label = root.image.config["Labels"]["org.opencontainers.image.version"]
    assert (version.stderr, version.stdout) == ("", f"kueue-fallback, version {label}\n")
    assert checked.stderr == ""
    assert checked.stdout == "/given/policy.yaml:3: FallbackPolicy light-gpu is valid\n"


def test_it_serves_reviews_and_health_and_ends_when_told(root, files, ports):
    settings = _settings(ports.lease(), ports.lease(), ports.lease())
    (files / "settings.yaml").write_text(json.dumps(settings))

    with root.start("serve", "--config", "/given/settings.yaml", files=files) as process:
        metrics = settings["metrics_listen"].rpartition(":")[2]
        wait_for(lambda: _is_healthy(metrics) or process.poll(), "/healthz", timeout_seconds=60)
        assert process.poll() is None, process.communicate()
        checked = root.run(entry=_health_check(root, metrics), files=files)
        answer = _post(settings, files, sent := review(light_job()))
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=60)

    assert (checked.returncode, checked.stderr) == (0, "")
    assert answer["response"]["uid"] == sent["request"]["uid"]
    assert answer["response"]["allowed"] is True
    assert "patch" not in answer["response"]
    assert (process.returncode, "Traceback" in log) == (0, False)


def test_the_health_check_fails_while_nothing_listens(root, ports):
    result = root.run(entry=_health_check(root, ports.lease()))

    assert result.returncode == 1


def _health_check(root, port):
    _, *words = root.image.config["Healthcheck"]["Test"]
    return [word.replace("8080", str(port)) for word in words]


def _is_healthy(port):
    connection = http.client.HTTPConnection("127.0.0.1", int(port), timeout=5)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def _post(settings, files, sent):
    port = int(settings["listen"].rpartition(":")[2])
    context = ssl.create_default_context(cafile=files / "ca.crt")
    connection = http.client.HTTPSConnection("localhost", port, timeout=10, context=context)
    try:
        connection.request("POST", "/mutate?timeout=2s", json.dumps(sent))
        return json.loads(connection.getresponse().read())
    finally:
        connection.close()


def _settings(listen, metrics, console):
    return {
        "listen": f"127.0.0.1:{listen}",
        "metrics_listen": f"127.0.0.1:{metrics}",
        "console_listen": f"127.0.0.1:{console}",
        "tls_cert": "/given/tls.crt",
        "tls_key": "/given/tls.key",
        "kubeconfig": "/given/kubeconfig",
        "drain_seconds": 1,
    }


def _kubeconfig():
    """A cluster that never answers: the server has no state, and so leaves Jobs as they are."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "none",
        "contexts": [{"name": "none", "context": {"cluster": "none", "user": "none"}}],
        "clusters": [{"name": "none", "cluster": {"server": NOBODYS_SERVER}}],
        "users": [{"name": "none", "user": {}}],
    }
