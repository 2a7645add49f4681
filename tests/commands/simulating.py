"""The command `simulate`, called."""

from click.testing import CliRunner

from webhook.__main__ import main


def simulate(*arguments, given=None):
    found = CliRunner().invoke(main, ["simulate", *arguments], input=given)
    assert found.exception is None or isinstance(found.exception, SystemExit), found.exception
    return found
