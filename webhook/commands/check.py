"""``check``: validates policies in files, without a cluster unless one is asked for.

With ``--server`` the API server judges them too, by a dry run, in its own words.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import quote

import click

from webhook.api.kubernetes_api import Forbidden, NotServed, Refused, Unreachable
from webhook.api.resources import (
    ACCELERATOR_PROFILES,
    POLICIES,
    TARIFFS,
    TEAM_POLICIES,
    kueue_path,
    our_path,
)
from webhook.commands import manifest, terminal
from webhook.commands.kubectl import (
    Scope,
    connected,
    filename_option,
    listed,
    namespace_option,
    output_option,
    recursive_option,
    scope_options,
)
from webhook.cost.cluster_prices import zone_of
from webhook.decide import policy_limits
from webhook.model.costs.accelerator_profile import (
    PROFILE_KIND,
    read_accelerator_profile,
)
from webhook.model.costs.device_table import DEVICES
from webhook.model.costs.tariff import TARIFF_KIND, read_tariff
from webhook.model.fields import FieldError
from webhook.model.policy.fallback_policy import (
    GROUP,
    KIND,
    READ_BY_KIND,
    TEAM_KIND,
    VERSION,
    PolicyError,
)
from webhook.model.words import nearest

if TYPE_CHECKING:
    from webhook.api.client import Client
    from webhook.commands.check_sample import Trial


_DRY_RUN: Final = {"dryRun": "All", "fieldValidation": "Strict"}
_TRIES: Final = 3
_ANY_NAMESPACE: Final = "default"
"""Of a team's policy that names none, where it does not matter."""
_ROOT: Final = "<nil>"
"""How the API server writes the path of the whole object."""
_UNKNOWN_FIELD = re.compile(r'unknown field "([^"]+)"')


_Note: TypeAlias = tuple[str, str]
"""The path of what is to be known, and the words."""


def _of_policy(value: Mapping[str, Any]) -> Iterator[_Note]:
    policy = READ_BY_KIND[value["kind"]](value)
    for undone in policy_limits.of_undo(policy):
        yield undone.path, str(undone)
    for moved in policy_limits.of_moves(policy):
        yield moved.path, str(moved)
    for unscaled in policy_limits.of_autoscale(policy):
        yield unscaled.path, str(unscaled)
    if policy.spec.message and not policy.spec.warn:
        yield "spec.message", "spec.message: never shown, as spec.warn is false"


def _of_profile(value: Mapping[str, Any]) -> Iterator[_Note]:
    like = read_accelerator_profile(value).unknown_like
    if like:
        text = f"no product {like}{nearest(like, DEVICES)}; only the figures given here count"
        yield "spec.like", f"spec.like: {text}"


def _of_tariff(value: Mapping[str, Any]) -> Iterator[_Note]:
    name = read_tariff(value).spec.time_zone
    if zone_of(name) is None:
        text = f"there is no time zone {name}; only entries that always apply count"
        yield "spec.timeZone", f"spec.timeZone: {text}"


CHECKED: Final[Mapping[str, tuple[str, Callable[[Mapping[str, Any]], Iterator[_Note]]]]] = {
    KIND: (POLICIES, _of_policy),
    TEAM_KIND: (TEAM_POLICIES, _of_policy),
    PROFILE_KIND: (ACCELERATOR_PROFILES, _of_profile),
    TARIFF_KIND: (TARIFFS, _of_tariff),
}
"""A kind of ours to its plural, and what reads an object and yields what is to be known of a valid
one; it raises PolicyError with every mistake in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One line of the answer. *kind* is valid, skipped, note or error."""

    kind: str
    file: str
    line: int
    path: str
    message: str
    is_servers: bool = False
    """The API server said so."""

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}" if self.line else self.file
        return f"{where}: {'API server: ' if self.is_servers else ''}{self.message}"


@click.command("check")
@filename_option("Policies", required=True)
@recursive_option
@click.option("--server", is_flag=True, help="Also ask the API server, by a dry run.")
@click.option(
    "--sample", metavar="JOB", help="A Job's manifest to try in every option, on the cluster."
)
@namespace_option
@output_option
@scope_options
def command(
    *,
    files: tuple[str, ...],
    recursive: bool,
    server: bool,
    sample: str | None,
    output: str,
    scope: Scope,
) -> None:
    """Check our objects for what the API server would refuse.

    These are FallbackPolicies, TeamFallbackPolicies, AcceleratorProfiles and Tariffs.

    Each mistake is one line: file, line, path and what was expected. Other kinds are skipped with
    a note. Notes on a valid policy say which Jobs it never moves, and which of its decisions can
    be undone only by a new Job. No cluster is needed.

    With --server the API server is also asked, by a dry run, and its own texts are shown. You need
    the right to create FallbackPolicies, and to get and update one that exists. If you may list
    LocalQueues, a note names those that are missing.

    With --sample the API server is asked whether it would create the Job, and a pod of it, in each
    option. That shows what quotas, LimitRanges and other admission policies refuse, before a user
    meets it. You need the rights to create Jobs and pods, and to list LocalQueues.

    Exit codes: 0 all are valid, 1 the sample is refused in an option, or the cluster cannot be
    asked (with --server or --sample), 2 a policy or a file is wrong.

    \b
    Examples:
      kubectl fallback check -f policy.yaml
      helm template . | kubectl fallback check -f - -o json
      kubectl fallback check -f policy.yaml --server
      kubectl fallback check -f policy.yaml --sample job.yaml -n team
    """
    trials: Sequence[Trial] | None = None
    try:
        paths = tuple(manifest.files_in(files, is_recursive=recursive))
        if server:
            # With its own namespace for those of teams that name none, as kubectl does.
            namespace = scope.here
            with connected(scope.access) as client:
                findings = _findings(paths, files, namespace, client)
        else:
            findings = _findings(paths, files, scope.namespace or _ANY_NAMESPACE)
        failed = any(finding.kind == "error" for finding in findings)
        if sample is not None and not failed:
            from webhook.commands.check_sample import tried_on_cluster

            trials = tried_on_cluster(paths, sample, scope)
    except FieldError as error:
        terminal.say(str(error), err=True)
        sys.exit(2)
    if output in ("json", "yaml"):
        terminal.say(terminal.dump(_summary(findings, trials, valid=not failed), output))
    else:
        for finding in findings:
            terminal.say(str(finding), err=finding.kind in ("skipped", "note"))
        for trial in trials or ():
            terminal.say(*trial.lines)
    refused = any(not trial.is_accepted for trial in trials or ())
    sys.exit(2 if failed else int(refused))


def _findings(
    paths: Sequence[str], given: Sequence[str], namespace: str, client: Client | None = None
) -> Sequence[Finding]:
    """Check files; those that are not *given* by name are of a folder, which may hold others."""
    return [
        finding
        for file in paths
        for finding in check(file, client, namespace, is_of_folder=file not in given)
    ]


def check(
    file: str,
    client: Client | None = None,
    namespace: str = _ANY_NAMESPACE,
    *,
    is_of_folder: bool = False,
) -> Iterator[Finding]:
    """Check each document of a file, in order.

    A file without a policy is a mistake, too, unless it was found in a folder.

    With *client* the API server is asked about each policy as well; *namespace* is for those of
    teams that name none.
    """
    name = "stdin" if file == "-" else file
    ours = 0
    try:
        for entry in manifest.objects(file):
            ours += isinstance(entry.value, dict) and entry.value.get("kind") in CHECKED
            yield from _check(entry, client, namespace)
    except manifest.ManifestError as error:
        yield Finding(kind="error", file=name, line=error.line, path="", message=error.message)
    else:
        if not ours:
            message = f"no {KIND} in it"
            kind = "skipped" if is_of_folder else "error"
            yield Finding(kind=kind, file=name, line=0, path="", message=message)


def _check(
    entry: manifest.ManifestObject, client: Client | None, namespace: str
) -> Iterator[Finding]:
    value = entry.value

    def finding(kind: str, path: str, message: str, **more: bool) -> Finding:
        line = entry.line(path)
        return Finding(kind=kind, file=entry.file, line=line, path=path, message=message, **more)

    if not isinstance(value, dict):
        yield finding("error", "", "expected an object")
    elif "kind" not in value or "apiVersion" not in value:
        missing = [key for key in ("apiVersion", "kind") if key not in value]
        yield finding("error", "", ", ".join(f"{key} not set" for key in missing))
    elif value["kind"] not in CHECKED:
        yield finding("skipped", "kind", f"skipped: {value['kind']} is not a {KIND}")
    elif value["apiVersion"] != f"{GROUP}/{VERSION}":
        message = f'no matches for kind "{value["kind"]}" in version "{value["apiVersion"]}"'
        yield finding("error", "apiVersion", message)
    else:
        for path, text in entry.notes:
            yield finding("note", path, f"{path}: {text}")
        value = manifest.in_namespace(value, namespace)
        for kind, path, message in _judged(value):
            yield finding(kind, path, message)
        if client is not None:
            for kind, path, message in _judged_by(client, value):
                yield finding(kind, path, message, is_servers=kind != "note")


def _judged(value: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield (kind, path, message): each mistake, or that it is valid and what to know of it."""
    kind = value["kind"]
    try:
        notes = list(CHECKED[kind][1](value))
    except PolicyError as error:
        for mistake in error.errors:
            yield "error", mistake.path, str(mistake)
    else:
        yield "valid", "", f"{kind} {value['metadata']['name']} is valid"
        for path, text in notes:
            yield "note", path, text


def _judged_by(client: Client, value: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield what the API server says, as ``_judged`` does, and notes on missing queues."""
    errors = refusals(client, value)
    for error in errors:
        yield "error", error.path, str(error)
    if not errors:
        yield "valid", "", f"{value['kind']} {value['metadata'].get('name', '')} is valid"
        if value["kind"] in READ_BY_KIND:
            for path, text in _missing_queues(client, value):
                yield "note", path, text


def _missing_queues(client: Client, value: Mapping[str, Any]) -> Iterator[_Note]:
    """Yield a note for each option whose LocalQueue is in no namespace, if they may be listed."""
    try:
        policy = READ_BY_KIND[value["kind"]](value)
        namespace = f"namespaces/{policy.namespace}/" if policy.namespace else ""
        path = kueue_path(client.kueue_version(), f"{namespace}localqueues")
        there = {queue["metadata"]["name"] for queue in listed(client, path)}
    except (PolicyError, Forbidden, NotServed):
        # What is wrong with the policy is said already.
        return
    where = f"namespace {policy.namespace}" if policy.namespace else "any namespace"
    for index, option in enumerate(policy.spec.options):
        if option.queue and option.queue not in there:
            name = f"{option.queue} in {where}{nearest(option.queue, sorted(there))}"
            place = f"spec.options[{index}].queue"
            yield place, f"{place}: there is no LocalQueue {name}"


def _summary(
    findings: Sequence[Finding], trials: Sequence[Trial] | None, *, valid: bool
) -> Mapping[str, Any]:
    return {
        "valid": valid,
        **({} if trials is None else {"sample": [trial.as_json() for trial in trials]}),
        "findings": [
            {
                "kind": finding.kind,
                "file": finding.file,
                "line": finding.line or None,
                "path": finding.path,
                "message": finding.message,
                **({"server": True} if finding.is_servers else {}),
            }
            for finding in findings
        ],
    }


def refusals(client: Client, policy: Mapping[str, Any]) -> tuple[FieldError, ...]:
    """Return each mistake that the API server names; empty: it would accept the policy.

    Raises:
        ClusterError: it cannot be asked.

    """
    try:
        _create_or_update(client, policy)
    except Refused as error:
        return tuple(_mistakes(error))
    except Forbidden as error:
        if error.is_lack_of_rights:
            raise
        return (FieldError("", str(error)),)
    return ()


def _create_or_update(client: Client, policy: Mapping[str, Any]) -> None:
    kind = policy["kind"]
    try:
        client.post(_path_of(policy), policy, _DRY_RUN)
    except NotServed:
        raise Unreachable(f"the cluster has no {kind}: its CRD is not installed") from None
    except Refused as error:
        if not error.is_conflict:
            raise
        _update(client, policy)


def _path_of(policy: Mapping[str, Any]) -> str:
    kind, metadata = policy["kind"], policy.get("metadata")
    plural, _ = CHECKED[kind]
    if kind != TEAM_KIND:
        return our_path(plural)
    given = metadata.get("namespace") if isinstance(metadata, dict) else None
    return our_path(f"namespaces/{quote(str(given or _ANY_NAMESPACE), safe='')}/{plural}")


def _update(client: Client, policy: Mapping[str, Any]) -> None:
    """Try the policy in place of the stored one, whose status may be written meanwhile."""
    metadata = policy["metadata"]
    path = f"{_path_of(policy)}/{quote(metadata['name'], safe='')}"
    for number in range(_TRIES):
        version = client.get(path)["metadata"]["resourceVersion"]
        update = {**policy, "metadata": {**metadata, "resourceVersion": version}}
        try:
            client.put(path, update, _DRY_RUN)
        except Refused as error:
            if not error.is_conflict or number == _TRIES - 1:
                raise
        else:
            return


def _mistakes(error: Refused) -> Iterator[FieldError]:
    for cause in error.causes:
        yield FieldError("" if cause.field == _ROOT else cause.field, cause.message)
    if not error.causes:
        unknown = _UNKNOWN_FIELD.findall(error.message)
        yield from (FieldError(path, "unknown field") for path in unknown)
        if not unknown:
            yield FieldError("", error.message)
