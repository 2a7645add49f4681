"""The command line: ``kueue-fallback``, ``kubectl fallback``, ``python -m webhook``."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from typing import Any

import click

_COMMANDS = {
    "advise": (
        "webhook.commands.advise",
        "command",
        "List running Jobs that would cost less elsewhere.",
    ),
    "check": (
        "webhook.commands.check",
        "command",
        "Check policies and tariffs, and a sample Job in each option.",
    ),
    "completion": ("webhook.commands.completion", "command", "Print a shell's completion script."),
    "control": ("webhook.commands.serve", "control", "Run the controller."),
    "estimate": (
        "webhook.commands.estimate",
        "command",
        "Show what a policy would have gained, before any install.",
    ),
    "explain": (
        "webhook.commands.explain",
        "command",
        "Show what was or would be decided for a Job, and why.",
    ),
    "gitops": (
        "webhook.commands.gitops",
        "command",
        "Print what Argo CD or Flux must ignore for your policies.",
    ),
    "help": ("webhook.commands.help_text", "command", "Print help about a command."),
    "list": ("webhook.commands.list_jobs", "command", "List Jobs that carry a decision."),
    "move": (
        "webhook.commands.move_job",
        "command",
        "Move a pending Job to another option of its policy.",
    ),
    "off": ("webhook.commands.switch", "off", "Stop all new decisions within a second."),
    "on": ("webhook.commands.switch", "on", "Start decisions again."),
    "probe": ("webhook.commands.probe", "command", "Check that the API server calls the webhook."),
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
    "report": (
        "webhook.commands.report",
        "command",
        "Show what was gained, and the run times learned.",
    ),
    "serve": ("webhook.commands.serve", "serve", "Run the webhook's server."),
    "simulate": ("webhook.commands.simulate", "command", "Replay Jobs under several strategies."),
    "status": (
        "webhook.commands.status",
        "command",
        "Show policies, queues, and what needs attention.",
    ),
    "tail": ("webhook.commands.tail", "command", "Print decisions as they are made."),
    "tariff": (
        "webhook.commands.make_tariff",
        "command",
        "Print Tariffs made from prices and intensities known elsewhere.",
    ),
    "undo": ("webhook.commands.undo", "command", "Put a pending Job back as it was submitted."),
    "unfinished": (
        "webhook.commands.unfinished",
        "command",
        "List unfinished Jobs that carry a decision.",
    ),
    "version": (
        "webhook.commands.show_version",
        "command",
        "Print the versions of client, servers and APIs.",
    ),
}
_OF_SERVERS = frozenset({"control", "serve", "unfinished"})
"""What the chart calls; people seldom do."""
_PLUGIN, _PROGRAM = "kubectl fallback", "kueue-fallback"


class LazyGroup(click.Group):
    """Imports a command's module when it is run: help and `check` stay fast and need no cluster."""

    def main(self, args: Sequence[str] | None = None, *rest: Any, **given: Any) -> Any:
        """Run a command by the name that people type: a plugin's, but for what servers run."""
        words = sys.argv[1:] if args is None else list(args)
        name = _PROGRAM if _OF_SERVERS & set(words[:1]) else _PLUGIN
        named = {"prog_name": name, "complete_var": "_KUEUE_FALLBACK_COMPLETE", **given}
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
        for title, is_of_servers in (("Commands", False), ("For the server and its chart", True)):
            with formatter.section(title):
                formatter.write_dl(
                    [
                        (name, text)
                        for name, (_, _, text) in sorted(_COMMANDS.items())
                        if (name in _OF_SERVERS) is is_of_servers
                    ]
                )


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 done; 1 negative result (not found, refused, needs attention), or the "
    "cluster cannot be reached or forbids it; 2 the command or a file is wrong.",
)
@click.version_option(package_name="kueue-fallback", prog_name="kueue-fallback")
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
    """Print completions for kubectl, which runs this as ``kubectl_complete-fallback``."""
    from webhook.commands import completion

    completion.for_kubectl(main)


if __name__ == "__main__":
    main()
