"""Values that the chart's schema refuses, and the notes that it prints."""

import functools
import json
import re

import pytest
import yaml

from hack import chart_schema
from tests.chart.helm import CHART, helm, template
from tests.chart.values import EVERYTHING

SCHEMA = json.loads((CHART / "values.schema.json").read_text())
# What Kubernetes or the server defines, of which no value is given.
OPEN = {"affinity", "settings", "resources", "controller.resources", "hooks.resources"}
OUTSIDE = {
    "webhook.failurePolicy": ('"Maybe"', "value must be one"),
    "webhook.timeoutSeconds": ("31", "maximum: got 31"),
    "webhook.port": ("0", "minimum: got 0, want 1"),
    "image.digest": ('"latest"', "'latest' does not match pattern"),
    "replicas": ("0", "minimum: got 0, want 1"),
    "controller.replicas": ("0", "minimum: got 0, want 1"),
    "certificates.mode": ('"magic"', "value must be one of"),
    "settings.keep_alive": ("90", "exclusiveMinimum: got 90, want 90"),
    "settings.journal_days": ("8", "maximum: got 8, want 7"),
    "accelerators.fragmentationMinutes": ("1441", "maximum: got 1,441, want 1,440"),
    "runAsUser": ("0", "minimum: got 0, want 1"),
    "webhook.pathSegments": ('["short"]', "'short' does not"),
    "webhook.clientCA.pem": ('"x"', "'x' does not match"),
    "imagePullSecrets": ('[{"nme": "x"}]', ""),
    "tolerations": ('[{"kye": "x"}]', ""),
    "webhook.matchConditions": ('[{"name": "x"}]', ""),
    "networkPolicy.scrapesFrom": ('[{"pods": {}}]', ""),
}


def levels(schema, path=""):
    """List the paths of all objects whose keys are known."""
    if schema.get("properties"):
        yield path
        for key, field in schema["properties"].items():
            yield from levels(field, f"{path}.{key}".removeprefix("."))


def complaints(values):
    """List what is said of each place, without that of the places above it."""
    result = template(values)
    assert result.returncode == 1, result.stdout
    found = re.findall(r"- at '(.*?)': (.*)", result.stderr)
    return sorted((place, said) for place, said in found if said != "validation failed")


def test_an_unknown_key_is_refused_where_it_stands():
    known = [path for path in levels(SCHEMA) if path != "global"]

    found = complaints({f"{path}.nope".removeprefix("."): "1" for path in known})

    assert len(known) > 25
    assert found == sorted(
        (f"/{path.replace('.', '/')}".rstrip("/"), "additional properties 'nope' not allowed")
        for path in known
    )


def test_values_outside_their_range_are_refused():
    found = complaints({path: value for path, (value, _) in OUTSIDE.items()})

    assert [
        path
        for path, (_, text) in OUTSIDE.items()
        if not any(
            place.startswith(f"/{path.replace('.', '/')}") and said.startswith(text)
            for place, said in found
        )
    ] == []


def test_settings_that_a_value_already_says_are_refused():
    ((place, said),) = complaints(
        {f"settings.{name}": '"x"' for name in chart_schema.GIVEN_BY_VALUES}
    )

    assert (place, set(re.findall(r"'(\w+)'", said))) == (
        "/settings",
        set(chart_schema.GIVEN_BY_VALUES),
    )


def test_the_schema_knows_the_settings_that_the_server_knows():
    assert chart_schema.TARGET.read_text() == chart_schema.text(), "run python -m hack.chart_schema"


def test_every_value_is_in_the_schema_and_every_field_of_the_schema_has_a_value():
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    fields = {**SCHEMA["properties"]}
    del fields["global"]  # helm adds it

    assert set(_paths(values, {"properties": fields})) == set(_fields({"properties": fields}))


def _paths(values, schema, path=""):
    if path in OPEN or not schema.get("properties"):
        yield path
        return
    for key, value in values.items():
        yield from _paths(value, schema["properties"][key], f"{path}.{key}".removeprefix("."))


def _fields(schema, path=""):
    if path in OPEN or not schema.get("properties"):
        yield path
        return
    for key, field in schema["properties"].items():
        yield from _fields(field, f"{path}.{key}".removeprefix("."))


def test_the_chart_passes_helms_own_lint():
    result = helm("lint", "--strict", CHART)

    assert result.returncode == 0, result.stdout


@functools.cache
def notes(values):
    result = template(dict(values), "--dry-run=client", command=("install",))
    assert result.returncode == 0, result.stderr
    return result.stdout.partition("NOTES:")[2]


FILES = {"certificates.mode": '"files"'}
FAIL = {"webhook.failurePolicy": '"Fail"'}
FROM = {"networkPolicy.reviewsFrom": '[{"ipBlock": {"cidr": "10.0.0.0/28"}}]'}
ON_NODES = {"hostNetwork": "true", "webhook.port": "10260"}
SEGMENTS = {"webhook.pathSegments": '["first-segment-of-a-path-0"]'}
PEM = {
    "webhook.clientCA.pem": json.dumps(
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----"
    )
}
DELETED = "{fallbackpolicies,teamfallbackpolicies,acceleratorprofiles,tariffs}.kueue-fallback.dev"
WARNING = "WARNING: everybody who reaches port 10250"
CHECKED = "The API server has just called the webhook."


@pytest.mark.parametrize(
    ("values", "told", "untold"),
    [
        ({}, [WARNING, "pods may ask it for decisions", CHECKED, "kubectl fallback probe"], []),
        ({}, ["Next steps:\n  1. Write a policy. Its default mode, Observe,", DELETED], []),
        (FAIL, ["while no server answers, no Job can be created."], []),
        (FILES, ["and admits every Job as it was submitted."], []),
        ({**FILES, **FAIL}, ["and refuses every Job."], []),
        ({**FILES, "certificates.files.caBundle": '"QQ=="'}, [DELETED], []),
        ({"hooks.probe.enabled": "false"}, [], ["has just called"]),
        (SEGMENTS, [WARNING, "learns the path may ask it"], ["- webhook.pathSegments:"]),
        ({"networkPolicy.enabled": "true"}, [WARNING, "- webhook.pathSegments:"], []),
        ({**FROM, **ON_NODES}, ["WARNING: everybody", "no effect on the nodes' network"], []),
        (FROM, [], ["WARNING"]),
        (PEM, [], ["WARNING"]),
        (EVERYTHING, [], ["WARNING"]),
    ],
    ids=lambda each: ", ".join(each)[:60] if isinstance(each, dict) else None,
)
def test_the_notes_say_what_to_know_next(values, told, untold):
    text = notes(tuple(values.items()))

    assert [each for each in told if each not in text] == []
    assert [each for each in untold if each in text] == []
