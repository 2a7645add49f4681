"""Which Jobs run alike: a Job's class, by which run times and failures are remembered.

A class is worked out from a Job as it was submitted or from the pod sets of its Workload, where
Kueue stores the same template, perhaps with limits written as requests: both come to the same.
Defaults of LimitRanges, overheads and Kueue's transformations are left out, as a Workload alone
does not tell them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any, NamedTuple

from webhook.model.fields import EMPTY
from webhook.model.job import Job, PodSet, of_pod_sets
from webhook.model.queues import KueueConfig
from webhook.model.requests import per_pod

COARSE = "~"
"""What the names of coarse classes begin with."""
LONGEST_NAME = 60

_DIGEST_BYTES = 8
_PLAIN = KueueConfig()
_HEX = r"\b(?=[0-9a-f-]*[0-9])[0-9a-f][0-9a-f-]{7,}\b"
_NUMBER = r"[0-9]+(?:[.,_:][0-9]+)*(?:e[+-]?[0-9]+)?"
_NUMBERS = re.compile(f"{_HEX}|{_NUMBER}", re.IGNORECASE)
"""Numbers, times, and the digests and UUIDs that generated names end in."""


class JobClass(NamedTuple):
    key: str
    """The class: a digest, or ``label=value`` by the label that a policy names."""
    coarse: str
    """The wider class that differs from Job to Job in numbers among the arguments alone."""


class Mark(NamedTuple):
    """What a decision writes on the pod template for whoever learns from its Workload."""

    job_class: JobClass
    generation: int
    """Of the policy that decided."""


def of_job(job: Job, label: str | None = None) -> JobClass:
    """Tell a Job's class; *label* is the policy's ``jobClassLabel``.

    Raises:
        FieldError: a quantity cannot be read.

    """
    found = of_pod_sets(of_pods, job.pod_sets)
    value = job.labels.get(label) if label else None
    return found._replace(key=f"{label}={value}") if value else found


def of_pods(pod_sets: Iterable[PodSet]) -> JobClass:
    """Tell the class of pods by images, commands, arguments and what they ask for.

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
    return JobClass(key=_digest(rest + text), coarse=COARSE + _digest(rest + _masked(text)))


@lru_cache(maxsize=4096)
def written(mark: Mark) -> str:
    """Write a mark; equal ones become the very same text, by which work is recalled."""
    return f"{mark.job_class.key} {mark.job_class.coarse} {mark.generation}"


@lru_cache(maxsize=4096)
def read(text: str) -> Mark | None:
    """Read what ``written`` wrote; None: it is something else."""
    parts = text.split(" ")
    if len(parts) != len(Mark._fields) + 1 or not (parts[2].isascii() and parts[2].isdigit()):
        return None
    return Mark(JobClass(key=parts[0], coarse=parts[1]), int(parts[2]))


def name_of(image: str, words: Iterable[Any]) -> str:
    """Name a class for people: the image and the first *words* of the command."""
    name = " ".join(" ".join([image.rpartition("/")[2], *map(str, words)]).split())
    return name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1] + "…"


def _masked(text: str) -> str:
    return _NUMBERS.sub("#", text)


def _digest(text: str) -> str:
    return blake2b(text.encode(), digest_size=_DIGEST_BYTES).hexdigest()
