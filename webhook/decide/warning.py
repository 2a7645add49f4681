"""The warnings that come with an answer: what was changed, or not read, and how to object.

Kubernetes asks for less than 120 characters each, and allows several. The whole sentence stands on
the Job, in its annotation ``reason``; here long names are shortened in their middle.
https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/#response
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from math import inf
from typing import TypeAlias

from webhook.decide.differences import Differences
from webhook.model.decision import Assessment, Decision
from webhook.model.policy.fallback_policy import Mode
from webhook.model.reasons import LeftAlone

LONGEST = 119
"""Characters of one warning."""
MOST = 4
"""Warnings of one sentence."""
PREFIX = "kueue-fallback: "
_ROOM = LONGEST - len(PREFIX)
_SHORTEST = 8
"""To which a name is shortened before the text around it is."""
_CUT = "..."
_LONGEST_READ = 2000
"""Characters of a sentence before it is broken: it may quote what somebody else wrote."""
_TO_OBJECT = (
    "to object: kubectl fallback undo JOB, or submit with annotation kueue-fallback.dev/policy=none"
)
_WOULD = "would run in"
_BACK = "to take it back: kubectl fallback undo JOB"
_PLACE = re.compile(r"metadata\.(annotation|label)s\[([^\]]*)\]")
_PRINTED = re.compile(r"[^ -~]")
_MINUTE, _HOUR = 60, 3600

_Phrase: TypeAlias = tuple[str, tuple[str, ...]]
"""A text with ``{}`` for each of the names, which may be long."""


def decided(decision: Decision, differences: Differences, *, submitted: str) -> tuple[str, ...]:
    """Say what a decision changes in a Job that came for the queue *submitted*; none: nothing."""
    if decision.left_alone in (LeftAlone.UNREADABLE, LeftAlone.TOO_LARGE):
        return sentence(decision.reason)
    taken = next((item for item in decision.options if item.option == decision.option), None)
    if taken is None or not differences.names:
        return ()
    acts = decision.mode is Mode.ENFORCE
    head = _head("runs in" if acts else _WOULD, taken, differences, left=submitted)
    other = _compared(decision.options, taken, submitted)
    why = _why(taken, other) if differences.queue else ("", ())
    return (*_lines(head, why), *((PREFIX + _TO_OBJECT,) if acts else ()))


def moved(taken: Assessment, differences: Differences, *, left: str) -> tuple[str, ...]:
    """Say where a Job that waited in the queue *left* was sent, and what that changes."""
    head = _head("moved to", taken, differences, left=left)
    return _lines(head, (_BACK, ()), joint="; ")


def refused(wish: str, why: str) -> tuple[str, ...]:
    """Say why a wish (``not moved to cpu``) is not granted."""
    whole = sentence(f"{wish}: {why}")
    if len(whole) == 1:
        return whole
    head = shortened(_plain(shortened(wish, _LONGEST_READ)), _ROOM)
    return (PREFIX + head, *sentence(why))


def newer(version: int) -> tuple[str, ...]:
    """Say of a decision that a newer version made that nothing is done about it."""
    made_by = f"its decision is of a newer version ({version}) than this webhook can read"
    return sentence(f"left as it is: {made_by}")


def foreign() -> tuple[str, ...]:
    """Say of a decision that came with a manifest that it is not this installation's."""
    return sentence("its decision was not made by this installation; taken as submitted")


def sentence(text: str) -> tuple[str, ...]:
    """Say a whole sentence in as many warnings as it takes, broken where its parts meet."""
    text = _plain(_PLACE.sub(r"\1 \2", shortened(text, _LONGEST_READ)))
    found = []
    for part in _packed(text.split("; "), "; "):
        found += [part] if len(part) <= _ROOM else _packed(part.split(": "), ": ")
    return tuple(PREFIX + shortened(each, _ROOM) for each in found[:MOST])


def shortened(text: str, limit: int) -> str:
    """Leave out the middle of what is longer than *limit*."""
    if len(text) <= limit:
        return text
    kept = limit - len(_CUT)
    return text[: kept - kept // 2] + _CUT + text[len(text) - kept // 2 :]


def span(seconds: float) -> str:
    """Say a time as short as kubectl does: ``45s``, ``1m56s``, ``12m``, ``2h5m``, ``30h``."""
    whole = round(seconds)
    hours, minutes, rest = whole // _HOUR, whole // _MINUTE, whole % _MINUTE
    if minutes == 0:
        return f"{whole}s"
    if minutes < 10:  # noqa: PLR2004 - two digits of each are enough
        return f"{minutes}m{rest}s" if rest else f"{minutes}m"
    if hours == 0:
        return f"{minutes}m"
    minutes %= 60
    return f"{hours}h{minutes}m" if hours < 10 and minutes else f"{hours}h"  # noqa: PLR2004


def _head(verb: str, taken: Assessment, differences: Differences, *, left: str) -> _Phrase:
    if not (differences.queue or differences.lost or differences.gained):
        verb = "would be changed in" if verb == _WOULD else "is changed in"
        return f"{verb} {{}}: {{}}", (taken.queue, ", ".join(differences.others))
    form, names = f"{verb} {{}}", [taken.queue]
    if taken.cluster:
        form, names = f"{form} on {{}}", [*names, taken.cluster]
    for word, resources in (("without", differences.lost), ("with", differences.gained)):
        if resources:
            form, names = f"{form} {word} {{}}", [*names, ", ".join(resources)]
    if "image" in differences.others:
        form += ", with another image"
    if left and differences.queue and not (differences.lost or differences.gained):
        form, names = f"{form}, not {{}}", [*names, left]
    return form, tuple(names)


def _compared(
    options: Sequence[Assessment], taken: Assessment, submitted: str
) -> Assessment | None:
    """Find what the Job would have got: the option of its own queue, else the first one."""
    others = [item for item in options if item is not taken]
    own = [item for item in others if item.queue == submitted]
    return next(iter(own or others[:1]), None)


def _why(taken: Assessment, other: Assessment | None) -> _Phrase:
    times = _times(taken, other)
    if times and other is not None and other.pending and other.rejection is None:
        ahead = f"{other.pending} Job{'' if other.pending == 1 else 's'} ahead in"
        return f"{times} ({ahead} {{}})", (other.queue,)
    found = times or _alone(taken)
    against = _against(other) if other is not None else ("", ())
    joint = "; " if found and against[0] else ""
    return found + joint + against[0], against[1]


def _times(taken: Assessment, other: Assessment | None) -> str:
    """Compare when both would be done, or what is better there: when they would start."""
    if other is None or taken.forecast is None or other.forecast is None:
        return ""
    here, there = taken.forecast, other.forecast
    for verb, soon, late in (
        ("done in", here.finish, there.finish),
        ("starts in", here.start.seconds, there.start.seconds),
    ):
        if soon is not None and late is not None and soon < late < inf:
            if soon == 0.0:
                return f"starts now, not in ~{span(late)}"
            return f"{verb} ~{span(soon)}, not ~{span(late)}"
    return ""


def _alone(taken: Assessment) -> str:
    finish = taken.forecast.finish if taken.forecast is not None else None
    if finish is not None and finish < inf:
        return f"done in ~{span(finish)}"
    if taken.starts_now:
        return "starts now"
    return f"{taken.pending} pending there" if taken.pending else ""


def _against(other: Assessment) -> _Phrase:
    name = other.queue or other.option
    if other.rejection is not None:
        return "{} refused: {}", (name, other.rejection.detail)
    if other.pending:
        return f"{{}} has {other.pending} pending", (name,)
    return (f"{{}} has {other.reserving} with quota", (name,)) if other.reserving else ("", ())


def _lines(first: _Phrase, then: _Phrase, *, joint: str = ": ") -> tuple[str, ...]:
    """Write both in one warning, or in two where names would have to be shortened for that."""
    if not then[0]:
        return (PREFIX + _fitted(*first),)
    together = first[0] + joint + then[0], first[1] + then[1]
    if len(_written(*together)) <= _ROOM:
        return (PREFIX + _written(*together),)
    return PREFIX + _fitted(*first), PREFIX + _fitted(*then)


def _fitted(form: str, names: tuple[str, ...]) -> str:
    """Shorten the longest names first, all to one length."""
    names = tuple(map(_plain, names))
    most = max(map(len, names), default=0)
    found = form.format(*names)
    while len(found) > _ROOM and most > _SHORTEST:
        most = min(most - 1, _ROOM)
        found = form.format(*(shortened(name, most) for name in names))
    return shortened(found, _ROOM)


def _written(form: str, names: tuple[str, ...]) -> str:
    return form.format(*map(_plain, names))


def _packed(parts: Iterable[str], joint: str) -> list[str]:
    found: list[str] = []
    for part in parts:
        if found and len(found[-1]) + len(joint) + len(part) <= _ROOM:
            found[-1] += joint + part
        else:
            found.append(part)
    return found


def _plain(text: str) -> str:
    """Write on one line and in ASCII, as a header must be."""
    words = " ".join(text.replace("…", _CUT).split())
    return _PRINTED.sub(lambda found: found[0].encode("unicode_escape").decode(), words)
