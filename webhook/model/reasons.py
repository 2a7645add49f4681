"""Reasons that carry their own words, so that none is without them; docs/reasons.md lists all.

Every closed set of reasons that people see is an ``Explained``: here those that no decision needs,
the others where they are made.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Self


class Explained(StrEnum):
    """A reason's identifier, with what it means and what to do about it, for people."""

    _value_: str
    meaning: str
    """One clause, to stand in a sentence: ``it is being deleted``."""
    advice: str
    """One sentence or more; begins with ``Nothing`` where there is nothing to do."""

    def __new__(cls, value: str, meaning: str, advice: str) -> Self:
        found = str.__new__(cls, value)
        found._value_ = value
        found.meaning = meaning
        found.advice = advice
        return found


class Ready(Explained):
    """Why a FallbackPolicy's condition Ready is as it is: True with the first, else False."""

    RESOLVED = (
        "Resolved",
        "every option has its queue, and what it names exists",
        "Nothing.",
    )
    INVALID = (
        "Invalid",
        "the policy breaks a rule; it was stored before that rule was there, and is passed over",
        "Mend what the message names; `kueue-fallback check` says the same.",
    )
    NO_NAMESPACE = (
        "NoNamespace",
        "no namespace is selected",
        "Label a namespace, or mend `match.namespaceSelector`.",
    )
    QUEUE_NOT_FOUND = (
        "QueueNotFound",
        "no selected namespace has the LocalQueue of an option",
        "Create the LocalQueue, or mend its name.",
    )
    CLUSTER_QUEUE_NOT_FOUND = (
        "ClusterQueueNotFound",
        "the ClusterQueue of an option does not exist",
        "Create the ClusterQueue, or mend its name in the policy or the LocalQueue.",
    )
    PRIORITY_CLASS_NOT_FOUND = (
        "PriorityClassNotFound",
        "the WorkloadPriorityClass for an option's guests does not exist",
        "Create it, or mend `guests.priorityClass`.",
    )
    RUNTIME_CLASS_NOT_FOUND = (
        "RuntimeClassNotFound",
        "the RuntimeClass that an option sets does not exist",
        "Create it, or mend `adaptation.runtimeClassName`.",
    )


class EventReason(Explained):
    """What an Event tells of."""

    DECIDED = (
        "Decided",
        "on a Job: at its creation it was changed; the message says what and why",
        "Nothing; `kueue-fallback undo` takes it back while the Job still waits.",
    )
    MOVED = (
        "Moved",
        "on a Job: it waited, and was sent to another option; the message says why",
        "Nothing; `kueue-fallback undo` takes it back while the Job still waits.",
    )
    UNDONE = (
        "Undone",
        "on a Job: it is as it was submitted again, and pinned there",
        "Nothing: somebody asked for it.",
    )
    MOVE_LOST = (
        "MoveLost",
        "on a Job: Kueue gave it quota just when it was sent away; the message says where it runs",
        "Nothing: it runs. To have it elsewhere, create it again.",
    )
    KEEPS_FAILING = (
        "KeepsFailing",
        "on a FallbackPolicy: an option is refused to a class of Jobs for a day",
        "Look at the logs of those Jobs; `kueue-fallback report --run-times` lists such classes.",
    )
