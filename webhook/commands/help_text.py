"""``help``: the help of a command, as kubectl prints it."""

from __future__ import annotations

import click

from webhook.commands import terminal


@click.command("help")
@click.argument("words", nargs=-1, metavar="[COMMAND]...")
@click.pass_context
def command(ctx: click.Context, words: tuple[str, ...]) -> None:
    """Print help about a command, or about all commands.

    \b
    Examples:
      kubectl fallback help
      kubectl fallback help explain
      kubectl fallback help tariff typical
    """
    shown = ctx.find_root()
    for word in words:
        if not isinstance(shown.command, click.Group):
            raise click.UsageError(f"{shown.command_path} has no commands of its own.")
        _, found, _ = shown.command.resolve_command(shown, [word])
        if found is None:
            raise click.UsageError(f"There is no command {word}.")
        shown = click.Context(found, info_name=word, parent=shown)
    terminal.say(shown.get_help())
