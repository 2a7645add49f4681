"""The pages for people, as far as they can be run: their commands, what those print, and files.

A ```console block holds commands (``$ ``, continued with ``> ``) and below each what it prints. Of
that, `…` stands for any text, and a line of `…` alone for any lines; a command with nothing below
may print what it likes. A ```yaml or ```csv block that begins with ``# NAME`` is the file NAME.
"""

import re
import shlex
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = (
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs/reference").glob("*.md")),
)
ALL_PAGES = tuple(
    ROOT / name
    for name in subprocess.run(
        ["git", "ls-files", "*.md"], capture_output=True, text=True, check=True, cwd=ROOT
    ).stdout.splitlines()
)
"""Every page, also those without commands: decisions, of the chart, of tests."""
ELSEWHERE = {"docs/quota-api.md": "tests/e2e/test_console.py"}
"""Pages whose commands need a kubelet, and who asks the same without one."""

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"# (\S+\.(?:yaml|csv))\n")
_SAVED = {"check", "simulate", "--snapshot", "--help"}
_ANY = "…"


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    page: str
    line: int
    text: str
    shown: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {self.text}"

    @property
    def place(self) -> str:
        """Where it can be run: here, on a cluster, or as a target of make; empty: nobody knows."""
        words = shlex.split(self.text.replace("\n", " "), comments=True)
        found = {_place(words[start:]) for start in _starts(words)} - {""}
        return found.pop() if len(found) == 1 else "cluster" if "cluster" in found else ""


def _starts(words: list[str]) -> list[int]:
    """Where a program's name stands: first, and after what joins commands."""
    joins = {"|", "&&", ";", "do", "until"}
    return [0, *(index + 1 for index, word in enumerate(words) if word in joins)]


def _place(words: list[str]) -> str:
    match words:
        case ["make", *_]:
            return "make"
        case ["kubectl", "fallback", *rest]:
            return _place(["kueue-fallback", *rest])
        case [name, *rest] if Path(name).name == "kueue-fallback":
            # With --decisions it reads a server's log, which comes from a cluster.
            saved = _SAVED & set(rest)
            is_here = saved and "--decisions" not in rest
            return "here" if is_here else "cluster"
        case ["kubectl" | "helm", *_]:
            return "cluster"
    return ""


def blocks(page: Path) -> list[tuple[int, str, str]]:
    """List (line, language, text) of every block that says its language."""
    text = page.read_text()
    return [
        (text.count("\n", 0, found.start()) + 1, found[1], found[2])
        for found in _BLOCK.finditer(text)
    ]


def commands(page: Path) -> list[Command]:
    found: list[Command] = []
    for start, language, text in blocks(page):
        if language != "console":
            continue
        for number, line in enumerate(text.splitlines(), start + 1):
            if line.startswith("$ "):
                name = str(page.relative_to(ROOT))
                found.append(Command(page=name, line=number, text=line[2:]))
            elif line.startswith("> ") and not found[-1].shown:
                last = found.pop()
                text_so_far = f"{last.text}\n{line[2:]}"
                found.append(Command(page=last.page, line=last.line, text=text_so_far))
            else:
                found[-1].shown.append(line)
    return found


def title_anchor(title: str) -> str:
    """Return the anchor that a heading has."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def write_files(page: Path, folder: Path) -> None:
    """Write the files that the page gives, into *folder*."""
    for _, _, text in blocks(page):
        if found := _FILE.match(text):
            path = folder / found[1]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)


def is_as_shown(printed: str, shown: list[str], *, on_a_cluster: bool = False) -> bool:
    """Tell whether what was printed is what the page shows; names that were made up may differ.

    On a cluster times and lengths of queues may too.
    """
    alike = _without_numbers if on_a_cluster else _named
    lines = alike("\n".join(shown).strip("\n")).splitlines()
    if not lines:
        return True
    return (
        re.fullmatch("".join(map(_pattern, lines)), alike(printed.strip("\n")) + "\n") is not None
    )


def _pattern(line: str) -> str:
    if line == _ANY:
        return r"(?:.*\n)*"
    return re.escape(line).replace(re.escape(_ANY), ".*") + r"\n"


def _named(text: str) -> str:
    """Give every name that the API server made up the same end."""
    return re.sub(r"\b(light|heavy)-[bcdfghjklmnpqrstvwxz2456789]{5}\b", r"\1-xxxxx", text)


def _without_numbers(text: str) -> str:
    text = re.sub(r"\b\d+[dhms](\d+[hms])?\b", "0s", _named(text))
    return re.sub(r"\b\d+(?= (ahead|pending)\b)", "0", text)
