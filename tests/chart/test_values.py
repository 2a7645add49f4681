"""Values that the chart refuses, and the notes that it prints."""

import json
from pathlib import Path

import pytest
import yaml

CHART = Path(__file__).resolve().parents[2] / "helm"


@pytest.mark.parametrize(
    ("key", "where"),
    [
        ("nope", ""),
        ("image.nope", "/image"),
        ("webhook.nope", "/webhook"),
        ("tls.nope", "/tls"),
        ("metrics.nope", "/metrics"),
        ("service.nope", "/service"),
        ("controller.nope", "/controller"),
        ("kueue.nope", "/kueue"),
        ("policyRoles.nope", "/policyRoles"),
    ],
)
def test_an_unknown_key_is_refused_where_it_stands(refusal, key, where):
    text = refusal({key: "1"})

    assert text == f"- at '{where}': additional properties 'nope' not allowed"


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"webhook.failurePolicy": '"Maybe"'}, "- at '/webhook/failurePolicy': value must be one"),
        ({"webhook.timeoutSeconds": "31"}, "- at '/webhook/timeoutSeconds': maximum: got 31"),
        ({"webhook.port": "0"}, "- at '/webhook/port': minimum: got 0, want 1"),
        ({"image.digest": '"latest"'}, "- at '/image/digest': 'latest' does not match pattern"),
        ({"replicas": "0"}, "- at '/replicas': minimum: got 0, want 1"),
    ],
)
def test_a_value_outside_its_range_is_refused(refusal, values, text):
    assert refusal(values).startswith(text)


def test_a_setting_that_a_value_already_says_is_refused(template):
    assert template({"settings": '{"listen": "0.0.0.0:1"}'}).returncode == 1


def test_every_value_is_in_the_schema_and_every_field_of_the_schema_has_a_value():
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())

    schema["properties"].pop("global")  # helm adds it
    assert _paths(values, schema) == _schema_paths(schema)


def _paths(values, schema, path=""):
    if not schema.get("properties"):
        return {path}
    assert not schema["additionalProperties"], path
    return set().union(
        *(
            _paths(value, schema["properties"][key], f"{path}.{key}")
            for key, value in values.items()
        )
    )


def _schema_paths(schema, path=""):
    if not schema.get("properties"):
        return {path}
    return set().union(
        *(_schema_paths(field, f"{path}.{key}") for key, field in schema["properties"].items())
    )


def test_each_value_has_a_comment_in_whole_sentences():
    lines = (CHART / "values.yaml").read_text().splitlines()
    comments = [line.strip() for line in lines if line.strip().startswith("#")]

    blocks = "\n".join(line if line.strip().startswith("#") else "" for line in lines).split("\n\n")
    assert comments
    assert [block for block in blocks if block.strip() and not block.rstrip().endswith(".")] == []


def test_the_chart_passes_helms_own_lint(helm):
    result = helm("lint", "--strict", str(CHART))

    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({}, "and admits every Job as it was submitted."),
        ({"webhook.failurePolicy": '"Fail"'}, "and refuses every Job."),
        ({"webhook.caBundle": '"QQ=="'}, "create configmap kueue-fallback-off"),
    ],
)
def test_the_notes_end_with_what_to_know_next(helm, values, told):
    given = [f"--set-json={key}={value}" for key, value in values.items()]
    result = helm("install", "kueue-fallback", str(CHART), "--dry-run=client", *given)

    assert result.stdout.rstrip().endswith(told)
