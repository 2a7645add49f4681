"""``control``: the controller's process."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import click

from webhook.commands import terminal
from webhook.settings import Settings


@click.command("control", short_help="Run the controller.")
@click.option("--config", type=click.Path(exists=True, dir_okay=False), help="Settings, YAML.")
@click.option("--metrics-listen", help="Address of /healthz, /readyz, /metrics.  [0.0.0.0:8080]")
@click.option("--kubeconfig", type=click.Path(), help="Default: the pod's ServiceAccount.")
@click.option("--namespace", help="Our own namespace.  [kueue-fallback]")
@click.option("--kueue-namespace", help="Where Kueue's configuration lies.  [kueue-system]")
def command(config: str | None, **given: Any) -> None:
    """Write the status of policies, keep records of runs and move pending Jobs, until SIGTERM.

    Of several replicas one writes, by a Lease; the others take over when it ends.

    Settings come from --config, and options win over it.

    \b
    Example:
      kueue-fallback control --kubeconfig ~/.kube/config --metrics-listen 127.0.0.1:8080
    """
    settings = _settings(config, {key: value for key, value in given.items() if value is not None})
    from webhook.controller.controller import serve

    signal.signal(signal.SIGTERM, _end)
    try:
        serve(settings)
    except KeyboardInterrupt:
        sys.exit(130)
    except OSError as error:
        _fail(settings.metrics_listen, [error.strerror or str(error)])


def _settings(config: str | None, given: dict[str, Any]) -> Settings:
    import yaml
    from pydantic import ValidationError

    from webhook.server.probes import split_address

    where = config or "options"
    try:
        text = Path(config).read_text(encoding="utf-8") if config else ""
        settings = Settings.model_validate({**(yaml.safe_load(text) or {}), **given})
        split_address(settings.metrics_listen)
    except ValidationError as error:
        _fail(where, [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()])
    except (OSError, ValueError, TypeError, yaml.YAMLError) as error:
        _fail(where, [str(error)])
    return settings


def _fail(where: str, lines: list[str]) -> NoReturn:
    for line in lines:
        terminal.say(f"{where}: {line}", err=True)
    sys.exit(2)


def _end(_number: int, _frame: FrameType | None) -> NoReturn:
    sys.exit(0)
