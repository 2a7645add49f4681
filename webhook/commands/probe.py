"""``probe``: shows by a dry run whether the API server calls the webhook."""

from __future__ import annotations

import secrets
import sys
import time
from typing import TYPE_CHECKING, Any

import click

from webhook.commands import terminal
from webhook.commands.kubectl import FAULT, Scope, namespace_option, scope_options
from webhook.jobs import JOB
from webhook.model.words import span

if TYPE_CHECKING:
    from webhook.api.client import Client

EVERY_SECONDS = 1.0
_PRIVILEGES = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}
_NO_WORD = "the API server created the Job (as a dry run) without the webhook's answer"
_UNSEEN = """\
The webhook did not answer within {wait}. New Jobs are admitted as they are submitted.
Check these, in this order:
  1. kubectl get pods -A -l app.kubernetes.io/name=kueue-fallback
     Are the servers ready? If not, their log and /readyz on their metrics port say why.
  2. kubectl get mutatingwebhookconfigurations -o yaml
     Has kueue-fallback's a caBundle? Does it exclude namespace {namespace}?
  3. kubectl get --raw /metrics | grep apiserver_admission_webhook_fail_open_count
     If it counts, the API server calls in vain: a firewall before the pods' port, a
     NetworkPolicy, a certificate that it does not trust, or none of its own where the webhook
     asks for one (its log names the error)."""


@click.command("probe")
@namespace_option
@click.option(
    "--wait",
    type=click.FloatRange(min=0),
    default=5,
    show_default=True,
    help="How long to try, in seconds.",
)
@scope_options
def command(*, wait: float, scope: Scope) -> None:
    """Create a Job as a dry run, and wait until the answer shows that the webhook was called.

    Nothing is created. You need the right to create Jobs in the namespace. While it waits, it says
    after each try why it still does.

    Exit codes: 0 the webhook is called, 1 it was not called in that time, or the cluster cannot be
    asked.

    \b
    Examples:
      kubectl fallback probe
      kubectl fallback probe --namespace team --wait 10
    """
    from webhook.api.client import Client
    from webhook.api.kubernetes_api import ClusterError

    namespace = scope.here
    client, started = Client(scope.access), time.monotonic()
    while True:
        left = wait - (time.monotonic() - started)
        trouble = ""
        try:
            if seen_by := ask(client, namespace):
                break
        except ClusterError as error:
            trouble = str(error)
        if left <= 0:
            terminal.say(trouble or _UNSEEN.format(wait=span(wait), namespace=namespace), err=True)
            sys.exit(FAULT)
        terminal.say(f"Not yet: {trouble or _NO_WORD}; for {span(left)} more", err=True)
        time.sleep(min(EVERY_SECONDS, left))
    terminal.say(f"The API server calls the webhook: the probe was answered by {seen_by}.")


def ask(client: Client, namespace: str) -> str:
    """Send one probe; return which replica answered it, or nothing.

    Raises:
        ClusterError: the API server refuses the Job, or does not answer.

    """
    from webhook.admission import review

    # The webhook's warning repeats it, so that no other warning is taken for its answer.
    nonce = secrets.token_hex(8)
    _, warnings = client.ask("POST", JOB.path(namespace), _job(nonce), {"dryRun": "All"})
    start = review.probe_warning(nonce)
    return next((text.removeprefix(start) for text in warnings if text.startswith(start)), "")


def _job(nonce: str) -> dict[str, Any]:
    """Return a Job that any admission policy should accept: it asks for nothing."""
    from webhook.model.job import PROBE

    container = {
        "name": "probe",
        "image": "kueue-fallback.dev/probe:none",
        "securityContext": _PRIVILEGES,
        "resources": {
            "requests": {"cpu": "1m", "memory": "1Mi"},
            "limits": {"cpu": "1m", "memory": "1Mi"},
        },
    }
    return {
        "apiVersion": JOB.api_version,
        "kind": JOB.kind,
        "metadata": {
            "generateName": "kueue-fallback-probe-",
            "annotations": {PROBE: nonce},
        },
        "spec": {
            "suspend": True,
            "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
        },
    }
