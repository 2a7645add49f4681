"""The Dockerfile, read into stages; no more of its language than this one uses."""

import json
import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    base: str
    steps: tuple[tuple[str, str], ...]

    def values(self, instruction):
        return [value for name, value in self.steps if name == instruction]

    def value(self, instruction):
        (value,) = self.values(instruction)
        return value

    def words(self, instruction):
        """What is run without a shell."""
        value = self.value(instruction)
        return json.loads(value[value.index("[") :])

    def commands(self):
        return [part.strip() for value in self.values("RUN") for part in value.split("&&")]

    def copied(self):
        """What is copied from the sources."""
        return {word for value in self.values("COPY") for word in value.split()[:-1]}


def read():
    """The arguments before the first stage, and the stages."""
    text = re.sub(r"^#.*\n", "", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE)
    lines = re.sub(r"\\\n\s*", " ", text).splitlines()
    steps = [tuple(line.split(" ", 1)) for line in lines if line]
    starts = [index for index, (name, _) in enumerate(steps) if name == "FROM"]
    parts = zip(starts, [*starts[1:], None], strict=True)
    stages = [Stage(base=steps[a][1], steps=tuple(steps[a + 1 : b])) for a, b in parts]
    return steps[: starts[0]], stages
