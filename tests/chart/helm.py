"""Running helm on the chart of this checkout."""

import subprocess
from pathlib import Path

import yaml

from hack import tools

CHART = Path(__file__).resolve().parents[2] / "helm"
NAMESPACE = "ours"


def helm(*arguments):
    """Run the helm that the control plane takes, too."""
    program = tools.program("helm")
    return subprocess.run(
        [program, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )


def template(values=None, *more, release="kueue-fallback", command=("template",)):
    """Render the chart; values are given as JSON by their path."""
    given = [f"--set-json={key}={value}" for key, value in (values or {}).items()]
    return helm(*command, release, CHART, "--namespace", NAMESPACE, *given, *more)


def objects_of(rendered):
    """Read what helm has printed, in C: the definitions take a quarter of a second otherwise."""
    return [each for each in yaml.load_all(rendered.stdout, Loader=yaml.CSafeLoader) if each]
