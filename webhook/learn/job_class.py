"""A Job's class: which Jobs run alike, so that run times and failures are remembered together.

Jobs of different kinds are never of one class. It is computed from a Job as submitted or from its
Workload's pod sets, with the same result; what a Workload alone does not show (LimitRange defaults,
overheads) is left out. A class has a home, the Job's namespace or those that share under a policy:
runs of one home teach nothing about another's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from hashlib import blake2b
from sys import intern
from typing import Any, Final, NamedTuple

from webhook.kueue.requests import declared
from webhook.model import flags
from webhook.model.forecasts import JobClass
from webhook.model.job import PLAIN, Job, PodSet, of_pod_sets
from webhook.model.pods import EVERYTHING
from webhook.model.policy.fallback_policy import FallbackPolicy, selector
from webhook.model.snapshot_parts import ClusterObjects

COARSE = "~"
"""Prefix of the names of coarse classes."""
LONGEST_NAME = 60

_MARK = re.compile(
    r"(?P<key>[0-9a-f]{1,16}|(?:[a-z0-9]+:)?[A-Za-z0-9._/-]+=[A-Za-z0-9._-]*)"
    r" (?P<coarse>~[0-9a-f]{1,16}) (?P<generation>[0-9]{1,10})"
    r"(?: (?P<home>\*[a-z0-9.-]+))?(?: r(?P<said>[0-9]{1,9}))?"
)
"""No key can be the name of several classes at once: see ``of_queue``."""
_MOST_GENERATION = (1 << 32) - 1
_DIGEST_BYTES = 8
_SHARED = "*"
_MASKED_CHARACTERS = 4096
"""Of the words in which numbers are masked; what follows is used verbatim."""
_HEX = r"(?P<hex>\b[0-9a-f][0-9a-f-]{7,}\b)(?=(?P<rest>[0-9a-f-]*))"
_NUMBER = r"[0-9]+(?:[.,_:][0-9]+)*(?:e[+-]?[0-9]+)?"
_NUMBERS = re.compile(f"{_HEX}|{_NUMBER}", re.IGNORECASE)
"""Numbers, times, and the digests and UUIDs that generated names end in. ``_mask`` checks whether a
digest has a digit: a lookahead at each place would take quadratic time."""
_DIGIT = re.compile(r"[0-9]")


class Mark(NamedTuple):
    """What a decision writes on the pod template, to be read from the Workload."""

    job_class: JobClass
    generation: int
    """Generation of the policy that decided."""
    said: int = 0
    """Seconds that its owner said it runs in the first option; 0: nothing was said."""


NO_MARK: Final = Mark(JobClass("", ""), 0)


def shared_home(policy: str) -> str:
    """Return the home of the namespaces that share under a policy; it is no namespace's name."""
    return f"{_SHARED}{policy}"


def sharing_policy(home: str) -> str:
    """Return the policy under which namespaces share a home; empty: it is one namespace's own."""
    return home.removeprefix(_SHARED) if home.startswith(_SHARED) else ""


def shares_with(policy: FallbackPolicy, namespace: str, cluster: ClusterObjects) -> bool:
    """Return whether a namespace shares run times and guest counts of this policy with others."""
    shared = policy.spec.shared_namespaces
    if shared is None:
        return False
    return selector(shared, EVERYTHING).matches(cluster.labels_of(namespace))


def of_job(
    job: Job,
    *,
    label: str | None = None,
    args: tuple[str, ...] = (),
    env: tuple[str, ...] = (),
    shared: str = "",
) -> JobClass:
    """Return a Job's class.

    A policy may tell classes apart by a *label*, and by the values of the flags *args* and of the
    variables *env*, besides the pod template.
    *shared*: the home that its namespace shares with others; empty: only its own.

    Raises:
        FieldError: a quantity cannot be read.

    """
    job_class = of_pod_sets(of_pods, job.pod_sets, job.kind, args, env)
    value = job.labels.get(label) if label else None
    if value:
        values = of_pod_sets(flags.named, job.pod_sets, args, env)
        named = f"{_prefix(job.kind)}{label}={value}"
        # Only a digest: values must stand in no record.
        key = _digest(json.dumps([named, values])) if values else named
        job_class = job_class._replace(key=key)
    return job_class.at(shared or job.namespace)


def of_pods(
    pod_sets: Sequence[PodSet],
    kind: str = PLAIN,
    args: tuple[str, ...] = (),
    env: tuple[str, ...] = (),
) -> JobClass:
    """Return the class of a kind's pods by images, commands, arguments and resources; no home.

    Values of the flags *args* and of the variables *env* count in full; of other arguments, the
    coarse class leaves the numbers out.

    Raises:
        FieldError: a quantity cannot be read.

    """
    asked: list[Any] = []
    words: list[Sequence[str]] = []
    for pod_set in pod_sets:
        template = pod_set.counted
        amounts = declared(template)
        containers = (*template.containers, *template.init_containers)
        asked.append(
            [pod_set.count, sorted(amounts.items()), [container.image for container in containers]]
        )
        words += [part for container in containers for part in (container.command, container.args)]
    text = json.dumps(words, separators=(",", ":"))
    rest = json.dumps(asked, separators=(",", ":")) + _prefix(kind)
    coarse = masked(text)
    if variables := flags.named(pod_sets, (), env):
        rest += json.dumps(variables)
    if values := flags.named(pod_sets, args):
        coarse += json.dumps(values)
    return JobClass(key=_digest(rest + text), coarse=COARSE + _digest(rest + coarse))


def _prefix(kind: str) -> str:
    """Return what tells a kind's classes from others'; of batch Jobs it is empty, as it was."""
    return "" if kind.lower() == PLAIN.lower() else f"{kind.lower()}:"


@lru_cache(maxsize=4096)
def mark_text(mark: Mark) -> str:
    """Return a mark as text; equal marks become the same object, by which results are cached.

    The home is written unless it is the namespace of the Job that carries the mark.
    """
    home, _, key = mark.job_class.key.partition("/")
    coarse = mark.job_class.coarse.partition("/")[2]
    shared = f" {home}" if home.startswith(_SHARED) else ""
    said = f" r{mark.said}" if mark.said else ""
    return intern(f"{key} {coarse} {mark.generation}{shared}{said}")


@lru_cache(maxsize=4096)
def parse_mark(text: str, namespace: str) -> Mark | None:
    """Parse what ``mark_text`` wrote on an object in *namespace*; None: it is something else."""
    parts = _MARK.fullmatch(text)
    if parts is None or int(parts["generation"]) > _MOST_GENERATION:
        return None
    job_class = JobClass(key=parts["key"], coarse=parts["coarse"])
    home = parts["home"] or namespace
    return Mark(job_class.at(home), int(parts["generation"]), int(parts["said"] or 0))


def name_of(image: str, command: Iterable[Any]) -> str:
    """Return a name of a class for people: the image, and the program that *command* begins with.

    No argument is shown: it can be a password, and names are read by many.
    """
    program = str(next(iter(command), "")).split()[:1]
    parts = [path.rpartition("/")[2] for path in (image, *program)]
    name = " ".join(filter(None, parts))
    return name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1] + "…"


def masked(text: str) -> str:
    """Replace each number by one sign; of a long text only in its beginning."""
    head = _NUMBERS.sub(_mask, text[:_MASKED_CHARACTERS])
    rest = text[_MASKED_CHARACTERS:]
    return head + _digest(rest) if rest else head


def _mask(match: re.Match[str]) -> str:
    """Keep words such as ``facade-beef``: a digest has a digit."""
    is_word = match["hex"] and not _DIGIT.search(match["hex"] + match["rest"])
    return match[0] if is_word else "#"


def _digest(text: str) -> str:
    return blake2b(text.encode(), digest_size=_DIGEST_BYTES).hexdigest()
