"""``gitops``: prints what Argo CD and Flux have to be told of fields that the webhook changes.

The rules are made from the policies' options and from the places that the webhook may patch, so
they name what these policies can change, and no more.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import click
import yaml

from webhook.admission.patch import to_pointer
from webhook.api.cluster_access import ClusterAccess
from webhook.api.kubernetes_api import Forbidden, NotServed
from webhook.commands import terminal
from webhook.commands.connect import connected
from webhook.commands.kubectl_flags import connection_options, filename_option, recursive_option
from webhook.commands.manifest import files_in
from webhook.model.edits import KEYED_BY_NAME, LISTED, Path
from webhook.model.fields import FieldError
from webhook.model.omitted_namespaces import CONDITION

if TYPE_CHECKING:
    from webhook.jobs import JobKind
    from webhook.model.policy.fallback_policy import FallbackPolicy

_ANY_NAMESPACE: Final = "default"
_LISTS: Final = KEYED_BY_NAME | LISTED
_NAMES: Final = {"runtimePatches": "manager"}
"""Lists whose elements go by another field than ``name``."""
_WEBHOOKS: Final = {
    "group": "admissionregistration.k8s.io",
    "kind": "MutatingWebhookConfiguration",
    "jqPathExpressions": [
        ".webhooks[]?.clientConfig.caBundle",
        f'.webhooks[]?.matchConditions[]? | select(.name == "{CONDITION}")',
    ],
}
_IF_NOT_PRESENT: Final = {"kustomize.toolkit.fluxcd.io/ssa": "IfNotPresent"}

_Changed = Sequence[tuple["JobKind", tuple[Path, ...]]]
"""Kinds of Jobs, with the places that policies change in them."""


@click.group("gitops")
def command() -> None:
    """Print what a GitOps tool must ignore in Jobs that policies change, as YAML.

    \b
    Examples:
      kubectl fallback gitops argocd
      kubectl fallback gitops flux -f policy.yaml
    """


@command.command("argocd", short_help="Rules for Argo CD's Applications.")
@filename_option("Policies, instead of the cluster's")
@recursive_option
@connection_options
def argocd(*, files: tuple[str, ...], recursive: bool, access: ClusterAccess) -> None:
    """Print `ignoreDifferences` for Applications with Jobs, and for kueue-fallback's own.

    All policies count, whatever their mode is. You need the right to list FallbackPolicies.

    Exit codes: 0 done, 1 the cluster cannot be asked, 2 a policy or a file is wrong.

    \b
    Examples:
      kubectl fallback gitops argocd
      kubectl fallback gitops argocd -f policy.yaml
    """
    _print(files_in(files, is_recursive=recursive), access, _for_argo_cd)


@command.command("flux", short_help="Rules for Flux's HelmReleases and Kustomizations.")
@filename_option("Policies, instead of the cluster's")
@recursive_option
@connection_options
def flux(*, files: tuple[str, ...], recursive: bool, access: ClusterAccess) -> None:
    """Print rules for HelmReleases and Kustomizations with Jobs.

    All policies count, whatever their mode is. You need the right to list FallbackPolicies.

    Exit codes: 0 done, 1 the cluster cannot be asked, 2 a policy or a file is wrong.

    \b
    Examples:
      kubectl fallback gitops flux
      kubectl fallback gitops flux -f policy.yaml
    """
    _print(files_in(files, is_recursive=recursive), access, _for_flux)


def _print(
    files: Iterable[str], access: ClusterAccess, rules: Callable[[_Changed], Iterator[str]]
) -> None:
    from webhook.decide import written_places
    from webhook.jobs import KINDS

    try:
        paths = list(files)
        policies = _of_files(paths) if paths else _of_cluster(access)
    except FieldError as error:
        terminal.say(str(error), err=True)
        sys.exit(2)
    places = ((kind, written_places.of_kind(kind, policies)) for kind in KINDS.values())
    changed = [(kind, written) for kind, written in places if written]
    if not changed:
        terminal.say("There is no policy, so no Job is changed.", err=True)
    names = ", ".join(sorted({policy.name for policy in policies}))
    terminal.say(f"# Made from the policies: {names or 'none'}")
    terminal.say("---\n".join(rules(changed)).rstrip("\n"))


def _of_files(paths: Iterable[str]) -> list[FallbackPolicy]:
    from webhook.commands.manifest import read_policies

    return [policy for path in paths for policy in read_policies(path, _ANY_NAMESPACE)]


def _of_cluster(access: ClusterAccess) -> list[FallbackPolicy]:
    """Return the cluster's policies; one that cannot be read is left out, and named."""
    from webhook.api.resources import POLICIES, TEAM_POLICIES, our_path
    from webhook.api.watch import list_pages
    from webhook.model.policy.fallback_policy import KIND, READ_BY_KIND, TEAM_KIND, PolicyError

    policies = []
    with connected(access) as client:
        pages = list_pages(client, our_path(POLICIES))
        stored = [(KIND, item) for page in pages for item in _items(page)]
        with suppress(NotServed, Forbidden):
            for page in list_pages(client, our_path(TEAM_POLICIES)):
                stored += [(TEAM_KIND, item) for item in _items(page)]
    for kind, item in stored:
        try:
            policies.append(READ_BY_KIND[kind](item))
        except PolicyError as error:
            name = item["metadata"]["name"]
            terminal.say(f"{kind} {name} is left out: {error}", err=True)
    return policies


def _items(page: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    return page.get("items") or ()


def _for_argo_cd(changed: _Changed) -> Iterator[str]:
    if changed:
        yield (
            "# For Applications with Jobs. Without RespectIgnoreDifferences: a sync may send these "
            "fields,\n# as the webhook keeps what was decided.\n"
        ) + _application(
            {
                "group": kind.group,
                "kind": kind.kind,
                "jqPathExpressions": [jq_path(place) for place in places],
            }
            for kind, places in changed
        )
    options = {"syncOptions": ["RespectIgnoreDifferences=true"]}
    yield (
        "# For the Application that installs kueue-fallback, which writes these fields itself.\n"
    ) + _application([_WEBHOOKS], syncPolicy=options)


def _application(ignored: Iterable[Mapping[str, Any]], **spec: Any) -> str:
    return _written(
        "argoproj.io/v1alpha1", "Application", {"ignoreDifferences": list(ignored), **spec}
    )


def _for_flux(changed: _Changed) -> Iterator[str]:
    ignored = [
        {"paths": pointers(places), "target": {"group": kind.group, "kind": kind.kind}}
        for kind, places in changed
    ]
    patches = [
        {"target": {"group": kind.group, "kind": kind.kind}, "patch": _annotated(kind)}
        for kind, _ in changed
        # What never ends is applied again and again, so that it takes up what changes in Git.
        if kind.finishes
    ]
    if changed:
        drift = {"driftDetection": {"mode": "enabled", "ignore": ignored}}
        yield "# For HelmReleases with Jobs.\n" + _written(
            "helm.toolkit.fluxcd.io/v2", "HelmRelease", drift
        )
    if patches:
        yield "# For Kustomizations with Jobs.\n" + _written(
            "kustomize.toolkit.fluxcd.io/v1", "Kustomization", {"patches": patches}
        )
    yield (
        "# The HelmRelease of kueue-fallback needs no rule: Flux leaves to others the fields that "
        "it does not\n# write itself, as caBundle in the webhook configuration.\n"
    )


def _annotated(kind: JobKind) -> str:
    """Return a patch for kustomize; the name in it stands for every one that the target selects."""
    metadata = {"name": "any", "annotations": dict(_IF_NOT_PRESENT)}
    return yaml.safe_dump(
        {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}, sort_keys=False
    )


def _written(api_version: str, kind: str, spec: Mapping[str, Any]) -> str:
    document = {"apiVersion": api_version, "kind": kind, "spec": dict(spec)}
    return str(yaml.dump(document, Dumper=_Dumper, sort_keys=False, width=200))


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as such, and nothing by reference."""

    def ignore_aliases(self, _data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar(
        "tag:yaml.org,2002:str", text, style="|" if "\n" in text else None
    )


_Dumper.add_representer(str, _text)


def jq_path(place: Path) -> str:
    """Write a place as Argo CD reads it; all of a mapping where any key may change."""
    if place[-1] == "*":
        place = place[:-1]
    return "".join(_steps(place))


def _steps(place: Path) -> Iterator[str]:
    for above, part in zip(("", *place), place, strict=False):
        if part == "*":
            # A list or a mapping that a Job does not have is no mistake.
            yield "[]?"
        elif above in _LISTS:
            yield f"[]? | select(.{_NAMES.get(above, 'name')} == {json.dumps(part)})"
        else:
            yield f".{part}" if part.isidentifier() else f"[{json.dumps(part)}]"


def pointers(places: Iterable[Path]) -> list[str]:
    """Write places as JSON Pointers, which end where an element of a list would be named."""
    found = list(dict.fromkeys(map(_pointer, places)))
    return [each for each in found if not any(each.startswith(f"{other}/") for other in found)]


def _pointer(place: Path) -> str:
    open_ended = (
        index
        for index, (above, part) in enumerate(zip(("", *place), place, strict=False))
        if part == "*" or above in _LISTS
    )
    return to_pointer(place[: next(open_ended, len(place))])
