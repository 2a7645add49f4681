"""Which Jobs run alike: a Job's class, by which run times and failures are remembered.

A class is worked out from a Job as it was submitted or from the pod sets of its Workload, where
Kueue stores the same template, perhaps with limits written as requests: both come to the same.
Defaults of LimitRanges, overheads and Kueue's transformations are left out, as a Workload alone
does not tell them.

A class has a home: the Job's namespace, or what a policy's ``sharedNamespaces`` have in common.
What Jobs of one home did tells nothing of those of another: nobody can teach for somebody else.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from hashlib import blake2b
from sys import intern
from typing import Any, NamedTuple

from webhook.kueue.requests import per_pod
from webhook.model.fields import EMPTY
from webhook.model.job import Job, PodSet, of_pod_sets
from webhook.model.queues import KueueConfig
from webhook.model.run_keys import JobClass

COARSE = "~"
"""What the names of coarse classes begin with."""
LONGEST_NAME = 60

_MARK = re.compile(
    r"(?P<key>[0-9a-f]{1,16}|[A-Za-z0-9._/-]+=[A-Za-z0-9._-]*)"
    r" (?P<coarse>~[0-9a-f]{1,16}) (?P<generation>[0-9]{1,10})"
    r"(?: (?P<home>\*[a-z0-9.-]+))?"
)
"""Nothing that stands for several classes at once can be a key: see ``runs.of_queue``."""
_MOST_GENERATION = (1 << 32) - 1
_DIGEST_BYTES = 8
_SHARED = "*"
_PLAIN = KueueConfig()
_MASKED_CHARACTERS = 4096
"""Of the words in which numbers are masked: what follows them counts as it stands."""
_HEX = r"(?P<hex>\b[0-9a-f][0-9a-f-]{7,}\b)(?=(?P<rest>[0-9a-f-]*))"
_NUMBER = r"[0-9]+(?:[.,_:][0-9]+)*(?:e[+-]?[0-9]+)?"
_NUMBERS = re.compile(f"{_HEX}|{_NUMBER}", re.IGNORECASE)
"""Numbers, times, and the digests and UUIDs that generated names end in. Whether a digit is in a
digest is for ``_mask`` to say: asked of each place ahead, it would cost the square of the text."""
_DIGIT = re.compile(r"[0-9]")


class Mark(NamedTuple):
    """What a decision writes on the pod template for whoever learns from its Workload."""

    job_class: JobClass
    generation: int
    """Of the policy that decided."""


def shared_home(policy: str) -> str:
    """Name what the namespaces that share under a policy have for a home: no namespace's name."""
    return f"{_SHARED}{policy}"


def of_job(job: Job, label: str | None = None, *, shared: str = "") -> JobClass:
    """Tell a Job's class; *label* is the policy's ``jobClassLabel``.

    *shared*: the home that its namespace shares with others; empty: none but itself.

    Raises:
        FieldError: a quantity cannot be read.

    """
    found = of_pod_sets(of_pods, job.pod_sets)
    value = job.labels.get(label) if label else None
    found = found._replace(key=f"{label}={value}") if value else found
    return found.at(shared or job.namespace)


def of_pods(pod_sets: Iterable[PodSet]) -> JobClass:
    """Tell the class of pods by images, commands, arguments and what they ask for; without home.

    Raises:
        FieldError: a quantity cannot be read.

    """
    asked: list[Any] = []
    words: list[Sequence[str]] = []
    for pod_set in pod_sets:
        template = pod_set.template
        amounts = per_pod(template, limit_ranges=(), overheads=EMPTY, kueue=_PLAIN)
        containers = (*template.containers, *template.init_containers)
        asked.append([pod_set.count, sorted(amounts.items()), [each.image for each in containers]])
        words += [part for each in containers for part in (each.command, each.args)]
    text = json.dumps(words, separators=(",", ":"))
    rest = json.dumps(asked, separators=(",", ":"))
    return JobClass(key=_digest(rest + text), coarse=COARSE + _digest(rest + masked(text)))


@lru_cache(maxsize=4096)
def written(mark: Mark) -> str:
    """Write a mark; equal ones become the very same text, by which work is recalled.

    The home is written where it is not the namespace of who carries the mark.
    """
    home, _, key = mark.job_class.key.partition("/")
    coarse = mark.job_class.coarse.partition("/")[2]
    shared = f" {home}" if home.startswith(_SHARED) else ""
    return intern(f"{key} {coarse} {mark.generation}{shared}")


@lru_cache(maxsize=4096)
def read(text: str, namespace: str) -> Mark | None:
    """Read what ``written`` wrote on something in *namespace*, as ``marks.of`` found it.

    None: it is something else.
    """
    parts = _MARK.fullmatch(text)
    if parts is None or int(parts["generation"]) > _MOST_GENERATION:
        return None
    found = JobClass(key=parts["key"], coarse=parts["coarse"])
    return Mark(found.at(parts["home"] or namespace), int(parts["generation"]))


def name_of(image: str, command: Iterable[Any]) -> str:
    """Name a class for people: the image, and the program that the *command* begins with.

    Nothing else of it, and no argument: they can be passwords, and names are read by many.
    """
    program = str(next(iter(command), "")).split()[:1]
    parts = [each.rpartition("/")[2] for each in (image, *program)]
    name = " ".join(filter(None, parts))
    return name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1] + "…"


def masked(text: str) -> str:
    """Put one sign for each number; of a long text only in its beginning."""
    found = _NUMBERS.sub(_mask, text[:_MASKED_CHARACTERS])
    rest = text[_MASKED_CHARACTERS:]
    return found + _digest(rest) if rest else found


def _mask(found: re.Match[str]) -> str:
    """Leave words such as ``facade-beef`` as they are: a digest has a digit."""
    is_word = found["hex"] and not _DIGIT.search(found["hex"] + found["rest"])
    return found[0] if is_word else "#"


def _digest(text: str) -> str:
    return blake2b(text.encode(), digest_size=_DIGEST_BYTES).hexdigest()
