"""The command line: ``kueue-fallback``, ``kubectl fallback``, ``python -m webhook``."""

from __future__ import annotations

import importlib
import sys

import click

_COMMANDS = {
    "check": ("webhook.commands.check", "command", "Check policies, with the API server's texts."),
    "control": ("webhook.commands.control", "command", "Run the controller."),
    "explain": ("webhook.commands.explain", "command", "Say what would be decided, and why."),
    "off": ("webhook.commands.switch", "off", "Stop all new decisions within a second."),
    "on": ("webhook.commands.switch", "on", "Decide again."),
    "probe": ("webhook.commands.probe", "command", "Check that the API server calls the webhook."),
    "report": ("webhook.commands.report", "command", "Show the run times that were learned."),
    "serve": ("webhook.commands.serve", "command", "Run the webhook's server."),
    "simulate": ("webhook.commands.simulate", "command", "Replay Jobs under several strategies."),
    "undo": ("webhook.commands.undo", "command", "Put a pending Job back as it was submitted."),
    "unfinished": ("webhook.commands.unfinished", "command", "List decided Jobs still to do."),
}


class LazyGroup(click.Group):
    """Imports a command's module when it is run: help and `check` stay fast and need no cluster."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in _COMMANDS:
            return None
        module, name, _ = _COMMANDS[cmd_name]
        command: click.Command = getattr(importlib.import_module(module), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, _, text) in sorted(_COMMANDS.items())])


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 done, 1 the answer is no, 2 input is wrong, 3 no cluster reached.",
)
@click.version_option(package_name="kueue-fallback", prog_name="kueue-fallback")
def main() -> None:
    """Send Jobs to the Kueue queue where they will do best.

    \b
    Examples:
      kueue-fallback explain -f job.yaml --snapshot snapshot.json
      kueue-fallback check -f policy.yaml
    """


if __name__ == "__main__":
    main(prog_name="kueue-fallback" if "fallback" not in sys.argv[0] else None)
