"""``python -m certs``: show the self-managed certificates, rotate their authority by hand."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NoReturn

import click

from certs.store import Conflict, Missing, StoreError, Unavailable

if TYPE_CHECKING:
    from certs.plan import Bundle
    from certs.secret import State
    from certs.store import Store

_POLL_SECONDS = 1.0
_TRIES = 5
_NO, _UNREACHABLE = 1, 3
_REFUSED = (
    "Error: failurePolicy is Fail: until each replica has a new certificate, for some seconds, all"
    " Jobs would be refused. Set it to Ignore first, or say --force."
)


def _place(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that say which certificates are meant."""
    for option in (
        click.option(
            "--webhook-configuration",
            default="kueue-fallback",
            show_default=True,
            help="MutatingWebhookConfiguration that trusts the authority.",
        ),
        click.option(
            "--ca-secret",
            default="kueue-fallback-ca",
            show_default=True,
            help="Secret of the authority.",
        ),
        click.option(
            "-n",
            "--namespace",
            default="kueue-fallback",
            show_default=True,
            help="Namespace of the Secret.",
        ),
        click.option("--kubeconfig", default="", help="Default: as kubectl finds it."),
    ):
        command = option(command)
    return command


@click.group(
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 done, 1 the answer is no, 2 input is wrong, 3 no cluster reached.",
)
def main() -> None:
    """Look at the self-managed certificates of kueue-fallback.

    \b
    Examples:
      python -m certs show
      python -m certs rotate --wait 300
    """


@main.command()
@_place
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table")
def show(output: str, **place: str) -> None:
    """Show every authority: its part, its validity, and whether API servers trust it.

    Exit code 1: something is not as it should be; the last lines say what.
    """
    from certs.overview import faults_of, to_json, to_text

    try:
        published, state = _store(place).read()
    except StoreError as error:
        _end(error)
    now = datetime.now(UTC)
    if output == "json":
        click.echo(json.dumps(to_json(published, state, now=now), indent=2))
    else:
        click.echo(to_text(published, state, now=now))
    sys.exit(_NO if any(faults_of(published, state, now=now)) else 0)


@main.command()
@_place
@click.option(
    "--wait", type=click.FloatRange(min=0), default=0.0, help="Seconds to wait for its end.  [0]"
)
@click.option("--revoke", is_flag=True, help="Trust the present ones no more: a key has leaked.")
@click.option("--force", is_flag=True, help="Revoke although Jobs are refused meanwhile.")
def rotate(wait: float, *, revoke: bool, force: bool, **place: str) -> None:
    """Ask for a new authority; the replicas make it, publish it, and then sign with it.

    Serving certificates of the present one go on being trusted until the last has run out: a day
    and some hours. With --revoke they are not: the present authorities leave caBundle within
    seconds, for good, and until each replica has taken a new certificate into use, some seconds
    later, Jobs are admitted undecided (under failurePolicy Fail: refused).
    """
    store, until = _store(place), time.monotonic() + wait
    try:
        if revoke and not force and store.read()[0].is_required:
            click.echo(_REFUSED, err=True)
            sys.exit(_NO)
        before = _ask(store, until=until, revoke=revoke)
        click.echo(f"A {'revocation' if revoke else 'rotation'} is asked for.")
        if wait:
            _follow(store, before, until=until, revoke=revoke)
    except StoreError as error:
        _end(error)


def _ask(store: Store, *, until: float, revoke: bool) -> State:
    """Ask, and return what there was before; an API server without an answer is asked again."""
    before: State | None = None
    conflicts = 0
    while True:
        try:
            _, state = store.read()
            if before is not None and _is_asked(before, state):
                # Only the answer was lost: to ask once more would rotate twice.
                return before
            before = before or state
            store.ask(state, datetime.now(UTC), revoke=revoke)
        except Conflict:
            conflicts += 1
            if conflicts == _TRIES:
                raise
        except Unavailable as error:
            if error.reached or time.monotonic() >= until:
                raise
            click.echo(f"Waiting: {error}")
            time.sleep(_POLL_SECONDS)
        else:
            return before


def _is_asked(before: State, now: State) -> bool:
    if now.rotation_asked or now.revocation_asked:
        return True
    # Keys are read anew each time and equal only themselves.
    was, found = (
        [each and each.certificate for each in (state.signing, state.next)]
        for state in (before, now)
    )
    return was != found


def _follow(store: Store, before: State, *, until: float, revoke: bool) -> None:
    said = ""
    while time.monotonic() < until:
        try:
            published, state = store.read()
        except Unavailable as error:
            text, done = f"Waiting: {error}", False
        else:
            tell = _revocation if revoke else _progress
            text, done = tell(before, state, published)
        if text != said:
            click.echo(text)
            said = text
        if done:
            return
        time.sleep(_POLL_SECONDS)
    click.echo("Not done in time; it goes on without this command.", err=True)
    sys.exit(_NO)


def _progress(before: State, now: State, _: Bundle) -> tuple[str, bool]:
    from certs.overview import fingerprint

    was, signs = before.signing, now.signing
    if signs is not None and (was is None or signs.certificate != was.certificate):
        return f"{fingerprint(signs.certificate)} signs; the one before is trusted on.", True
    if now.next is not None:
        return f"{fingerprint(now.next.certificate)} is made and being published.", False
    return "Waiting for a replica to make the next authority.", False


def _revocation(before: State, now: State, published: Bundle) -> tuple[str, bool]:
    from certs.overview import fingerprint

    if now.signing is None or now.signing.certificate in before.certificates:
        return "Waiting for a replica to make the next authority.", False
    if any(each in before.certificates for each in published.certificates):
        return "Waiting for a replica to take the revoked ones out of caBundle.", False
    return f"{fingerprint(now.signing.certificate)} signs; none before it is trusted.", True


def _store(place: dict[str, str]) -> Any:
    from certs.client import Client
    from certs.store import Store

    return Store(
        Client(place["kubeconfig"]),
        namespace=place["namespace"],
        name=place["ca_secret"],
        configuration=place["webhook_configuration"],
    )


def _end(error: StoreError) -> NoReturn:
    click.echo(f"Error: {error}", err=True)
    answered = isinstance(error, Missing | Conflict) or getattr(error, "reached", False)
    sys.exit(_NO if answered else _UNREACHABLE)


if __name__ == "__main__":
    main(prog_name="python -m certs")
