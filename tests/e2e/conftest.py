"""Control planes, the installed project, and a namespace with queues for each test.

`plane` and `webhook` are shared by the tests of a pytest-xdist worker and must be left running.
Tests that stop servers take `own_plane` and `own_webhook`, which are their module's; they come when
the shared ones have ended.
"""

import contextlib
import http.client
import itertools
import os
import ssl
import uuid
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from hack import paper
from hack.cluster import Cluster
from hack.controlplane import ControlPlane
from hack.delaying_proxy import DelayingProxy
from hack.install import PATIENT, Installation

# The planes' programs start again and again: they collect garbage seldom, and take more memory.
os.environ.setdefault("GOGC", "400")
# The API server with the definitions of all kinds of Jobs would take nearly four.
os.environ.setdefault("GOMEMLIMIT", "2GiB")

LOG_LINES = 25
PLANE_FIXTURES = ("plane", "own_plane")
LONGEST = (
    "test_dispatcher",
    "test_docs",
    "test_holds",
    "test_tenant",
    "test_walk",
    "test_watched_workers",
)
"""Modules with planes of their own that take more than 80 seconds."""
HERE = f"{Path(__file__).parent}/"
_numbers = itertools.count(1)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with these tests, a module at a time: the short ones fill both workers to the end.

    Those come one after the other that use the same planes, so that none stands idle beside others.
    Of the last, the longest come first: neither worker is to begin one when the other is done.
    """
    sharing = {item.path for item in items if _is_here(item) and _uses(item, "plane")}
    owning = {item.path for item in items if _is_here(item) and _uses(item, "own_plane")}

    def place(item: pytest.Item) -> tuple[bool, ...]:
        path = item.path
        uses = path in owning - sharing, path in owning, path in sharing
        return not _is_here(item), *uses, path.stem not in LONGEST

    items.sort(key=place)
    for item in filter(_is_here, items):
        item.add_marker(pytest.mark.xdist_group(item.path.stem))


def _is_here(item: pytest.Item) -> bool:
    return str(item.path).startswith(HERE)


def _uses(item: pytest.Item, name: str) -> bool:
    """Whether a test uses a fixture of this module, and not one of its own of that name."""
    is_function = isinstance(item, pytest.Function)
    return is_function and name in item.fixturenames and not hasattr(item.module, name)


@pytest.fixture(scope="package")
def shared() -> Iterator[contextlib.ExitStack]:
    """What the modules of a worker share; it ends where no module to come uses it."""
    with contextlib.ExitStack() as stack:
        yield stack


@pytest.fixture(scope="module", autouse=True)
def _no_idle_plane(request: pytest.FixtureRequest, shared: contextlib.ExitStack) -> None:
    """Beside another plane an idle one with the project takes 7 % of a CPU."""
    if not any(_uses(item, "plane") for item in request.session.items if item.path == request.path):
        shared.close()


@pytest.fixture(scope="package")
def plane(tmp_path_factory: pytest.TempPathFactory, shared: contextlib.ExitStack) -> ControlPlane:
    return shared.enter_context(ControlPlane(tmp_path_factory.mktemp("plane")))


@pytest.fixture(scope="package")
def webhook(plane: ControlPlane, shared: contextlib.ExitStack) -> Installation:
    """The project, installed on the shared plane with one replica.

    What is decided is asked of it, not how fast: on a busy machine an answer or a sign of life may
    come later than the API server or decisions wait for it by default.
    """
    return shared.enter_context(Installation(plane, chart_values=PATIENT))


class _OwnPlanes:
    """Starts a module's plane while the one before is in use, as a start is mostly waiting."""

    def __init__(self, new_folder: Callable[[], Path], *, last: Path) -> None:
        # One thread for all, which stays: a program ends with the thread that started it.
        self._thread = ThreadPoolExecutor(max_workers=1)
        self._new_folder = new_folder
        self._last_module = last
        self._next: Future[ControlPlane] | None = self._start()

    def take(self, module: Path) -> ControlPlane:
        """Start another one, too, unless no module is left, here or on another worker."""
        taken = self._next or self._start()
        self._next = None if module == self._last_module else self._start()
        return taken.result()

    def down(self) -> None:
        if self._next is not None:
            self._next.result().down()
        self._thread.shutdown()

    def _start(self) -> Future[ControlPlane]:
        return self._thread.submit(ControlPlane(self._new_folder()).__enter__)


@pytest.fixture(scope="package")
def own_planes(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[_OwnPlanes]:
    takers = [item.path for item in request.session.items if _uses(item, "own_plane")]
    planes = _OwnPlanes(partial(tmp_path_factory.mktemp, "own-plane"), last=takers[-1])
    yield planes
    planes.down()


@pytest.fixture(scope="module")
def own_plane(request: pytest.FixtureRequest, own_planes: _OwnPlanes) -> Iterator[ControlPlane]:
    plane = own_planes.take(request.path)
    yield plane
    plane.down()


@pytest.fixture(scope="module")
def own_webhook(own_plane: ControlPlane) -> Iterator[Installation]:
    with Installation(own_plane, chart_values=PATIENT) as installed:
        yield installed


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
def namespace(plane: ControlPlane) -> Iterator[str]:
    """A namespace of the shared plane for one test."""
    name = f"test-{next(_numbers)}"
    plane.client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    yield name
    plane.client.delete("v1", "Namespace", name)


@pytest.fixture
def queues(plane: ControlPlane, namespace: str) -> Iterator[paper.Names]:
    """The paper's queues, under names of which the cluster-scoped ones are this test's alone."""
    names = paper.names_with(namespace, namespace=namespace)
    items = paper.queues(names)
    plane.client.apply_all(items)
    yield names
    for item in reversed(items):
        plane.client.delete(
            item["apiVersion"],
            item["kind"],
            item["metadata"]["name"],
            namespace=item["metadata"].get("namespace", ""),
        )


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """The name and folder of a cluster of `make up` that no developer uses."""
    named = Cluster(name=f"test-{uuid.uuid4().hex[:8]}")
    yield named
    named.remove()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the end of each program's log below a failure."""
    report = yield
    if report.failed:
        for name in PLANE_FIXTURES:
            found = getattr(item, "funcargs", {}).get(name)
            if isinstance(found, ControlPlane):
                report.sections.extend(_ends_of_logs(found.state / "logs"))
    return report


def _ends_of_logs(folder: Path) -> Iterator[tuple[str, str]]:
    """Read the ends of the logs; KWOK's says nothing but that its nodes are alive."""
    for path in sorted(folder.glob("*.log")):
        lines = path.read_text(errors="replace").splitlines()[-LOG_LINES:]
        if lines and path.stem != "kwok":
            yield str(path), "\n".join(line[:500] for line in lines)
