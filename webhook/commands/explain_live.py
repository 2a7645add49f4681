"""A Job that is there: what was decided, and what would be decided if it were submitted now."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from webhook.api.errors import Forbidden, NotServed
from webhook.commands import deciding, recorded, terminal
from webhook.commands.connect import jobs_path, missing_job, name_of
from webhook.commands.decision_table import table
from webhook.decide import decision_record
from webhook.decide.wishes import DEADLINE, read_wishes
from webhook.model.fields import FieldError
from webhook.model.job import DECISION

if TYPE_CHECKING:
    from webhook.api.client import Client
    from webhook.model.decision import Outcome

_NOTHING = "No decision stands on it: no policy matched, or its mode was Observe."
_UNREADABLE = "Its decision cannot be read."
_ENDED = {"Complete": "complete", "Failed": "failed"}


def explained(
    client: Client, namespace: str, name: str, *, policies: tuple[str, ...], output: str
) -> str:
    """Explain one Job; ends the program where there is none."""
    try:
        job = client.get(jobs_path(namespace, name_of(name)))
    except NotServed:
        terminal.say(missing_job(client, namespace, name_of(name)), err=True)
        sys.exit(1)
    decision, undone = recorded.decision_on(job), recorded.undone_on(job)
    now: Outcome | str
    try:
        place = namespace, job["metadata"]["name"]
        view = deciding.view_of_cluster(client, policies, without_job=place)
        now = deciding.consider(as_if_created(job, view.unix), view)
        for hint in filter(None, (deciding.missing_queue(job, view), deciding.untested(view))):
            terminal.say(hint, err=True)
    except Forbidden as error:
        now = str(error)
    except FieldError as error:
        now = f"it cannot be read: {error}"
    if output in ("json", "yaml"):
        told = {"undone": undone} if undone else {}
        return terminal.dump({**_as_json(job, decision, now), **told}, output)
    return "\n".join(_as_text(job, decision, now, output))


def as_if_created(job: Mapping[str, Any], unix: float) -> Mapping[str, Any]:
    """Make of a Job one that is created at *unix*: what is left of its deadline stays the same."""
    metadata = job["metadata"]
    annotations = metadata.get("annotations") or {}
    if DEADLINE not in annotations:
        return job
    created = recorded.unix_of(str(metadata.get("creationTimestamp"))) or unix
    try:
        seconds = read_wishes({DEADLINE: annotations[DEADLINE]}, created).deadline or 0.0
    except FieldError:
        # Whoever decides says what is wrong with it.
        return job
    deadline = datetime.fromtimestamp(created + seconds, UTC).isoformat()
    return {**job, "metadata": {**metadata, "annotations": {**annotations, DEADLINE: deadline}}}


def _as_json(
    job: Mapping[str, Any], decision: Mapping[str, Any] | None, now: Outcome | str
) -> Mapping[str, Any]:
    metadata = job["metadata"]
    return {
        "job": {
            "namespace": metadata["namespace"],
            "name": metadata["name"],
            "state": state_of(job),
        },
        "decided": decision,
        "now": {"unknown": now} if isinstance(now, str) else decision_record.outcome_json(now),
    }


def _as_text(
    job: Mapping[str, Any], decision: Mapping[str, Any] | None, now: Outcome | str, output: str
) -> list[str]:
    metadata = job["metadata"]
    lines = [f"Job {metadata['namespace']}/{metadata['name']}: {state_of(job)}.", ""]
    if decision is None:
        has_one = DECISION in (metadata.get("annotations") or {})
        lines.append(_UNREADABLE if has_one else recorded.undone_on(job) or _NOTHING)
    else:
        lines.append(terminal.strong(f"Decided {recorded.when(decision)}"))
        lines += recorded.as_text(decision, terminal.width(output))
    lines += ["", terminal.strong("If it were submitted now, without what it takes up itself")]
    if isinstance(now, str):
        return [*lines, f"Not known: {now}."]
    return [*lines, table(now, terminal.columns(output))]


def state_of(job: Mapping[str, Any]) -> str:
    """Say in a word how far a Job is."""
    for condition in job.get("status", {}).get("conditions") or ():
        if condition.get("status") == "True" and condition.get("type") in _ENDED:
            return _ENDED[condition["type"]]
    return "pending" if job["spec"].get("suspend") else "started"
