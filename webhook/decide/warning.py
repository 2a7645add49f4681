"""Turns a decision into the warnings of an answer: what was changed or not read, how to object.

What was changed is found by comparing two versions of the Job.

Kubernetes asks for less than 120 characters each, and allows several, so long names lose their
middle; the whole sentence is in the Job's annotation ``reason``. It must not know how Jobs are
decided.
https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/#response
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from math import inf
from typing import TypeAlias

from webhook.decide.decision_record import PREFIX
from webhook.jobs import JOB, JobKind
from webhook.model.decision import Assessment, Decision, taken_of
from webhook.model.fields import Json
from webhook.model.holds import Hold
from webhook.model.job import (
    ALL_OURS,
    ENV_PREFIX,
    PRIORITY_LABEL,
    UNDO,
    Job,
    PodSet,
    of_pod_sets,
    reference_of,
)
from webhook.model.pods import Container, PodTemplate
from webhook.model.policy.fallback_policy import Mode, Spec
from webhook.model.reasons import Explained, LeftAlone, Obstacle
from webhook.model.words import carbon, figure, span


@dataclass(frozen=True, slots=True, kw_only=True)
class Differences:
    """What differs between two versions of a Job, but for our own marks.

    A variable that is read from an annotation of the same value does not differ.
    """

    queue: bool = False
    lost: tuple[str, ...] = ()
    """Resources that are requested no longer."""
    gained: tuple[str, ...] = ()
    """Resources that were not requested before."""
    others: tuple[str, ...] = ()
    """Everything else, in words: ``cpu``, ``image``, ``env RUN_ENV``."""

    @property
    def names(self) -> tuple[str, ...]:
        """All differences in words; empty: the Job stays as it is."""
        return (*(("queue",) if self.queue else ()), *self.lost, *self.gained, *self.others)


def between(before: Job, after: Job, *, left: str, taken: str) -> Differences:
    """Compare a Job of the LocalQueue *left* with what it becomes in the LocalQueue *taken*."""
    # Recalled for the very same pod sets, as most Jobs come from few templates (decision 0007).
    lost, gained, others = of_pod_sets(_of_pods, before.pod_sets, after.pod_sets)
    if before.labels.get(PRIORITY_LABEL) != after.labels.get(PRIORITY_LABEL):
        others = (*others, "priority class")
    return Differences(queue=left != taken, lost=lost, gained=gained, others=others)


def _of_pods(before: Sequence[PodSet], after: Sequence[PodSet]) -> tuple[tuple[str, ...], ...]:
    pairs = [(old.template, new.template) for old, new in zip(before, after, strict=True)]
    had = set(chain.from_iterable(_resources(old) for old, _ in pairs))
    has = set(chain.from_iterable(_resources(new) for _, new in pairs))
    others = dict.fromkeys(chain.from_iterable(_others(*pair, had & has) for pair in pairs))
    pairs_of_sets = zip(before, after, strict=True)
    if any((old.count, old.replicas) != (new.count, new.replicas) for old, new in pairs_of_sets):
        others["replicas"] = None
    return tuple(sorted(had - has)), tuple(sorted(has - had)), tuple(others)


def _resources(template: PodTemplate) -> Iterator[str]:
    for container in _containers(template):
        yield from container.resources.requests
        yield from container.resources.limits


def _others(before: PodTemplate, after: PodTemplate, kept: set[str]) -> Iterator[str]:
    pairs = list(zip(_containers(before), _containers(after), strict=True))
    # A resource that is lost or gained is named as such already.
    yield from sorted(name for name in kept if any(_amounts_differ(*pair, name) for pair in pairs))
    if any(old.image != new.image for old, new in pairs):
        yield "image"
    for old, new in pairs:
        was, is_now = _env(old, before.annotations), _env(new, after.annotations)
        yield from (f"env {n}" for n in {**was, **is_now} if was.get(n) != is_now.get(n))
    for name, differs in (
        ("node selector", before.node_selector != after.node_selector),
        ("tolerations", before.tolerations != after.tolerations),
        ("affinity", _meant(before.affinity) != _meant(after.affinity)),
        ("runtime class", before.runtime_class != after.runtime_class),
        # Kueue and we write labels and annotations of our own; ours are left out.
        ("labels", _of_others(before.labels) != _of_others(after.labels)),
        ("annotations", _of_others(before.annotations) != _of_others(after.annotations)),
    ):
        if differs:
            yield name


def _meant(affinity: Json) -> Json:
    """Leave out the empty objects of an affinity, which ask for nothing."""
    if not isinstance(affinity, Mapping):
        return affinity or {}
    asked = {key: _meant(value) for key, value in affinity.items()}
    return {key: value for key, value in asked.items() if value not in ({}, [])}


def _containers(template: PodTemplate) -> Iterable[Container]:
    return (*template.init_containers, *template.containers)


def _amounts_differ(before: Container, after: Container, resource: str) -> bool:
    old, new = before.resources, after.resources
    return (old.requests.get(resource), old.limits.get(resource)) != (
        new.requests.get(resource),
        new.limits.get(resource),
    )


def _env(container: Container, annotations: Mapping[str, str]) -> dict[str, Json]:
    """Return each variable's value, literal or from an annotation; of several entries the last."""
    return {str(entry.get("name")): _value(entry, annotations) for entry in container.env}


def _value(entry: Mapping[str, Json], annotations: Mapping[str, str]) -> Json:
    source = entry.get("valueFrom")
    if source is None:
        return entry.get("value", "")
    field = source.get("fieldRef") if isinstance(source, Mapping) else None
    path = str(field.get("fieldPath")) if isinstance(field, Mapping) else ""
    # Only our own annotations: what a Job itself reads through valueFrom is compared as it is.
    held = path.removeprefix("metadata.annotations['").removesuffix("']")
    return annotations.get(held, "") if held.startswith(ENV_PREFIX) else source


def _of_others(texts: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in texts.items() if not name.startswith(ALL_OURS)}


LONGEST = 119
"""Most characters of one warning."""
MOST = 4
"""Most warnings of one sentence."""
_ROOM = LONGEST - len(PREFIX)
_SHORTEST = 8
"""Characters that are left of every name before the text around the names is cut."""
_CUT = "..."
_LONGEST_NAME = 40
"""Characters of an option's name that a user wrote."""
_LONGEST_READ = 2000
"""Characters of a sentence that are used at all: it may quote what a user wrote."""
_AT_SUBMISSION = "submit with annotation kueue-fallback.dev/policy=none"
_ANEW = f"delete it and {_AT_SUBMISSION}"
_COMMAND = re.compile(r"[a-z0-9][a-z0-9.-]*")
"""Names that can be part of a command as they are; admission may see others."""
_WOULD = "would run in"
_PLACE = re.compile(r"metadata\.(annotation|label)s\[([^\]]*)\]")
_PRINTED = re.compile(r"[^ -~]")

_Phrase: TypeAlias = tuple[str, tuple[str, ...]]
"""A text with ``{}`` for each name, and the names, which may be shortened."""


def decided(
    decision: Decision, differences: Differences, *, submitted: str, kind: JobKind, job: Job
) -> tuple[str, ...]:
    """Say what a decision changes in a *job* of the LocalQueue *submitted*; empty: nothing.

    A Job that stays as it was submitted gets no warning.
    """
    # kubectl create --warnings-as-errors fails on any warning, so each must be worth it
    # (decision 0021).
    if decision.left_alone in (LeftAlone.UNREADABLE, LeftAlone.TOO_LARGE):
        return sentence(decision.reason)
    taken = taken_of(decision)
    if taken is None or not differences.names:
        return ()
    acts = decision.mode is Mode.ENFORCE
    head = _head("runs in" if acts else _WOULD, taken, differences, left=submitted)
    alternative = _compared(decision.options, taken, submitted)
    # Where the queue stays the same, there is no other queue to compare figures with.
    why = _why(taken, alternative) if differences.queue else ("", ())
    at_once = taken.forecast.start.seconds == 0.0 if taken.forecast else taken.starts_now
    starts = at_once and decision.hold is None
    object_to = _to_object(kind, job, starts=starts) if acts else ()
    return (*_lines(head, why), *object_to)


def by_policy(spec: Spec, warnings: tuple[str, ...]) -> tuple[str, ...]:
    """Return what a new Job's decision says to whoever creates it, as its policy wants it said.

    With the policy's own message after it where there is anything to say.
    """
    if not spec.warn:
        return ()
    return (*warnings, PREFIX + spec.message) if warnings and spec.message else warnings


def linked(warnings: tuple[str, ...], reason: Explained | None, url: str) -> tuple[str, ...]:
    """Add where *reason* is explained: *url* is that of a copy of docs/reasons.md; empty: none."""
    link = f"{PREFIX}see {url}#{reason.anchor}" if reason is not None and url else ""
    return (*warnings, link) if warnings and 0 < len(link) <= LONGEST else warnings


def moved(
    taken: Assessment, differences: Differences, *, left: str, kind: JobKind, job: Job
) -> tuple[str, ...]:
    """Say where a pending *job* of the LocalQueue *left* was moved, and what that changes."""
    intro = "to take it back: "
    back = intro + _command("undo", kind, job, _ROOM - len(intro))
    head = _head("moved to", taken, differences, left=left)
    return _lines(head, (back, ()), joint="; ")


def _to_object(kind: JobKind, job: Job, *, starts: bool) -> tuple[str, ...]:
    """Say how to object, in one warning or two; *starts*: it does at once, and can only be anew."""
    # What can never change once it exists has nothing that could be undone.
    if not kind.is_movable:
        return (f"{PREFIX}to object: {_AT_SUBMISSION}",)
    # What rolls is put back while it runs.
    starts = starts and not kind.rolls
    if starts and kind is not JOB:
        return (f"{PREFIX}it starts at once; to object: {_ANEW}",)
    intro, flag = "to object: ", " --recreate" if starts else ""
    undo = intro + _command("undo", kind, job, _ROOM - len(intro) - len(flag)) + flag
    otherwise = _ANEW if starts else _AT_SUBMISSION
    # The name of a long kind leaves no room for the word.
    for whole in (f"{undo}, or {otherwise}", f"{undo}, or {otherwise}".replace("annotation ", "")):
        if len(whole) <= _ROOM:
            return (PREFIX + whole,)
    return PREFIX + undo, f"{PREFIX}or {otherwise}"


def _with_command(intro: str, verb: str, kind: JobKind, job: Job) -> str:
    return PREFIX + intro + _command(verb, kind, job, _ROOM - len(intro))


def _command(verb: str, kind: JobKind, job: Job, room: int) -> str:
    """Return the command that does *verb* to a *job*, in *room* characters: as it can be typed."""
    named = _COMMAND.fullmatch(job.name) is not None
    name = job.name if named else "JOB" if kind is JOB else "NAME"
    where = f" -n {job.namespace}" if _COMMAND.fullmatch(job.namespace) else ""
    command = f"kubectl fallback {verb} {reference_of(kind.kind, name)}{where}"
    if len(command) <= room:
        return command
    # A command that is cut in the middle would be another one.
    return f"kubectl fallback {verb} {reference_of(kind.kind, 'JOB' if kind is JOB else 'NAME')}"


def queue_kept(kind: JobKind, job: Job, obstacle: Obstacle | None) -> tuple[str, ...]:
    """Say that the decided queue of a *job* is kept from a change by hand, and how it is left.

    *obstacle*: what keeps the Job from any other queue.
    """
    head = f"{PREFIX}kept in {shortened(_plain(job.queue), _LONGEST_NAME)}, as it was decided"
    if obstacle is not None:
        return (f"{head}; {obstacle.meaning}"[:LONGEST],)
    return head, _with_command("to put it back: ", "undo", kind, job)


def refused(wish: str, why: str) -> tuple[str, ...]:
    """Say why a Job is not moved or undone as its annotation ``move-to``, *wish*, asks."""
    named = shortened(" ".join(wish.split()), _LONGEST_NAME)
    not_done = "not undone" if wish == UNDO else f"not moved to {named}"
    whole = sentence(f"{not_done}: {why}")
    if len(whole) == 1:
        return whole
    head = shortened(_plain(not_done), _ROOM)
    return (PREFIX + head, *sentence(why))


def newer(version: int) -> tuple[str, ...]:
    """Say that a decision was made by a newer version, so the Job is left as it is."""
    made_by = f"its decision is of a newer version ({version}) than this webhook can read"
    return sentence(f"left as it is: {made_by}")


def foreign() -> tuple[str, ...]:
    """Say that a decision in the manifest was not made by this installation."""
    return sentence("its decision was not made by this installation; taken as submitted")


def no_longer_its_own(place: str) -> tuple[str, ...]:
    """Say that an earlier decision in the manifest is not undone, as *place* has another value."""
    return sentence(f"its earlier decision is not undone, as it wrote another {place}")


def changed_since(decision: Decision, *, left: str) -> tuple[str, ...]:
    """Say what became of a decision for option *left* on a Job that other admission has changed."""
    if decision.option is None:
        return sentence(f"not sent to {left} after all; {decision.reason}")
    return sentence(f"other admission changed the Job, so option {left} was carried out again")


def job_held(hold: Hold | None, currency: str, *, kind: JobKind, job: Job) -> tuple[str, ...]:
    """Say until when a *job* is held, what that saves, and how it starts now; empty: it is not."""
    if hold is None:
        return ()
    until, latest = (_minute(moment) for moment in (hold.until, hold.latest))
    if not hold.saves:
        why = "held until there is room, as others may not wait"
        now = _with_command("to queue it now: ", "release", kind, job)
        return (*sentence(f"{why}; latest {latest}"), now)
    unit = f" {currency}" if currency else ""
    saves = f"{figure(hold.saves)}{unit} of {figure(hold.of)}"
    if hold.grams is not None and hold.of_grams:
        saves += f", {carbon(hold.grams)} of {carbon(hold.of_grams)} CO2"
    now = _with_command("to start it now: ", "release", kind, job)
    return (*sentence(f"held until {until} (saves {saves}); latest {latest}"), now)


def _minute(unix: float) -> str:
    return datetime.fromtimestamp(unix, UTC).strftime("%m-%d %H:%M UTC")


def sentence(text: str) -> tuple[str, ...]:
    """Split a sentence into as many warnings as it needs, at most ``MOST``, between its parts."""
    text = _plain(_PLACE.sub(r"\1 \2", shortened(text, _LONGEST_READ)))
    pieces = []
    for part in _packed(text.split("; "), "; "):
        pieces += [part] if len(part) <= _ROOM else _packed(part.split(": "), ": ")
    return tuple(PREFIX + shortened(piece, _ROOM) for piece in pieces[:MOST])


def shortened(text: str, limit: int) -> str:
    """Leave out the middle of what is longer than *limit*."""
    if len(text) <= limit:
        return text
    kept = limit - len(_CUT)
    return text[: kept - kept // 2] + _CUT + text[len(text) - kept // 2 :]


def _head(verb: str, taken: Assessment, differences: Differences, *, left: str) -> _Phrase:
    if not (differences.queue or differences.lost or differences.gained):
        verb = "would be changed in" if verb == _WOULD else "is changed in"
        return f"{verb} {{}}: {{}}", (taken.queue, ", ".join(differences.others))
    form, names = f"{verb} {{}}", [taken.queue]
    if taken.cluster:
        form, names = f"{form} on {{}}", [*names, taken.cluster]
    replaced = "instead of" if differences.gained else "without"
    for word, resources in (("with", differences.gained), (replaced, differences.lost)):
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
    """Return the option that *taken* is compared with: of the Job's own queue, else the first."""
    others = [option for option in options if option is not taken]
    own = [option for option in others if option.queue == submitted]
    return next(iter(own or others[:1]), None)


def _why(taken: Assessment, alternative: Assessment | None) -> _Phrase:
    times = _times(taken, alternative)
    # The number of Jobs ahead explains a late start, but not a refusal.
    if times and alternative is not None and alternative.pending and alternative.rejection is None:
        ahead = f"{alternative.pending} Job{'' if alternative.pending == 1 else 's'} ahead in"
        return f"{times} ({ahead} {{}})", (alternative.queue,)
    reason = times or _alone(taken)
    against = _against(alternative) if alternative is not None else ("", ())
    joint = "; " if reason and against[0] else ""
    return reason + joint + against[0], against[1]


def _times(taken: Assessment, alternative: Assessment | None) -> str:
    """Compare the finishes of both options, or else their starts; empty: *taken* is not sooner."""
    if alternative is None or taken.forecast is None or alternative.forecast is None:
        return ""
    here, there = taken.forecast, alternative.forecast
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


def _against(alternative: Assessment) -> _Phrase:
    name = alternative.queue or alternative.option
    if alternative.rejection is not None:
        return "{} refused: {}", (name, alternative.rejection.detail)
    if alternative.passed_over is not None:
        return "{}: {}", (name, alternative.passed_over.detail)
    if alternative.pending:
        return f"{{}} has {alternative.pending} pending", (name,)
    return (
        (f"{{}} has {alternative.reserving} with quota", (name,))
        if alternative.reserving
        else ("", ())
    )


def _lines(first: _Phrase, then: _Phrase, *, joint: str = ": ") -> tuple[str, ...]:
    """Write both phrases in one warning, or in two if one would mean to shorten names."""
    if not then[0]:
        return (PREFIX + _fitted(*first),)
    together = first[0] + joint + then[0], first[1] + then[1]
    if len(_written(*together)) <= _ROOM:
        return (PREFIX + _written(*together),)
    return PREFIX + _fitted(*first), PREFIX + _fitted(*then)


def _fitted(form: str, names: tuple[str, ...]) -> str:
    """Fill in the names and shorten the longest ones, all to one length, until the text fits."""
    names = tuple(map(_plain, names))
    most = max(map(len, names), default=0)
    text = form.format(*names)
    while len(text) > _ROOM and most > _SHORTEST:
        most = min(most - 1, _ROOM)
        text = form.format(*(shortened(name, most) for name in names))
    # The text around the names is cut only where short names leave it too long.
    return shortened(text, _ROOM)


def _written(form: str, names: tuple[str, ...]) -> str:
    return form.format(*map(_plain, names))


def _packed(parts: Iterable[str], joint: str) -> list[str]:
    packed: list[str] = []
    for part in parts:
        if packed and len(packed[-1]) + len(joint) + len(part) <= _ROOM:
            packed[-1] += joint + part
        else:
            packed.append(part)
    return packed


def _plain(text: str) -> str:
    """Return a text on one line and in ASCII, as an HTTP header must be."""
    # The API server sends warnings to clients in headers.
    words = " ".join(text.replace("…", _CUT).split())
    return _PRINTED.sub(lambda match: match[0].encode("unicode_escape").decode(), words)
