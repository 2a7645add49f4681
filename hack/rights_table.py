"""Write the rights in docs/security.md from the rendered chart: `python -m hack.rights_table`.

What a right is for is the comment above its rule in the template, so that a new one brings its own.
"""

import dataclasses
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from hack import tools

ROOT: Final = Path(__file__).resolve().parent.parent
TARGET: Final = ROOT / "docs/security.md"
START: Final = "<!-- rights: from the chart, by python -m hack.rights_table -->\n"
END: Final = "<!-- end of rights -->\n"
NAMESPACE: Final = "kueue-fallback"
# Further rights come with these values, and others are not needed with those.
MORE: Final = (
    "console.expose=true",
    "clusters.watchWorkers={name}",
    "clusters.dispatcher=true",
    "controller.autoscale=true",
    "accelerators.watchNodes=true",
    "accelerators.fragmentationMinutes=10",
    "teamPolicies.enabled=true",
    "kinds={Job,TrainJob}",
    "kinds={Job,Pod}",
    "kinds={Job,Deployment}",
)
LESS: Final = ("certificates.mode=certManager", "console.followJobs=false")
_PLACES: Final = {NAMESPACE: "the release's namespace", "kueue-system": "Kueue's namespace"}
_ABOUT: Final = {
    "kueue-fallback": "The servers.",
    "kueue-fallback-controller": "`controller.enabled=false` leaves it out.",
    "kueue-fallback-probe": "Only while an install or upgrade is checked (`hooks.probe`).",
    "kueue-fallback-unfinished": "Only while an uninstall begins (`hooks.unfinished`).",
}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Right:
    """One rule of a role that an account is bound to."""

    account: str
    where: str
    group: str
    resources: tuple[str, ...]
    names: tuple[str, ...]
    verbs: tuple[str, ...]
    why: str


def rights(values: Sequence[str] = ()) -> tuple[Right, ...]:
    """List what the chart gives to each account, in the order of the rendered roles."""
    texts = _rendered(values).split("\n---\n")
    read = [(yaml.load(text, Loader=yaml.CSafeLoader), text) for text in texts]
    objects = [(found, text) for found, text in read if found]
    roles = {
        (item["kind"], item["metadata"]["name"]): (item["rules"], _reasons(text))
        for item, text in objects
        if "rules" in item
    }
    return tuple(
        right
        for item, _ in objects
        if item["kind"] in ("ClusterRoleBinding", "RoleBinding")
        for right in _bound(item, *roles[item["roleRef"]["kind"], item["roleRef"]["name"]])
    )


def _rendered(values: Sequence[str]) -> str:
    given = [word for value in values for word in ("--set", value)]
    command = ["helm", "template", "kueue-fallback", str(ROOT / "helm"), "-n", NAMESPACE, *given]
    helm = tools.program("helm")
    found = subprocess.run(command, executable=helm, capture_output=True, text=True, check=True)
    return found.stdout


def _reasons(role: str) -> tuple[str, ...]:
    """Return the comment above each rule; empty: it has none."""
    found: list[str] = []
    comment: list[str] = []
    for line in role.partition("\nrules:\n")[2].splitlines():
        if line.startswith("  # "):
            comment.append(line.removeprefix("  # "))
        elif line.startswith("  - "):
            found.append(" ".join(comment))
            comment = []
    return tuple(found)


def _bound(
    binding: Mapping[str, Any], rules: Sequence[Mapping[str, Any]], reasons: Sequence[str]
) -> Iterator[Right]:
    namespace = binding["metadata"].get("namespace")
    where = "everywhere" if namespace is None else _PLACES.get(namespace, f"`{namespace}`")
    for subject in binding["subjects"]:
        for rule, why in zip(rules, reasons, strict=True):
            (group,) = rule["apiGroups"]
            yield Right(
                account=subject["name"],
                where=where,
                group=group,
                resources=tuple(rule["resources"]),
                names=tuple(rule.get("resourceNames", ())),
                verbs=tuple(rule["verbs"]),
                why=why,
            )


def by_condition() -> dict[Right, str]:
    """Return every right, with the values under which it is given; empty: by default."""
    found = dict.fromkeys(rights(), "")
    for value in LESS:
        for right in found.keys() - set(rights([value])):
            found[right] = f"not with `{value}`"
    for value in MORE:
        more = [right for right in rights([value]) if right not in found]
        found.update(dict.fromkeys(more, f"only with `{value}`"))
    return found


def table(found: Mapping[Right, str]) -> str:
    """Return a list for each account and place, and for what several accounts have alike."""
    accounts: dict[tuple[Right, str], list[str]] = {}
    for right, condition in found.items():
        alike = dataclasses.replace(right, account="")
        accounts.setdefault((alike, condition), []).append(right.account)
    parts: list[str] = []
    for holders in sorted(
        {tuple(names) for names in accounts.values()}, key=lambda names: names[::-1]
    ):
        title = " and ".join(f"`{name}`" for name in holders)
        about = _ABOUT.get(holders[0], "") if len(holders) == 1 else ""
        parts += filter(None, (f"### {title}", about))
        parts += _by_place([key for key, names in accounts.items() if tuple(names) == holders])
    return "\n\n".join(parts) + "\n"


def _by_place(held: Sequence[tuple[Right, str]]) -> Iterator[str]:
    for where in dict.fromkeys(right.where for right, _ in held):
        place = "Everywhere" if where == "everywhere" else f"In {where}"
        rows = [_row(right, condition) for right, condition in held if right.where == where]
        yield "\n".join((f"{place}:\n", *rows))


def _row(right: Right, condition: str) -> str:
    resources = ", ".join(f"`{each}`" for each in right.resources)
    group = f" of `{right.group}`" if right.group else ""
    names = f" {_shortened(right.names)}" if right.names else ""
    why = right.why.rstrip(".") + (f" ({condition})" if condition else "")
    return f"- {', '.join(right.verbs)} {resources}{group}{names}: {why}."


def _shortened(names: Sequence[str]) -> str:
    """List names; those that differ by a number only, as a range."""
    by_stem: dict[str, list[str]] = {}
    for name in names:
        by_stem.setdefault(re.sub(r"\d+$", "", name), []).append(name)
    texts = (
        f"`{found[0]}`" if len(found) == 1 else f"`{found[0]}` to `-{found[-1][len(stem) :]}`"
        for stem, found in by_stem.items()
    )
    return ", ".join(texts)


def text() -> str:
    """Return the whole file with the tables as they must be."""
    before, _, rest = TARGET.read_text(encoding="utf-8").partition(START)
    _, _, after = rest.partition(END)
    return f"{before}{START}\n{table(by_condition())}\n{END}{after}"


if __name__ == "__main__":
    TARGET.write_text(text(), encoding="utf-8")
    print(TARGET)
