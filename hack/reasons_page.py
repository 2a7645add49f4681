"""Write docs/reasons.md from the reasons themselves: `python -m hack.reasons_page`."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from webhook.model.kueue_support import KueueTested
from webhook.model.reasons import (
    EventReason,
    Explained,
    LeftAlone,
    Obstacle,
    ProfileReady,
    Ready,
    Reason,
    Skip,
    Stayed,
    TariffReady,
)

PAGE: Final = Path(__file__).resolve().parent.parent / "docs/reasons.md"
_HEAD: Final = """\
# Reasons

Made by `python -m hack.reasons_page` from `webhook/model`.

Whatever kueue-fallback does not do, it says why, with one of these reasons.
Each line says what the reason means, and what to do if it should be otherwise.
"""
_NOTHING: Final = re.compile(r"Nothing(?: in place:|, or|.*?(?:;|[.](?= |$)))(?: *(?:else|or))? *")
"""What an advice says first, where most people need not do anything."""
_OBVIOUS: Final = (
    "Create it, or correct its name.",
    "Correct what the message names.",
    "Correct what the warning names.",
    "As above.",
)
"""What the meaning says already to who reads a list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """One closed set, and where people meet it."""

    title: str
    reasons: type[Explained]
    seen: str


GROUPS: Final = (
    Group(
        title="Why an option is refused",
        reasons=Reason,
        seen="Seen in `explain`, in the annotation `decision`, in the log, and in "
        "`kueue_fallback_rejections_total`.",
    ),
    Group(
        title="Why a Job that a policy matches is left as submitted",
        reasons=LeftAlone,
        seen="Seen in the annotation `reason`, and in `kueue_fallback_decisions_total`, where "
        "`decided` means that an option was taken.",
    ),
    Group(
        title="Why a Job is skipped",
        reasons=Skip,
        seen="Nothing is written on such a Job. Seen in `explain`, in the log, and in "
        "`kueue_fallback_skipped_total`.",
    ),
    Group(
        title="Why a Job stayed where it was submitted",
        reasons=Stayed,
        seen="Seen in `report` and on the page; if all other options were refused, the first "
        "refusal is shown.",
    ),
    Group(
        title="Why a Job that waits is not moved, or its decision not undone",
        reasons=Obstacle,
        seen="Seen in the warning (`not moved to cpu: …`, `not undone: …`), in the log, in "
        "`kueue_fallback_unmoved_total` and `kueue_fallback_controller_not_moved_jobs`. If one of "
        "these reasons prevents an undo, `undo JOB --recreate` replaces the Job by a new one.",
    ),
    Group(
        title="Why a FallbackPolicy is ready, or not",
        reasons=Ready,
        seen="Seen in the condition Ready, whose message names the path. A policy that is not "
        "ready still decides with what is there, except one that is Invalid.",
    ),
    Group(
        title="Why an AcceleratorProfile is ready, or not",
        reasons=ProfileReady,
        seen="Seen in the condition Ready.",
    ),
    Group(
        title="Why a Tariff is ready, or not",
        reasons=TariffReady,
        seen="Seen in the condition Ready, whose message names the path. The rest is used.",
    ),
    Group(
        title="Why Kueue counts as tested, or not",
        reasons=KueueTested,
        seen="Seen in the condition KueueTested of each policy, in `status`, and in "
        "`kueue_fallback_kueue_untested`. "
        "[Which Kueue is tested](operations.md#which-kueue-is-supported)",
    ),
    Group(
        title="Reasons of Events",
        reasons=EventReason,
        seen="Seen in `kubectl describe` and `kubectl get events`.",
    ),
)


def text() -> str:
    return "\n".join([_HEAD, *(line for group in GROUPS for line in _section(group))])


def _section(group: Group) -> Iterator[str]:
    yield f"## {group.title}\n"
    yield f"{group.seen}\n"
    for reason in group.reasons:
        meaning = f"{reason.meaning}. {_advice(reason.advice)}".rstrip()
        yield f'- <a id="{reason.anchor}"></a>`{reason}`: {meaning}'
    yield ""


def _advice(advice: str) -> str:
    """Return what there is to do, if there is something that the meaning does not say."""
    if advice in _OBVIOUS:
        return ""
    rest = _NOTHING.sub("", advice, count=1)
    return f"{rest[:1].upper()}{rest[1:]}"


def main() -> None:
    PAGE.write_text(text().rstrip() + "\n")


if __name__ == "__main__":
    main()
