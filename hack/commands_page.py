"""Write docs/reference/commands.md from the commands themselves: `python -m hack.commands_page`."""

import inspect
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import click

from webhook.__main__ import main

PAGE: Final = Path(__file__).resolve().parent.parent / "docs/reference/commands.md"
_HEAD: Final = """\
# Commands

Made by `python -m hack.commands_page` from `webhook/commands`.

`kubectl fallback COMMAND` and `kueue-fallback COMMAND` are the same program, and use your own
rights.
`--help` says more about each.

## Exit codes

- 0: The command did what it was asked to, and found nothing wrong.
- 1: A negative result: not found, refused, needs attention, or the cluster cannot be asked; then
  one line on standard error names what does not answer, or the right that is missing.
- 2: The command, a file or a setting is wrong. Nothing was asked or changed.

`unfinished` always ends with 0, because the chart runs it before an uninstall. The flags of `serve`
and `control` are [settings](../../webhook/settings.py), which the chart passes on.

## Flags of several commands

"""
_SHARED: Final = (
    "kubeconfig",
    "context",
    "as_user",
    "as_groups",
    "namespace",
    "all_namespaces",
    "selector",
    "recursive",
    "output",
)
"""Parameters that are described once, in this order."""
_SET_BY_THE_CHART: Final = ("control", "serve")
"""Commands whose flags are settings, which the chart passes on."""
_EXAMPLES: Final = ("Example:", "Examples:")
_MOST_EXAMPLES: Final = 3
_AS_IT_IS: Final = "\b"
"""Before lines that click does not wrap."""
_SENTENCE: Final = re.compile(r"(?<=[.]) +(?=[A-Z])")
_RIGHTS: Final = "You need"
"""How a sentence begins that says which rights a command needs."""


def text() -> str:
    context = click.Context(main, info_name="kubectl fallback")
    names = main.list_commands(context)
    known = [_command(main, name, context) for name in names]
    shared = [next(_shared(name, known, context)) for name in _SHARED]
    parts = [_HEAD + "\n".join(shared) + "\n"]
    parts += [part for name in names for part in _of(main, name, context, shared)]
    return "\n".join(parts)


def _shared(name: str, known: Iterable[click.Command], context: click.Context) -> Iterator[str]:
    """Yield the line of a parameter for each command that has it."""
    for command in known:
        yield from _flags(command, context, [name])


def _of(
    group: click.Group, name: str, parent: click.Context, shared: Sequence[str]
) -> Iterator[str]:
    """Yield the section of a command, and those of the commands below it."""
    command = _command(group, name, parent)
    context = click.Context(command, info_name=name, parent=parent)
    title = context.command_path.removeprefix("kubectl fallback ")
    lines = [f"## {title}", "", *_body(inspect.cleandoc(command.help or ""))]
    own = [param.name or "" for param in command.params if param.name != "help"]
    if name in _SET_BY_THE_CHART:
        own = []
    if flags := [line for line in _flags(command, context, own) if line not in shared]:
        lines += [*flags, ""]
    yield "\n".join(lines)
    if isinstance(command, click.Group):
        for below in command.list_commands(context):
            yield from _of(command, below, context, shared)


def _command(group: click.Group, name: str, context: click.Context) -> click.Command:
    command = group.get_command(context, name)
    if command is None:
        raise LookupError(name)
    return command


def _flags(command: click.Command, context: click.Context, names: Sequence[str]) -> list[str]:
    records = [
        param.get_help_record(context)
        for param in command.get_params(context)
        if param.name in names
    ]
    return [f"- `{record[0]}`: {record[1]}" for record in records if record and record[1]]


def _body(help_text: str) -> Iterator[str]:
    """Yield what a command's help begins with, the rights that it needs, and its examples."""
    first, *others = help_text.split("\n\n")
    yield from (" ".join(first.split()), "")
    plain = [" ".join(each.split()) for each in others if _AS_IT_IS not in each]
    sentences = [sentence for each in plain for sentence in _SENTENCE.split(each)]
    if rights := [each for each in sentences if each.startswith(_RIGHTS)]:
        yield from (" ".join(rights), "")
    for block in (each for each in others if _AS_IT_IS in each):
        title, *lines = block.split(f"{_AS_IT_IS}\n")[1].splitlines()
        if title in _EXAMPLES:
            shown = [line.removeprefix("  ") for line in lines][:_MOST_EXAMPLES]
            yield from ("```text", *shown, "```", "")


if __name__ == "__main__":
    PAGE.write_text(text())
