"""Control planes, the installed project, and a namespace with queues for each test.

`plane` and `webhook` are shared by the tests of a pytest-xdist worker: what a test stops there it
starts again. Modules whose servers die, or run with other flags, have control planes of their own.
"""

import http.client
import os
import ssl
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.cluster import Cluster
from hack.controlplane import ControlPlane, Options
from hack.delaying_proxy import DelayingProxy
from hack.install import PATIENT, Installation

# The planes' programs start again and again: they collect garbage seldom, and take more memory.
os.environ.setdefault("GOGC", "400")
# The API server with the definitions of all kinds of Jobs would take nearly four.
os.environ.setdefault("GOMEMLIMIT", "2GiB")

LEFT_ALONE = "batch-of-its-own"
"""Label of namespaces that Kueue does not manage."""
SYSTEM = ("kube-system", "kueue-system")
MANAGED = {
    "matchExpressions": [
        {"key": LEFT_ALONE, "operator": "DoesNotExist"},
        {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": list(SYSTEM)},
    ]
}
AUDIENCE = "console"
ON = (
    "teamPolicies.enabled=true",
    "accelerators.watchNodes=true",
    "console.expose=true",
    f"console.audience={AUDIENCE}",
)
"""What the chart leaves off by default."""
FIRST = (
    "test_agreement_over_time",
    "test_kinds",
    "test_multikueue",
    "test_docs",
    "test_up_and_down",
    "test_helm",
    "test_certificates",
    "test_admission_race",
)
"""Modules with control planes of their own, those that take longest first.

After them come all others, of which most share one: it is then not idle beside another.
"""
HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the long modules."""

    def place(item: pytest.Item) -> tuple[bool, int]:
        stem = item.path.stem
        rank = FIRST.index(stem) if stem in FIRST else len(FIRST)
        return not item.path.is_relative_to(HERE), rank

    items.sort(key=place)


@pytest.fixture(scope="package")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    options = Options(kueue_config={"managedJobsNamespaceSelector": MANAGED})
    with ControlPlane(tmp_path_factory.mktemp("plane"), options=options) as started:
        yield started


@pytest.fixture(scope="package")
def webhook(plane: ControlPlane) -> Iterator[Installation]:
    """The project, installed on the shared plane with one replica.

    What is decided is asked of it, not how fast: on a busy machine an answer or a sign of life may
    come later than the API server or decisions wait for it by default.
    """
    with Installation(plane, chart_values=[*PATIENT, *ON]) as installed:
        yield installed


@pytest.fixture(scope="module")
def own_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with ControlPlane(tmp_path_factory.mktemp("own-plane")) as started:
        yield started


@pytest.fixture(scope="module")
def kueue_proxy(own_plane: ControlPlane) -> Iterator[DelayingProxy]:
    """Stands between Kueue and the API server, and can hold Kueue's calls back."""
    tls = ssl.create_default_context(cafile=own_plane.pki.certificate("ca"))
    tls.load_cert_chain(own_plane.pki.certificate("admin"), own_plane.pki.key("admin"))

    def connect() -> http.client.HTTPConnection:
        return http.client.HTTPSConnection("127.0.0.1", own_plane.api_port, context=tls)

    with DelayingProxy(own_plane.ports.lease(), connect) as proxy:
        own_plane.send_kueue_through(proxy.address)
        yield proxy


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """The name and folder of a cluster of `make up` that no developer uses."""
    named = Cluster(name=f"test-{uuid.uuid4().hex[:8]}")
    yield named
    named.remove()
