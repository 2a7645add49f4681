"""A cluster for a command, or an end with exit code 3 and one line that says why."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from webhook.cluster.client import Client

UNREACHED = 3
"""Exit code: the cluster cannot be reached, or does not let us."""


@contextlib.contextmanager
def connected(kubeconfig: str | None) -> Iterator[Client]:
    """Connect as kubectl does: the given kubeconfig, else the pod's ServiceAccount."""
    from webhook.cluster.client import Client
    from webhook.cluster.errors import ClusterError

    try:
        yield Client(kubeconfig or "")
    except ClusterError as error:
        click.echo(str(error), err=True)
        sys.exit(UNREACHED)
