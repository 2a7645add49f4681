"""The scenarios that ship."""

from pathlib import Path

import yaml

from webhook.simulate import scenario_file

SCENARIOS = Path("examples/scenarios")


def shipped(name, *, seed=0, **given):
    path = SCENARIOS / f"{name}.yaml"
    return scenario_file.read(
        yaml.safe_load(path.read_text()),
        read_text=lambda file: (SCENARIOS / file).read_text(),
        given=given,
        seed=seed,
    )
