"""``status``: what runs, how fresh it is, what queues hold, and what needs attention."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any

import click
from rich.text import Text

from webhook.adapt.accelerators import is_accelerator
from webhook.api.kubernetes_api import Forbidden
from webhook.commands import kubectl, status_parts, terminal
from webhook.commands.kubectl import (
    Scope,
    all_namespaces_option,
    connected,
    namespace_option,
    output_option,
    release_namespace_option,
    scope_options,
)
from webhook.commands.status_parts import StatusPart, part_of
from webhook.commands.terminal import Line
from webhook.hindsight.fragmentation_record import PublishedFreed
from webhook.hindsight.freed_slices import cut_in_words, named
from webhook.model.job import PLAIN
from webhook.model.words import figure, harmless, span

if TYPE_CHECKING:
    from webhook.api.client import Client


_POLICIES = ("POLICY", "MODE", "STRATEGY", "READY", "OPTIONS", "MESSAGE")
_QUEUES = ("CLUSTERQUEUE", "STATE", "PENDING", "RESERVING", "FLAVOR", "RESOURCE", "USED", "QUOTA")
_LOCAL_QUEUES = ("NAMESPACE", "LOCALQUEUE", "CLUSTERQUEUE", "PENDING", "RESERVING")
_REPLICAS = ("SERVER", "STATE", "STATE AGE", "CERTIFICATE", "WHY")
_CLUSTERS = ("CLUSTER", "ACTIVE", "STATE AGE", "MESSAGE")
_SPARE = ("RESERVING", "STATE", "FLAVOR", "QUOTA")
"""Columns of ClusterQueues that are left out on a narrow terminal."""
_NAMES_WIDTH = 14
_SCREEN = 40
"""Lines, unless all is asked for."""
_LEAST_ROWS = 8
_MOST_LINES = 8
"""Of each other table, and of what needs attention."""
_ENDLESS = 1_000_000
_ACTIVE = {True: "active", False: "inactive", None: "-"}
_READY = {True: "ready", False: "not ready", None: "-"}


def as_text(
    parts: Mapping[str, StatusPart], *, limit: int | None, is_whole: bool = False
) -> list[Line]:
    """Return the status on a screen of ``_SCREEN`` lines; *is_whole*: all of it."""
    said = {name: _said(parts[key], say) for name, key, say in _LINES}
    lines: list[Line] = [
        part
        for name, text in said.items()
        for part in terminal.fitted(Text.assemble(f"{name:<{_NAMES_WIDTH}}", text), limit)
        if text
    ]
    hidden = [name for name, key, _ in _LINES if parts[key].forbidden]
    if hidden:
        lines += [f"You may not see: {', '.join(hidden)} (-o json has the reasons)."]
    for header, rows in _tables(parts):
        lines += ["", *_some(terminal.table(header, rows, limit=limit), is_whole=is_whole)]
    whys = [why for part in parts.values() for why in part.trouble]
    trouble = [line for why in whys for line in terminal.fitted(f"  {harmless(why)}", limit)]
    end: list[Line] = []
    if trouble:
        title = terminal.tinted("Needs attention:", like="not ready")
        end = ["", title, *_some(trouble, is_whole=is_whole)]
    left = _ENDLESS if is_whole else max(_SCREEN - len(lines) - len(end), _LEAST_ROWS)
    return [*lines, *_queues(parts["clusterQueues"].shown or (), limit, left), *end]


def _said(part: StatusPart, say: Callable[[Any], Line]) -> Line:
    if part.forbidden:
        return ""
    return part.hidden or say(part.shown)


def _some(lines: list[Text], *, is_whole: bool) -> list[Line]:
    """Return the lines that fit beside others on a screen, and how many more there are."""
    more = len(lines) - _MOST_LINES
    return [*lines] if is_whole or more <= 1 else [*lines[:-more], f"… and {more} more: --all"]


def _queues(queues: Sequence[Mapping[str, Any]], limit: int | None, left: int) -> list[Line]:
    """Return the table of ClusterQueues in at most *left* lines, those of policies first.

    Where they do not all fit, only those of policies are shown; without any, the busiest.
    """
    if not queues:
        return []
    header, ordered = (*_QUEUES, "NEXT FREE"), sorted(queues, key=_rank)
    if left - 2 < sum(max(len(queue["quotas"]), 1) for queue in queues):
        ordered = [queue for queue in ordered if queue["inPolicies"]] or sorted(
            queues, key=lambda queue: (-queue["pending"], -queue["reserving"], queue["name"])
        )
    rows: list[tuple[str, ...]] = []
    shown = 0
    for queue in ordered:
        added = _queue(queue)
        if rows and len(rows) + len(added) > left - 3:
            break
        rows, shown = [*rows, *added], shown + 1
    shown_rows = rows[: max(left - 3, 1)]
    lines: list[Line] = ["", *terminal.table(header, shown_rows, limit=limit, spare=_SPARE)]
    others = len(queues) - shown
    if others:
        busy = sum(1 for queue in queues if queue["pending"]) - sum(
            1 for queue in ordered[:shown] if queue["pending"]
        )
        lines.append(f"… and {others} more ClusterQueues, {busy} with pending Workloads: --all")
    return lines


def _rank(queue: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the place of a queue: those of policies first, with devices first, by cohort."""
    devices = any(is_accelerator(quota["resource"]) for quota in queue["quotas"])
    return not queue["inPolicies"], not devices, queue["cohort"] or "~", queue["name"]


def _tables(parts: Mapping[str, StatusPart]) -> list[tuple[Sequence[str], list[tuple[str, ...]]]]:
    tables: list[tuple[Sequence[str], list[tuple[str, ...]]]] = [
        (_REPLICAS, [_replica(replica) for replica in parts["replicas"].shown or ()]),
        (_CLUSTERS, _clusters(parts["clusters"].shown or (), parts["replicas"].shown or ())),
        _policies(parts["policies"].shown or ()),
    ]
    rows = [_scarce(cell) for cell in parts["congestion"].shown or ()]
    tables.append((_SCARCE, rows))
    tables += _slices(parts["fragmentation"].shown or {"sizes": (), "cuts": ()})
    if "localQueues" in parts:
        rows = [_local_queue(queue) for queue in parts["localQueues"].shown or ()]
        tables.append((_LOCAL_QUEUES, rows))
    return [(header, rows) for header, rows in tables if rows]


_SCARCE = ("SCARCE IN", "FLAVOR", "RESOURCE", "CONGESTION PRICE", "WAIT")


def _scarce(cell: Mapping[str, Any]) -> tuple[str, ...]:
    wait = cell["waitSeconds"]
    tree, flavor, resource = (harmless(cell[key]) for key in ("tree", "flavor", "resource"))
    if cell["cluster"]:
        tree = f"{tree} of cluster {harmless(cell['cluster'])}"
    return (tree, flavor, resource, figure(cell["price"]), "-" if wait is None else span(wait))


_SLICES = ("SLICE", "WAIT", "FREE", "BLOCKED", "FREE IN SMALLER ONES", "COMES FREE")
_CUTS = ("CUT ANEW ON NODE", "FROM", "INTO", "AFTER THE END OF")


def _slices(shown: Mapping[str, Any]) -> list[tuple[Sequence[str], list[tuple[str, ...]]]]:
    """Return tables of the slices that wait or find no use, and of the cuts for what waits."""
    sizes = [
        (
            harmless(size["resource"]),
            *(str(size[key]) for key in ("waiting", "free", "blocked")),
            f"{figure(size['unusable'])} devices" if size["unusable"] else "-",
            harmless(" or ".join(PublishedFreed(**freed).words for freed in size["freed"])) or "-",
        )
        for size in shown["sizes"]
        if size["waiting"] or size["unusable"] or not size["free"]
    ]
    cuts = [
        (
            harmless(cut["node"]),
            *(harmless(cut_in_words(cut[key])) for key in ("before", "after")),
            harmless(named(cut["mustEnd"])) or "-",
        )
        for cut in shown["cuts"]
    ]
    return [(_SLICES, sizes), (_CUTS, cuts)]


def _switch(shown: Mapping[str, Any]) -> Line:
    if not shown["off"]:
        return "on"
    where = f"in {', '.join(shown['namespaces'])}" if shown["namespaces"] else "everywhere"
    return Text.assemble(terminal.tinted("off"), f" {where}; on again: kubectl fallback on")


def _kueue(shown: Mapping[str, Any]) -> Line:
    if shown["api"] is None:
        return f"not installed, on Kubernetes {shown['kubernetes']}"
    version = f"{shown['version']} " if shown["version"] else ""
    said = Text(f"{version}({shown['api']}) on Kubernetes {shown['kubernetes']}")
    pods = shown["replicas"]
    if pods and pods["ready"] < pods["wanted"]:
        of_all = f"{pods['ready']} of {pods['wanted']} ready"
        said = Text.assemble(said, ", ", terminal.tinted(of_all, like="not ready"))
    if shown["untested"]:
        said = Text.assemble(said, ", ", terminal.tinted("untested", like="not ready"))
    return said


def _webhook(shown: Mapping[str, Any]) -> Line:
    if not shown["answers"]:
        return terminal.tinted("gives no answer", like="not ready")
    return f"answers in {shown['milliseconds']} ms ({shown['by']})"


def _leader(shown: Mapping[str, Any]) -> Line:
    if not shown["leads"]:
        return terminal.tinted("nobody", like="not ready")
    return f"{shown['holder']}, renewed {terminal.ago(shown['renewedSecondsAgo'])}"


def _dispatcher(shown: Mapping[str, Any]) -> Line:
    if not shown["ours"]:
        return ""
    text = f"{shown.get('waiting', 0)} Workloads wait for a worker cluster"
    late = shown.get("withoutNomination", 0)
    nobodys = terminal.tinted(f"{late} without a nominated one", like="not ready")
    return Text.assemble(text, ", ", nobodys) if late else text


def _certificates(shown: Sequence[Mapping[str, Any]]) -> Line:
    if not shown:
        return terminal.tinted("none", like="not ready")
    left = shown[-1]["secondsLeft"]
    text = f"expired {terminal.ago(-left)}" if left <= 0 else f"for {span(left)} more"
    number = f"{len(shown)} authorities, the last " if len(shown) > 1 else "the authority "
    return f"{number}{text} (until {shown[-1]['notAfter']})"


def _replica(shown: Mapping[str, Any]) -> tuple[str, ...]:
    age, left = shown["stateAgeSeconds"], shown["certificateSecondsLeft"]
    return (
        shown["name"],
        shown["state"],
        "-" if age is None else span(age),
        "-" if left is None else span(left) if left > 0 else "expired",
        shown["message"],
    )


def _clusters(
    shown: Sequence[Mapping[str, Any]], replicas: Sequence[Mapping[str, Any]]
) -> list[tuple[str, ...]]:
    """Return what Kueue says of each cluster, and the greatest age of its state at any server."""
    ages: dict[str, float] = {}
    for cluster_ages in (replica["clusterStateAgeSeconds"] for replica in replicas):
        ages |= {name: max(age, ages.get(name, age)) for name, age in cluster_ages.items()}
    known = {cluster["name"]: cluster for cluster in shown}
    return [
        (
            name,
            _ACTIVE[known[name]["active"] if name in known else None],
            span(ages[name]) if name in ages else "-",
            known[name]["message"] if name in known and not known[name]["active"] else "",
        )
        for name in sorted(known.keys() | ages.keys())
    ]


def _policies(shown: Sequence[Mapping[str, Any]]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return header and rows; with the kinds where some policy is for others than Jobs."""
    rows = [_policy(policy) for policy in shown]
    if not any("kinds" in policy for policy in shown):
        return _POLICIES, rows
    kinds = ["KINDS", *(", ".join(policy.get("kinds", (PLAIN,))) for policy in shown)]
    table = zip(kinds, (_POLICIES, *rows), strict=True)
    header, *with_kinds = [(row[0], of_policy, *row[1:]) for of_policy, row in table]
    return header, with_kinds


def _policy(shown: Mapping[str, Any]) -> tuple[str, ...]:
    message = "" if shown["ready"] else shown["message"]
    options = ", ".join(map(str, shown["options"]))
    return shown["name"], shown["mode"], shown["strategy"], _READY[shown["ready"]], options, message


def _queue(shown: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return the rows of a queue's quotas, with its name in the first alone."""
    first = (shown["name"], shown["state"], str(shown["pending"]), str(shown["reserving"]))
    if not shown["quotas"]:
        return [(*first, "-", "-", "-", "-", "-")]
    return [
        (
            *(first if number == 0 else (" ",) * len(first)),
            quota["flavor"],
            quota["resource"],
            quota["used"],
            quota["quota"],
            _next_free(quota),
        )
        for number, quota in zip(count(), shown["quotas"], strict=False)
    ]


def _next_free(quota: Mapping[str, Any]) -> str:
    seconds, about = quota["nextFreeIn"], "~" if quota["uncertain"] else ""
    if seconds is None:
        return "-"
    return "now" if seconds == 0 else f"in {about}{span(seconds)}"


def _local_queue(shown: Mapping[str, Any]) -> tuple[str, ...]:
    names = (shown[key] for key in ("namespace", "name", "clusterQueue"))
    return *names, str(shown["pending"]), str(shown["reserving"])


def _nothing(_: Any) -> str:
    """Return nothing: the part is a table."""
    return ""


_LINES: tuple[tuple[str, str, Callable[[Any], Line]], ...] = (
    ("Decisions", "switch", _switch),
    ("Webhook", "webhook", _webhook),
    ("Kueue", "kueue", _kueue),
    ("Leader", "leader", _leader),
    ("Dispatcher", "dispatcher", _dispatcher),
    ("Certificates", "certificates", _certificates),
    ("Deployments", "deployments", _nothing),
    ("Servers", "replicas", _nothing),
    ("Clusters", "clusters", _nothing),
    ("Policies", "policies", _nothing),
    ("Queues", "clusterQueues", _nothing),
)


@click.command("status")
@namespace_option
@all_namespaces_option
@release_namespace_option
@click.option(
    "--kueue-namespace",
    metavar="NAMESPACE",
    default="kueue-system",
    show_default=True,
    help="Namespace of Kueue.",
)
@click.option("--all", "is_whole", is_flag=True, help="Show all queues and policies.")
@output_option
@scope_options
def command(
    *,
    release_namespace: str | None,
    kueue_namespace: str,
    is_whole: bool,
    output: str,
    scope: Scope,
) -> None:
    """Show the servers and their state, the policies, and what ClusterQueues hold.

    NEXT FREE: when a Job submitted now would get one core, GiB or device, after those already
    queued.

    At most 40 lines are printed. ClusterQueues that policies use come first, then those with
    devices, by cohort; --all prints the rest. With -n or -A you also see LocalQueues. If you may
    not see something, one line names it; without ClusterQueues you see your LocalQueues.

    A Job is created as a dry run in the namespace of -n or the context, as by `probe`, if you may
    create Jobs there.

    Exit codes: 0 all is well, 1 something needs attention, or the cluster cannot be asked.
    Attention is needed if the webhook does not answer, Jobs were created without a review, a
    Deployment has no ready pod, a server's state is stale, no controller leads, a certificate has
    expired, a policy is not ready or has matched no Job for a day, Kueue does not run or this
    version of it is not tested, a worker cluster is not active, or Workloads wait without a
    nominated cluster.

    \b
    Examples:
      kubectl fallback status
      kubectl fallback status --all -o wide
      kubectl fallback status -o json | jq .attention
    """
    from webhook.api.calls import SHORT_SECONDS
    from webhook.api.client import Client

    with connected(scope.access) as client:
        proxied = Client(scope.access, answer_seconds=SHORT_SECONDS)
        parts = _parts(client, proxied, scope, release_namespace, kueue_namespace)
    if output in ("json", "yaml"):
        shown = {name: part.as_json() for name, part in parts.items()}
        trouble = [why for part in parts.values() for why in part.trouble]
        terminal.say(terminal.dump({"attention": trouble, **shown}, output))
    else:
        limit = terminal.width(output)
        terminal.say(*as_text(parts, limit=limit, is_whole=is_whole))
    sys.exit(int(any(part.trouble for part in parts.values())))


def _parts(
    client: Client,
    proxied: Client,
    scope: Scope,
    release_namespace: str | None,
    kueue_namespace: str,
) -> Mapping[str, StatusPart]:
    kubernetes = _kubernetes(client)
    unix = time.time()
    ours, certificates, configurations = _installation(client, release_namespace, unix)
    here = scope.here
    parts = {
        "switch": part_of(lambda: status_parts.switch(client, ours)),
        "webhook": part_of(lambda: status_parts.webhook(client, configurations, here)),
        "deployments": part_of(lambda: status_parts.deployments(client, ours)),
        "kueue": part_of(lambda: status_parts.kueue(client, kueue_namespace, kubernetes)),
        "leader": part_of(lambda: status_parts.leader(client, ours, unix)),
        "certificates": certificates,
        "replicas": part_of(lambda: status_parts.replicas(proxied, ours, unix)),
        "clusters": part_of(lambda: status_parts.clusters(client)),
        "policies": part_of(lambda: status_parts.policies(client)),
        "congestion": part_of(lambda: status_parts.congestion(client, ours, unix)),
        "fragmentation": part_of(lambda: status_parts.fragmentation(client, ours, unix)),
        "clusterQueues": part_of(
            lambda: status_parts.cluster_queues(client, ours, kueue_namespace)
        ),
    }
    parts["dispatcher"] = part_of(
        lambda: status_parts.dispatcher(client, kueue_namespace, parts["leader"], unix)
    )
    parts["kueue"] = status_parts.untested(parts["kueue"], parts["policies"], parts["replicas"])
    published = status_parts.savings(client, ours)
    parts["policies"] = status_parts.unmatched(
        parts["policies"], parts["replicas"], published, unix
    )
    parts["replicas"] = status_parts.with_handshakes(parts["replicas"], parts["webhook"])
    if scope.is_everywhere or scope.namespace or parts["clusterQueues"].forbidden:
        parts["localQueues"] = part_of(lambda: status_parts.local_queues(client, scope.listed))
    return parts


def _installation(
    client: Client, release_namespace: str | None, unix: float
) -> tuple[str, StatusPart, Sequence[Mapping[str, Any]]]:
    """Return the release's namespace, if need be by its webhook, certificates and webhooks."""
    ours = release_namespace or kubectl.RELEASE_NAMESPACE
    try:
        configurations = kubectl.configurations(client)
        ours = release_namespace or kubectl.namespace_of(configurations) or ours
        return ours, status_parts.certificates(configurations, unix), configurations
    except Forbidden as error:
        return ours, StatusPart(forbidden=str(error)), ()


def _kubernetes(client: Client) -> str:
    """Return Kubernetes' version, which all may read: it shows whether the cluster answers."""
    try:
        return str(client.get("/version").get("gitVersion", "of an unknown version"))
    except Forbidden:
        return "of an unknown version"
