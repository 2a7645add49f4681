"""A cluster for a command, or an end with exit code 3 and one line that says why."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from webhook.cluster.client import Client


@contextlib.contextmanager
def connected(kubeconfig: str | None) -> Iterator[Client]:
    """Connect as kubectl does: the given kubeconfig, else the pod's ServiceAccount."""
    from webhook.cluster import client

    try:
        yield client.connect(kubeconfig or "")
    except client.Forbidden as error:
        click.echo(f"forbidden: {error}", err=True)
        sys.exit(3)
    except client.Unreachable as error:
        click.echo(f"the cluster cannot be reached: {error}", err=True)
        sys.exit(3)
