"""The command line: ``kueue-fallback``, ``kubectl fallback``, ``python -m webhook``."""

from __future__ import annotations

import importlib
import os
import platform
import sys
from collections.abc import Sequence
from typing import Any

import click

_GROUPS = {
    "For Jobs": {
        "advise": (
            "webhook.commands.advise",
            "command",
            "List running Jobs that would cost less elsewhere.",
        ),
        "explain": (
            "webhook.commands.explain",
            "command",
            "Show what was or would be decided for a Job, and why.",
        ),
        "move": (
            "webhook.commands.undo",
            "move",
            "Move a pending Job to another option of its policy.",
        ),
        "queue": (
            "webhook.commands.queue",
            "command",
            "List pending Jobs, and when each is expected to start.",
        ),
        "release": (
            "webhook.commands.release",
            "command",
            "Start Jobs that are held for a better hour.",
        ),
        "tail": ("webhook.commands.tail", "command", "Print decisions as they are made."),
        "undo": (
            "webhook.commands.undo",
            "command",
            "Put a pending Job back as it was submitted.",
        ),
    },
    "For the admin": {
        "check": (
            "webhook.commands.check",
            "command",
            "Check policies and tariffs, and a sample Job in each option.",
        ),
        "off": ("webhook.commands.switch", "off", "Stop all new decisions within a second."),
        "on": ("webhook.commands.switch", "on", "Start decisions again."),
        "probe": (
            "webhook.commands.probe",
            "command",
            "Check that the API server calls the webhook.",
        ),
        "report": (
            "webhook.commands.report",
            "command",
            "Show what was gained, and the run times learned.",
        ),
        "status": (
            "webhook.commands.status",
            "command",
            "Show policies, queues, and what needs attention.",
        ),
        "tariff": (
            "webhook.commands.make_tariff",
            "command",
            "Print Tariffs made from prices and intensities known elsewhere.",
        ),
    },
    "Before an install": {
        "estimate": (
            "webhook.commands.estimate",
            "command",
            "Show what a policy would have gained, before any install.",
        ),
        "simulate": (
            "webhook.commands.simulate",
            "command",
            "Replay Jobs under several strategies.",
        ),
    },
    "For the server and its chart": {
        "control": ("webhook.commands.serve", "control", "Run the controller."),
        "serve": ("webhook.commands.serve", "serve", "Run the webhook's server."),
        "unfinished": (
            "webhook.commands.release",
            "unfinished",
            "List unfinished Jobs that carry a decision.",
        ),
    },
}
"""Where a command is in the help, to its name, module, function and a line of help."""
_COMMANDS = {name: place for group in _GROUPS.values() for name, place in group.items()}
_OF_SERVERS = frozenset(_GROUPS["For the server and its chart"])
"""What the chart calls; people seldom do."""
_PLUGIN, _PROGRAM = "kubectl fallback", "kueue-fallback"
_COMPLETE = "_KUEUE_FALLBACK_COMPLETE"
"""The variable by which a shell asks for its script, or for words."""
_FILES, _NO_FILES = 0, 4
"""Cobra's directives: https://github.com/spf13/cobra/blob/v1.10.1/completions.go"""


class LazyGroup(click.Group):
    """Imports a command's module when it is run: help and `check` stay fast and need no cluster."""

    def main(self, args: Sequence[str] | None = None, *rest: Any, **given: Any) -> Any:
        """Run a command by the name that people type: a plugin's, but for what servers run."""
        words = sys.argv[1:] if args is None else list(args)
        # click's script for a shell completes each word of the name: kubectl has its own.
        is_program = _COMPLETE in os.environ or _OF_SERVERS & set(words[:1])
        name = _PROGRAM if is_program else _PLUGIN
        named = {"prog_name": name, "complete_var": _COMPLETE, **given}
        return super().main(args, *rest, **named)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in _COMMANDS:
            return None
        module, name, text = _COMMANDS[cmd_name]
        command: click.Command = getattr(importlib.import_module(module), name)
        command.short_help = text
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command; for an unknown name, fail with the nearest known one."""
        if args[0] not in _COMMANDS and not args[0].startswith("-"):
            import difflib

            close = difflib.get_close_matches(args[0], _COMMANDS, n=1)
            hint = f" Did you mean {close[0]}?" if close else ""
            ctx.fail(f"No such command {args[0]!r}.{hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        for title, group in _GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name, text) for name, (_, _, text) in sorted(group.items())])


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 done; 1 negative result (not found, refused, needs attention), or the "
    "cluster cannot be reached or forbids it; 2 the command or a file is wrong.",
)
@click.version_option(
    package_name="kueue-fallback",
    prog_name="kueue-fallback",
    message=f"%(prog)s, version %(version)s, Python {platform.python_version()}",
)
def main() -> None:
    """Send Jobs to the Kueue queue where they will do best.

    \b
    Examples:
      kubectl fallback explain -f job.yaml --snapshot snapshot.json
      kubectl fallback check -f policy.yaml
      kubectl fallback explain train -n team
      kubectl fallback status
    """


def complete() -> None:
    """Print completions for kubectl, which runs this as ``kubectl_complete-fallback``.

    It gives the words, the last one unfinished, and takes one candidate a line, and then ``:`` and
    a number that says what else may be offered.
    """
    from click.shell_completion import ShellComplete

    *words, incomplete = sys.argv[1:] or [""]
    found = ShellComplete(main, {}, _PLUGIN, _COMPLETE).get_completions(words, incomplete)
    lines = [f"{word.value}\t{word.help or ''}".rstrip() for word in found if word.type == "plain"]
    files = any(word.type in ("file", "dir") for word in found)
    click.echo("\n".join([*lines, f":{_FILES if files else _NO_FILES}"]))


if __name__ == "__main__":
    main()
