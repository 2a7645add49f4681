"""The image, built by `make image` and run as a cluster would, where docker or podman is."""

import contextlib
import http.client
import json
import random
import re
import shutil
import signal
import ssl
import subprocess
from datetime import UTC, datetime, timedelta

import pytest

from certs.issue import new_authority, new_leaf
from hack.ports import Ports
from hack.waiting import WAIT_SECONDS, wait_for
from tests.image import dockerfile
from tests.image.dockerfile import ROOT
from tests.reviews import light_job, review

TAG = "localhost/kueue-fallback:test"
NOBODYS_SERVER = "https://127.0.0.1:1"
# What could install something, and what would be compiled anew at each start.
LOADED = """
import importlib.util, os, sys
import webhook.serving.app
installers = filter(importlib.util.find_spec, ("pip", "setuptools", "ensurepip"))
caches = {name: getattr(module, "__cached__", None) for name, module in sys.modules.items()}
missing = [name for name, cache in caches.items() if cache and not os.path.exists(cache)]
print([*installers], missing)
"""
((_, BASE),), (_, FINAL) = dockerfile.read()

pytestmark = pytest.mark.xdist_group("image")


def run(*command, timeout=WAIT_SECONDS):
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=timeout)


def last_line(done):
    return (done.stderr or done.stdout).strip().rpartition("\n")[2]


@pytest.fixture(scope="module")
def builder():
    """The one that `make image` takes; buildah alone would build, but run nothing."""
    complaint = "neither docker nor podman is here"
    for program in filter(shutil.which, ("docker", "podman")):
        complaint = f"{program} does not answer"
        with contextlib.suppress(subprocess.TimeoutExpired):
            done = run(program, "info", timeout=WAIT_SECONDS)
            if done.returncode == 0:
                return program
            complaint = f"{program}: {last_line(done)}"
    return pytest.skip(complaint)


@pytest.fixture(scope="module")
def image(builder):
    base = BASE.removeprefix("BASE=")
    if not run(builder, "images", "--quiet", base).stdout:
        pulled = run(builder, "pull", base)
        if pulled.returncode:
            pytest.skip(f"{builder} cannot pull {base}: {last_line(pulled)}")

    built = run("make", "-C", str(ROOT), "image", f"TAG={TAG}", timeout=WAIT_SECONDS)

    assert built.returncode == 0, built.stdout + built.stderr
    yield TAG
    run(builder, "rmi", "--force", TAG)


@pytest.fixture
def command(builder, image, files):
    """A command that runs the image with nothing but what it is promised to need."""

    def of(*words, entry=None):
        # As OpenShift does it: a user that nobody knows, in the group root.
        user = f"{random.randrange(100_000, 2**31)}:0"
        options = ["--rm", "--read-only", "--tmpfs=/tmp", "--cap-drop=ALL", f"--user={user}"]
        options += ["--network=host", "--security-opt=no-new-privileges"]
        options += [f"--volume={files}:/given:ro", *([f"--entrypoint={entry}"] if entry else [])]
        return [builder, "run", *options, image, *words]

    return of


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


def test_the_command_runs_as_anyone_on_a_read_only_root(command):
    version = run(*command("--version"))
    checked = run(*command("check", "-f", "/given/policy.yaml"))

    assert re.fullmatch(r"kueue-fallback, version \S+\n", version.stdout), version.stderr
    assert checked.stdout == "/given/policy.yaml:3: FallbackPolicy light-gpu is valid\n"


def test_no_installer_is_in_it_and_all_that_is_loaded_is_compiled(command):
    done = run(*command("-c", LOADED, entry="python"))

    assert (done.returncode, done.stdout) == (0, "[] []\n"), done.stderr


def test_it_serves_reviews_and_health_and_ends_when_told(command, files, ports):
    settings = _settings(ports.lease(), ports.lease(), ports.lease())
    (files / "settings.yaml").write_text(json.dumps(settings))
    metrics = settings["metrics_listen"].rpartition(":")[2]
    serve = command("serve", "--config", "/given/settings.yaml")
    pipe = subprocess.PIPE

    with subprocess.Popen(serve, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            wait_for(lambda: _is_healthy(metrics) or process.poll(), "/healthz")
            assert process.poll() is None, process.communicate()
            checked = run(*_health_check(command, metrics))
            answer = _post(settings, files, sent := review(light_job()))
        finally:
            process.send_signal(signal.SIGTERM)
            _, log = process.communicate(timeout=WAIT_SECONDS)

    assert checked.returncode == 0, checked.stderr
    assert answer["response"]["uid"] == sent["request"]["uid"]
    assert answer["response"]["allowed"] is True
    assert "patch" not in answer["response"]
    assert (process.returncode, "Traceback" in log) == (0, False)


def test_the_health_check_fails_while_nothing_listens(command, ports):
    assert run(*_health_check(command, ports.lease())).returncode == 1


def _health_check(command, port):
    program, *words = FINAL.words("HEALTHCHECK")
    return command(*(word.replace("8080", str(port)) for word in words), entry=program)


def _is_healthy(port):
    connection = http.client.HTTPConnection("127.0.0.1", int(port), timeout=WAIT_SECONDS)
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
    connection = http.client.HTTPSConnection(
        "localhost", port, timeout=WAIT_SECONDS, context=context
    )
    try:
        connection.request("POST", "/mutate?timeout=30s", json.dumps(sent))
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
