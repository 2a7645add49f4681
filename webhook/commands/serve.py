"""``serve`` and ``control``: the two processes that the chart runs."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from webhook.model.words import harmless_lines
from webhook.settings import Settings

if TYPE_CHECKING:
    from types import FrameType

    from webhook.server.gunicorn_app import Application


@click.command("serve")
@click.option("--config", type=click.Path(exists=True, dir_okay=False), help="Settings, YAML.")
@click.option("--listen", help="Address of TLS POST /mutate.  [default: 0.0.0.0:10250]")
@click.option("--metrics-listen", help="Address of /healthz, /readyz, /metrics.  [0.0.0.0:8080]")
@click.option("--console-listen", help="Address of the console.  [127.0.0.1:8081]")
@click.option("--tls-cert", type=click.Path(), help="Certificate chain, PEM.")
@click.option("--tls-key", type=click.Path(), help="Private key, PEM.")
@click.option("--client-ca", type=click.Path(), help="Authorities of the clients, PEM.")
@click.option("--path-segments", type=click.Path(), help="Secret ends of the paths, JSON.")
@click.option("--kubeconfig", type=click.Path(), help="Default: the pod's ServiceAccount.")
@click.option("--namespace", help="Namespace of the release.  [kueue-fallback]")
@click.option("--kueue-namespace", help="Namespace of Kueue.  [kueue-system]")
@click.option("--max-state-age", type=float, help="Longest age of the state, in seconds.  [15]")
@click.option("--drain-seconds", type=float, help="Seconds to still serve after SIGTERM.  [15]")
def serve(config: str | None, **given: Any) -> None:
    """Serve admission reviews over TLS until SIGTERM.

    Options override the settings in --config.

    \b
    Example:
      kueue-fallback serve --tls-cert tls.crt --tls-key tls.key --kubeconfig ~/.kube/config
    """
    settings = _settings(config, given, ("listen", "metrics_listen", "console_listen"))
    _check_files(settings)
    _run(settings)


@click.command("control")
@click.option("--config", type=click.Path(exists=True, dir_okay=False), help="Settings, YAML.")
@click.option("--metrics-listen", help="Address of /healthz, /readyz, /metrics.  [0.0.0.0:8080]")
@click.option("--kubeconfig", type=click.Path(), help="Default: the pod's ServiceAccount.")
@click.option("--namespace", help="Namespace of the release.  [kueue-fallback]")
@click.option("--kueue-namespace", help="Namespace of Kueue.  [kueue-system]")
def control(config: str | None, **given: Any) -> None:
    """Write the status of policies, record runs and move pending Jobs, until SIGTERM.

    Of several replicas, only the holder of a Lease writes. When it ends, another takes over.

    Options override the settings in --config.

    \b
    Example:
      kueue-fallback control --kubeconfig ~/.kube/config --metrics-listen 127.0.0.1:8080
    """
    settings = _settings(config, given, ("metrics_listen",))
    from webhook.controller import controller

    signal.signal(signal.SIGTERM, _end)
    try:
        controller.serve(settings)
    except KeyboardInterrupt:
        sys.exit(130)
    except OSError as error:
        _fail(settings.metrics_listen, [error.strerror or str(error)])


def _settings(config: str | None, given: dict[str, Any], addresses: Sequence[str]) -> Settings:
    """Read the settings of a process, with its options; end it with exit code 2 if they are bad."""
    import yaml
    from pydantic import ValidationError

    from webhook.server.addresses import split_address

    where = config or "options"
    options = {key: value for key, value in given.items() if value is not None}
    try:
        text = Path(config).read_text(encoding="utf-8") if config else ""
        settings = Settings.model_validate({**(yaml.safe_load(text) or {}), **options})
        for name in addresses:
            split_address(getattr(settings, name))
    except ValidationError as error:
        _fail(where, [f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()])
    except TypeError:
        _fail(where, ["expected settings by name"])
    except (OSError, ValueError, yaml.YAMLError) as error:
        _fail(where, [str(error)])
    return settings


def _check_files(settings: Settings) -> None:
    import ssl

    from webhook.server.addresses import read_paths

    files = (settings.tls_cert, settings.tls_key) if settings.certificates == "files" else ()
    for path in files:
        if not Path(path).is_file():
            _fail("tls", [f"{path}: no such file"])
    try:
        if settings.client_ca:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(settings.client_ca)
    except OSError as error:
        _fail("client_ca", [f"{settings.client_ca}: {error.strerror or error}"])
    try:
        read_paths(settings.path_segments)
    except (OSError, ValueError) as error:
        _fail("path_segments", [f"{settings.path_segments}: {error}"])


def _fail(where: str, lines: list[str]) -> NoReturn:
    for line in lines:
        # Without ``terminal``: no process that serves lays out tables.
        click.echo(harmless_lines(f"{where}: {line}"), err=True)
    sys.exit(2)


def _run(settings: Settings) -> None:
    from webhook.server.gunicorn_app import Server

    def load_application() -> Application:
        from webhook.serving import app

        return app.serve_forever(settings, server)

    server = Server(
        listen=(settings.listen, settings.metrics_listen),
        load_application=load_application,
        keepalive=settings.keep_alive,
        drain_seconds=settings.drain_seconds,
        client_names=settings.client_names,
    )
    server.run()


def _end(_number: int, _frame: FrameType | None) -> NoReturn:
    sys.exit(0)
