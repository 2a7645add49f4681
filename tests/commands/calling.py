"""The command line, called in this process: on files, or on what stands for a cluster."""

from click.testing import CliRunner

from tests.commands.apiserver import serving
from webhook.__main__ import main


def call(*words, given=None):
    """Run a command; what ends it otherwise than by an exit code is a bug."""
    found = CliRunner().invoke(main, [str(word) for word in words], input=given)
    assert found.exception is None or isinstance(found.exception, SystemExit), found.exception
    return found


def call_on(answer, folder, *words, given=None, **context):
    """Run a command on an API server that answers so, with a kubeconfig in the folder."""
    with serving(answer, folder, **context) as kubeconfig:
        return call(*words, "--kubeconfig", kubeconfig, given=given)
