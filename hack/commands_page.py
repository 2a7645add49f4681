"""Write docs/reference/commands.md from the commands themselves: `python -m hack.commands_page`."""

import inspect
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import click

from webhook.__main__ import main

PAGE: Final = Path(__file__).resolve().parent.parent / "docs/reference/commands.md"
_HEAD: Final = """\
# Commands

Made by `python -m hack.commands_page` from `webhook/commands`.

`kubectl fallback COMMAND` and `kueue-fallback COMMAND` are the same program.
`kubectl fallback COMMAND --help` prints what stands here.

## Exit codes

| code | means |
|---|---|
| 0 | The command did what it was asked to, and found nothing wrong. |
| 1 | A negative result: not found, refused, needs attention, or the cluster cannot be asked. |
| 2 | The command, a file or a setting is wrong. Nothing was asked or changed. |

If the cluster cannot be asked, one line on standard error names the server that does not answer, or
the verb and the resource that are forbidden.
`unfinished` always ends with 0, because the chart runs it before an uninstall.
`status` shows what you may see, and names the rest.
`serve` and `control` end with 0 after SIGTERM.

## Flags of all commands that ask a cluster

They mean what they mean to kubectl.

| flag | means |
|---|---|
"""
_SHARED: Final = ("kubeconfig", "context", "as_user", "as_groups", "help")
"""Parameters that are described once."""
_AS_IT_IS: Final = "\b"
"""Before lines that click does not wrap."""
_TO_ASK: Final = "queue"
"""A command with all flags of a cluster."""


def text() -> str:
    context = click.Context(main, info_name="kubectl fallback")
    rows = _flags(_command(main, _TO_ASK, context), context, names=_SHARED)
    parts = [_HEAD + "\n".join(rows) + "\n"]
    parts += [part for name in main.list_commands(context) for part in _of(main, name, context)]
    return "\n".join(parts)


def _of(group: click.Group, name: str, parent: click.Context) -> Iterator[str]:
    """Yield the section of a command, and those of the commands below it."""
    command = _command(group, name, parent)
    context = click.Context(command, info_name=name, parent=parent)
    title = context.command_path.removeprefix("kubectl fallback ")
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    lines = [f"## {title}", ""]
    lines += ["```text", usage, "```", "", *_body(inspect.cleandoc(command.help or ""))]
    own = [param.name or "" for param in command.params if param.name not in _SHARED]
    if rows := _flags(command, context, names=own):
        lines += ["| flag | means |", "|---|---|", *rows, ""]
    yield "\n".join(lines)
    if isinstance(command, click.Group):
        for below in command.list_commands(context):
            yield from _of(command, below, context)


def _command(group: click.Group, name: str, context: click.Context) -> click.Command:
    command = group.get_command(context, name)
    if command is None:
        raise LookupError(name)
    return command


def _flags(command: click.Command, context: click.Context, *, names: Sequence[str]) -> list[str]:
    records = [
        param.get_help_record(context)
        for param in command.get_params(context)
        if param.name in names
    ]
    return [
        f"| `{flag}` | {_cell(meaning)} |"
        for flag, meaning in ((_cell(record[0]), record[1]) for record in records if record)
        if meaning
    ]


def _cell(written: str) -> str:
    return written.replace("|", "\\|")


def _body(help_text: str) -> Iterator[str]:
    """Yield a command's help: paragraphs in one line, and what is kept as it is as a block."""
    for paragraph in help_text.split("\n\n"):
        if _AS_IT_IS not in paragraph:
            yield from (" ".join(paragraph.split()), "")
            continue
        title, *rest = paragraph.split(f"{_AS_IT_IS}\n")[1].splitlines()
        if title.startswith("  "):
            title, rest = "", [title, *rest]
        yield from filter(None, (title,))
        yield from (("",) if title else ())
        yield from ("```text", *(line.removeprefix("  ") for line in rest), "```", "")


if __name__ == "__main__":
    PAGE.write_text(text())
