"""The scenarios that ship."""

from pathlib import Path

import yaml

from webhook.simulate.scenario_file import read_scenario

SCENARIOS = Path("examples/scenarios")


def shipped(name, *, seed=0, **given):
    path = SCENARIOS / f"{name}.yaml"
    return read_scenario(
        yaml.safe_load(path.read_text()),
        read_text=lambda file: (SCENARIOS / file).read_text(),
        given=given,
        seed=seed,
    )


_BY_STEPS = (
    (
        "jobSelector:\n      matchLabels:\n        workload-type: light-gpu",
        "args:\n      - {flag: --steps, atMost: 30}",
    ),
    (
        "{jobSelector: {matchLabels: {workload-type: light-gpu}}}",
        "{args: [{flag: --steps, atMost: 30}]}",
    ),
    (
        "{jobSelector: {matchExpressions: [{key: workload-type, operator: DoesNotExist}]}}",
        "{args: [{flag: --steps, atLeast: 31}]}",
    ),
    ("    workload-type: light-gpu\n", ""),
)
"""Each text of the published scenarios in which the label stands, and the same by arguments."""


def by_steps(name):
    """Read a published scenario whose Jobs carry no label: their arguments tell the light ones."""
    document = yaml.safe_load(_by_steps(f"{name}.yaml"))
    return read_scenario(document, read_text=_by_steps)


def _by_steps(file):
    text = (SCENARIOS / file).read_text()
    for labelled, unlabelled in _BY_STEPS:
        text = text.replace(labelled, unlabelled)
    assert "workload-type:" not in text
    return text
