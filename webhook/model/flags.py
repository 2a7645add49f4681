"""The values that a Job's containers are given by flags and environment variables, as written.

Nothing is run or expanded: a value that only the cluster or a shell knows is no number here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from webhook.model.fields import Json
from webhook.model.job import PodSet
from webhook.model.pods import Container

MOST_WORDS: Final = 2000
"""Words of commands and arguments, and variables, of all containers together."""
MOST_CHARACTERS: Final = 65_536
"""Of these words. A Job with more is not read: its tail could give a flag anew."""
MOST_KEPT: Final = 64
"""Flags, and variables, of one container that ``short`` keeps."""
LONGEST_KEPT: Final = 64
"""Characters of a name or value that ``short`` keeps."""
_SCRIPT = re.compile(r"-[a-z]{0,4}c")
"""The word before a shell's script: ``sh -c``, ``bash -lc``."""
_NUMBER = re.compile(r"[0-9]{1,18}(\.[0-9]{1,18})?")


class Named(NamedTuple):
    """The flags and variables that policies name, each with the texts that its value may be.

    Of no other may a value stand in any record, and of these only numbers and those texts.
    """

    flags: Mapping[str, frozenset[str]] = MappingProxyType({})
    env: Mapping[str, frozenset[str]] = MappingProxyType({})


class ContainerValues(NamedTuple):
    """What one container, or init container, is given."""

    container: str
    flags: Mapping[str, str | None]
    """None: a flag that ends the command line, without a value."""
    env: Mapping[str, str | None]
    """None: a variable whose value is read from elsewhere (``valueFrom``)."""


def read_pod_sets(pod_sets: Sequence[PodSet]) -> tuple[ContainerValues, ...] | None:
    """Return what each container of a Job is given; None: it is too long to be read."""
    templates = [pod_set.template for pod_set in pod_sets]
    return read_containers(
        [
            container
            for template in templates
            for container in (*template.containers, *template.init_containers)
        ]
    )


def read_containers(containers: Sequence[Container]) -> tuple[ContainerValues, ...] | None:
    """Return what each of these containers is given; None: it is too long to be read."""
    words = [
        [str(word) for word in (*container.command, *container.args)] for container in containers
    ]
    count = sum(map(len, words)) + sum(len(container.env) for container in containers)
    # A part of the words could say the contrary of the whole (decision 0029).
    if count > MOST_WORDS or sum(len(word) for row in words for word in row) > MOST_CHARACTERS:
        return None
    return tuple(
        ContainerValues(container.name, dict(_flags(row)), dict(_env(container)))
        for container, row in zip(containers, words, strict=True)
    )


def recorded(container: Container, names: Named) -> dict[str, Any]:
    """Return ``args`` and ``env`` of a container's manifest, reduced to what may be recorded."""
    (values,) = read_containers((container,)) or (ContainerValues("", {}, {}),)
    return _manifest(
        {flag: value for flag, value in values.flags.items() if _is_told(flag, value, names.flags)},
        {name: value for name, value in values.env.items() if _is_told(name, value, names.env)},
    )


def short(container: Container) -> dict[str, Any]:
    """Return ``args`` and ``env`` of a container's manifest, reduced to what policies may name.

    It is for the memory alone, until ``recorded`` can be asked.
    """
    (values,) = read_containers((container,)) or (ContainerValues("", {}, {}),)
    given = [(key, value) for key, value in values.flags.items() if _is_flag(key, value)]
    variables = [(key, value) for key, value in values.env.items() if _is_short(key, value)]
    return _manifest(dict(given[:MOST_KEPT]), dict(variables[:MOST_KEPT]))


def number(text: str) -> Decimal | None:
    """Return a number as flags have it; None: *text* is none, or is signed.

    A minus often says "no limit", so such a value is not taken for a small one.
    """
    return Decimal(text) if _NUMBER.fullmatch(text) else None


def named(
    pod_sets: Sequence[PodSet], flags: tuple[str, ...], env: tuple[str, ...] = ()
) -> tuple[tuple[str, str], ...]:
    """Return the values that a Job gives to these flags and variables: (name, value)."""
    if not flags and not env:
        return ()
    containers = read_pod_sets(pod_sets) or ()
    return tuple(
        (name, value)
        for values in containers
        for names, given in ((flags, values.flags), (env, values.env))
        for name in names
        if (value := given.get(name)) is not None
    )


def _is_told(name: str, value: str | None, named: Mapping[str, frozenset[str]]) -> bool:
    texts = named.get(name)
    if texts is None or value is None:
        return False
    return value in texts or number(value) is not None


def _is_flag(name: str, value: str | None) -> bool:
    # A word before a number may be a flag without dashes: steps=30.
    return _is_short(name, value) and (name.startswith("-") or number(value or "") is not None)


def _is_short(name: str, value: str | None) -> bool:
    return value is not None and max(len(name), len(value)) <= LONGEST_KEPT


def _manifest(args: Mapping[str, str | None], env: Mapping[str, str | None]) -> dict[str, Any]:
    written = {
        "args": [f"{flag}={value}" for flag, value in args.items()],
        "env": [{"name": name, "value": value} for name, value in env.items()],
    }
    return {key: entries for key, entries in written.items() if entries}


def _flags(words: Sequence[str]) -> Iterator[tuple[str, str | None]]:
    """Yield each word with the one after it, and the two sides of ``=``; the last one counts."""
    before = ""
    for index, word in enumerate(words):
        flag, equals, value = word.partition("=")
        if equals:
            yield flag, value
        elif _SCRIPT.fullmatch(before) and len(parts := word.split()) > 1:
            yield from _flags(parts)
        else:
            yield word, words[index + 1] if index + 1 < len(words) else None
        before = word


def _env(container: Container) -> Iterator[tuple[str, str | None]]:
    for variable in container.env:
        name = variable.get("name")
        if isinstance(name, str):
            yield name, _value(variable)


def _value(variable: Mapping[str, Json]) -> str | None:
    # A variable without a value is an empty text for the container.
    value = variable.get("value", None if "valueFrom" in variable else "")
    return value if isinstance(value, str) else None
