"""The whole processes beside an embedded API server; names are those of tests/e2e.

A test that needs nothing else than an API server may stand here, and in tests/e2e as well.
`plane` and `webhook` are shared by the tests of a pytest-xdist worker and must be left running.
"""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from hack import paper
from hack.embedded.played_plane import PlayedPlane
from hack.install import PATIENT, Installation

HERE = Path(__file__).parent
_numbers = itertools.count(1)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the tests of a module together: those that own a plane share it."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.xdist_group(item.path.stem))


@pytest.fixture(scope="package")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlayedPlane]:
    with PlayedPlane(tmp_path_factory.mktemp("plane")) as started:
        yield started


@pytest.fixture(scope="package")
def webhook(plane: PlayedPlane) -> Iterator[Installation]:
    """The project, installed on the shared plane with one replica."""
    with Installation(plane, chart_values=PATIENT) as installed:
        yield installed


@pytest.fixture(scope="module")
def own_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlayedPlane]:
    with PlayedPlane(tmp_path_factory.mktemp("own-plane")) as started:
        yield started


@pytest.fixture(scope="module")
def own_webhook(own_plane: PlayedPlane) -> Iterator[Installation]:
    with Installation(own_plane, chart_values=PATIENT) as installed:
        yield installed


@pytest.fixture
def namespace(plane: PlayedPlane) -> Iterator[str]:
    """A namespace of the shared plane for one test."""
    name = f"test-{next(_numbers)}"
    plane.client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    yield name
    plane.client.delete("v1", "Namespace", name)


@pytest.fixture
def queues(plane: PlayedPlane, namespace: str) -> Iterator[paper.Names]:
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
