"""What the chart makes of values: cases/*.yaml, each with values and what is then there.

`has` and `settings` are what stands at places, `adds` what lists have beyond those of the defaults,
`lacks` which objects are not made, `objects` all that are, and `refused` what is said instead.
"""

import fnmatch
import json
from pathlib import Path

import pytest
import yaml

from tests.chart.values import EVERY_RENDERING
from tests.manifest_places import look
from webhook.settings import Settings

CASES = [
    pytest.param(case, id=f"{path.stem}: {case['it']}")
    for path in sorted((Path(__file__).parent / "cases").glob("*.yaml"))
    for case in yaml.safe_load(path.read_text())
]


def named(rendering):
    found = {"/".join(key): each for key, each in rendering.objects.items()}
    written = found["ConfigMap/kueue-fallback"]["data"]["settings.yaml"]
    return {**found, "settings": yaml.safe_load(written)}


def added(objects, before, name, path):
    """List what is there beyond the defaults."""
    known = look(before[name], path)
    return [each for each in look(objects[name], path) if each not in known]


@pytest.mark.parametrize("case", CASES)
def test_values_make_the_objects_of_the_case(render, refusal, case):
    given = case.get("values", "default")
    values = (
        EVERY_RENDERING[given]
        if isinstance(given, str)
        else {path: json.dumps(value) for path, value in given.items()}
    )
    if "refused" in case:
        assert case["refused"] in refusal(values)
        return

    objects, before = named(render(values, kubernetes=case.get("kubernetes"))), named(render())

    for name, places in case.get("has", {}).items():
        assert {path: look(objects[name], path) for path in places} == places, name
    for name, places in case.get("adds", {}).items():
        assert {path: added(objects, before, name, path) for path in places} == places, name
    for pattern in case.get("lacks", ()):
        assert fnmatch.filter(objects, pattern) == []
    if "objects" in case:
        assert sorted(set(objects) - {"settings"}) == case["objects"]


@pytest.mark.parametrize("values", EVERY_RENDERING.values(), ids=EVERY_RENDERING)
def test_every_rendering_has_the_charts_labels_and_settings_that_the_server_accepts(render, values):
    rendering = render(values)

    written = rendering.one("ConfigMap")["data"]["settings.yaml"]
    assert Settings.model_validate(yaml.safe_load(written)).namespace == "ours"
    assert len(rendering.objects) == rendering.made
    assert {
        each["metadata"].get("labels", {}).get("app.kubernetes.io/name")
        for (kind, _), each in rendering.objects.items()
        if kind != "CustomResourceDefinition"
    } == {"kueue-fallback"}


def test_each_part_can_be_off_alone(render):
    (parts,) = (case.values[0] for case in CASES if "all that can be off" in case.id)
    every = set(render().objects)

    for path, value in parts["values"].items():
        assert set(render({path: json.dumps(value)}).objects) < every, path


@pytest.mark.parametrize(
    ("given", "values", "prefix"),
    [
        ({"release": "second"}, {}, "kueue-fallback-second"),
        ({}, {"fullnameOverride": '"gate"'}, "gate"),
    ],
    ids=["release", "full name"],
)
def test_a_name_of_its_own_is_in_every_object_of_a_release(render, given, values, prefix):
    found = [
        name
        for kind, name in render(values, **given).objects
        # The processes know this Secret by one name.
        if (kind, name) != ("Secret", "kueue-fallback-signing-keys")
        and kind != "CustomResourceDefinition"
    ]

    assert all(name.startswith(prefix) for name in found)
