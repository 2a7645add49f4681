"""The Job to undo, and why it may not be undone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from webhook.commands.connect import missing_job
from webhook.jobs import JOB
from webhook.model.job import DECISION

if TYPE_CHECKING:
    from webhook.api.client import Client

_NO = 1
_ALONE = """\
To have it left alone all the same:
  kubectl annotate job {name} -n {namespace} kueue-fallback.dev/policy=none"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The Job to undo."""

    namespace: str
    name: str
    is_dry_run: bool

    @property
    def path(self) -> str:
        return JOB.path(self.namespace, self.name)

    @property
    def params(self) -> Mapping[str, str]:
        return {"dryRun": "All"} if self.is_dry_run else {}

    def __str__(self) -> str:
        return f"Job {self.namespace}/{self.name}"


class NotUndoneError(Exception):
    """The Job was not undone: why not, or what has become of it."""

    def __init__(self, text: str, code: int = _NO) -> None:
        super().__init__(text, code)
        self.text = text
        self.code = code


def missing(client: Client, target: Target) -> str:
    """Return a sentence that the Job does not exist."""
    return missing_job(client, target.namespace, target.name)


def without_decision(target: Target, job: Mapping[str, Any]) -> str:
    """Return a sentence that the Job carries no decision; empty: it carries one."""
    if DECISION in (job["metadata"].get("annotations") or {}):
        return ""
    alone = _ALONE.format(name=target.name, namespace=target.namespace)
    return f"{target} carries no decision: there is nothing to undo.\n{alone}"
