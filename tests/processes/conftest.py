"""The whole processes beside an embedded API server; names are those of tests/e2e.

A test that needs nothing else than an API server may stand here, and in tests/e2e as well.
`plane` and `webhook` are shared by the tests of a pytest-xdist worker and must be left running.
"""

from collections.abc import Iterator

import pytest

from hack.embedded.played_plane import PlayedPlane
from hack.install import PATIENT, Installation


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
