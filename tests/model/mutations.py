"""Policies with random mistakes: a valid one in which a few places get a value from elsewhere."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

FULL: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("full_policy.yaml").read_text())
_VALUES: tuple[Any, ...] = (
    *("", "none", "gpu", "a b", "Remove", "Equal", "In", "FinishTime", "4", "-1", "4x", "0s", "1h"),
    *(0, 1, -1, 0.5, 5000, 2**40, True, False, None, [], {}, [None], ["a", "a"], [{"a": 1}]),
    *({"a": "b"}, {"cpu": 4}, {"cpu": "9"}, {"kueue.x-k8s.io/a": "b"}, {"x y": "z"}, {"key": "a"}),
)


def policies(count: int, *, seed: int, whole: dict[str, Any] = FULL) -> Iterator[dict[str, Any]]:
    chance = random.Random(seed)
    for _ in range(count):
        policy = copy.deepcopy(whole)
        for _ in range(chance.choice((1, 1, 2, 3))):
            _spoil(policy["spec"], chance)
        yield policy


def _spoil(spec: Any, chance: random.Random) -> None:
    holder, key = chance.choice(list(_places(spec)))
    match chance.randrange(4):
        case 0 if isinstance(holder, dict):
            del holder[key]
        case 1 if isinstance(holder, dict):
            holder[chance.choice(("foo", "name", "queue", "runTime", "finishTime", "key"))] = (
                copy.deepcopy(chance.choice(_VALUES))
            )
        case 2 if isinstance(holder[key], list):
            holder[key].extend(copy.deepcopy(holder[key]))
        case _:
            holder[key] = copy.deepcopy(chance.choice(_VALUES))


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    keys = value if isinstance(value, dict) else range(len(value))
    for key in keys:
        yield value, key
        if isinstance(value[key], (dict, list)):
            yield from _places(value[key])
