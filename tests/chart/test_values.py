"""Values that the chart refuses, and the notes that it prints."""

import json
from pathlib import Path

import pytest
import yaml

from hack import chart_schema

LEVELS = (
    "admissionPolicies",
    "affinity",
    "certificates",
    "certificates.certManager",
    "certificates.certManager.issuerRef",
    "certificates.files",
    "console",
    "controller",
    "controller.resources",
    "crds",
    "hooks",
    "hooks.probe",
    "hooks.resources",
    "hooks.unfinished",
    "image",
    "kueue",
    "metrics",
    "metrics.dashboard",
    "metrics.podMonitor",
    "metrics.prometheusRule",
    "metrics.serviceMonitor",
    "networkPolicy",
    "podDisruptionBudget",
    "policyRoles",
    "resources",
    "service",
    "settings",
    "webhook",
    "webhook.clientCA",
    "webhook.clientCA.from",
)
# What Kubernetes or the server defines, of which no value is given.
OPEN = {".affinity", ".settings", ".resources", ".controller.resources", ".hooks.resources"}
CHART = Path(__file__).resolve().parents[2] / "helm"


@pytest.mark.parametrize(
    ("key", "where"),
    [
        ("nope", ""),
        *((f"{path}.nope", f"/{path.replace('.', '/')}") for path in LEVELS),
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
        ({"controller.replicas": "0"}, "- at '/controller/replicas': minimum: got 0, want 1"),
        ({"certificates.mode": '"magic"'}, "- at '/certificates/mode': value must be one of"),
        (
            {"settings": '{"keep_alive": 90}'},
            "- at '/settings/keep_alive': exclusiveMinimum: got 90, want 90",
        ),
        ({"runAsUser": "0"}, "- at '/runAsUser': minimum: got 0, want 1"),
        ({"webhook.pathSegments": '["short"]'}, "- at '/webhook/pathSegments/0': 'short' does not"),
        ({"webhook.clientCA.pem": '"x"'}, "- at '/webhook/clientCA/pem': 'x' does not match"),
        ({"imagePullSecrets": '[{"nme": "x"}]'}, "- at '/imagePullSecrets/0'"),
        ({"tolerations": '[{"kye": "x"}]'}, "- at '/tolerations/0'"),
        ({"webhook.matchConditions": '[{"name": "x"}]'}, "- at '/webhook/matchConditions/0'"),
        ({"networkPolicy.scrapesFrom": '[{"pods": {}}]'}, "- at '/networkPolicy/scrapesFrom/0'"),
    ],
)
def test_a_value_outside_its_range_is_refused(refusal, values, text):
    assert refusal(values).startswith(text)


@pytest.mark.parametrize("setting", sorted(chart_schema.GIVEN_BY_VALUES))
def test_a_setting_that_a_value_already_says_is_refused(refusal, setting):
    text = refusal({"settings": f'{{"{setting}": "x"}}'})

    assert text == f"- at '/settings': additional properties '{setting}' not allowed"


DELETE_DEFINITIONS = (
    "kubectl delete crd "
    "{fallbackpolicies,teamfallbackpolicies,acceleratorprofiles,tariffs}.kueue-fallback.dev"
)


def test_the_schema_knows_the_settings_that_the_server_knows():
    assert chart_schema.TARGET.read_text() == chart_schema.text(), "run python -m hack.chart_schema"


def test_a_label_by_which_pods_are_found_is_refused(template):
    result = template({"podLabels": '{"app.kubernetes.io/name": "x"}'})

    assert result.returncode == 1
    assert "podLabels cannot set app.kubernetes.io/name: pods are found by it" in result.stderr


def test_a_name_that_sorts_after_kueues_is_refused(template):
    result = template({"fullnameOverride": '"redirect"'})

    assert result.returncode == 1
    assert 'the name "redirect" sorts after kueue-mutating-webhook-configuration' in result.stderr


def test_every_value_is_in_the_schema_and_every_field_of_the_schema_has_a_value():
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())

    schema["properties"].pop("global")  # helm adds it
    assert _paths(values, schema) == _schema_paths(schema)


def _paths(values, schema, path=""):
    if path in OPEN or not schema.get("properties"):
        return {path}
    return set().union(
        *(
            _paths(value, schema["properties"][key], f"{path}.{key}")
            for key, value in values.items()
        )
    )


def _schema_paths(schema, path=""):
    if path in OPEN or not schema.get("properties"):
        return {path}
    return set().union(
        *(_schema_paths(field, f"{path}.{key}") for key, field in schema["properties"].items())
    )


def test_the_chart_passes_helms_own_lint(helm):
    result = helm("lint", "--strict", str(CHART))

    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize(
    ("values", "told"),
    [
        (
            {},
            DELETE_DEFINITIONS,
        ),
        ({"webhook.failurePolicy": '"Fail"'}, "while no server answers, no Job can be created."),
        ({"certificates.mode": '"files"'}, "and admits every Job as it was submitted."),
        (
            {"certificates.mode": '"files"', "webhook.failurePolicy": '"Fail"'},
            "and refuses every Job.",
        ),
        (
            {"certificates.mode": '"files"', "certificates.files.caBundle": '"QQ=="'},
            DELETE_DEFINITIONS,
        ),
    ],
)
def test_the_notes_end_with_what_to_know_next(notes, values, told):
    assert notes(values).rstrip().endswith(told)


def test_the_notes_say_what_to_do_first_and_how_to_check(notes):
    text = notes({})

    assert "Next steps:\n  1. Write a policy. Its default mode, Observe," in text
    assert "kubectl fallback probe" in text
    assert "The API server has just called the webhook." in text


def test_the_notes_claim_no_check_that_was_not_made(notes):
    assert "has just called" not in notes({"hooks.probe.enabled": "false"})


@pytest.fixture(scope="module")
def notes(helm):
    def run(values):
        given = [f"--set-json={key}={value}" for key, value in values.items()]
        result = helm(
            "install", "kueue-fallback", str(CHART), "-n", "ours", "--dry-run=client", *given
        )
        assert result.returncode == 0, result.stderr
        return result.stdout

    return run


@pytest.mark.parametrize("days", [0, 8])
def test_a_journal_of_no_day_or_of_more_than_a_week_is_refused(refusal, days):
    assert refusal({"settings.journal_days": str(days)}).startswith("- at '/settings/journal_days'")
