"""Each alert fires when it should and is quiet when it should be, as Prometheus evaluates it."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml
from prometheus_client import generate_latest

from hack import tools
from hack.waiting import WAIT_SECONDS
from tests.reviews import light_job
from tests.servers import Server, paper_snapshot
from webhook.controller.controller_metrics import ControllerMetrics

HERE = Path(__file__).resolve().parent
RULES = HERE.parent.parent / "helm/files/alerts.yaml"
ALERTS = {
    rule["alert"]: rule
    for group in yaml.safe_load(RULES.read_text())["groups"]
    for rule in group["rules"]
}
CASES = {
    found["alert"]: found["cases"] for found in yaml.safe_load((HERE / "cases.yaml").read_text())
}


@pytest.fixture(scope="session")
def run():
    program = tools.program("promtool")

    def call(*arguments, given=None):
        return subprocess.run(
            [program, *arguments],
            input=given,
            capture_output=True,
            text=True,
            check=False,
            timeout=WAIT_SECONDS,
        )

    return call


def test_every_alert_is_tested_to_fire_and_to_be_quiet():
    assert list(CASES) == list(ALERTS)
    for alert, cases in CASES.items():
        assert {bool(case.get("fires")) for case in cases} == {True, False}, alert


@pytest.mark.parametrize("alert", CASES)
def test_an_alert_fires_when_it_should_and_only_then(run, tmp_path, alert):
    # Alone, because each rule is evaluated for each minute of the longest case.
    (tmp_path / "rule.yaml").write_text(
        yaml.safe_dump({"groups": [{"name": "one", "rules": [ALERTS[alert]]}]})
    )
    file = tmp_path / "test.yaml"
    file.write_text(
        yaml.safe_dump(
            {
                "rule_files": ["rule.yaml"],
                "evaluation_interval": "1m",
                "tests": [_test(alert, case) for case in CASES[alert]],
            }
        )
    )

    done = run("test", "rules", str(file))

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("alert", CASES)
def test_an_alert_says_what_it_means_with_labels_that_it_has(alert):
    rule = ALERTS[alert]
    text = " ".join(rule["annotations"].values())
    firing = [labels for case in CASES[alert] for labels in case.get("fires", ())]

    assert sorted(rule["annotations"]) == ["description", "summary"]
    assert rule["annotations"]["summary"].endswith(".")
    assert rule["annotations"]["description"].strip().endswith(".")
    named = set(re.findall(r"\$labels\.(\w+)", text))
    assert named <= set.union(*map(set, firing))
    assert all(labels["severity"] == rule["labels"]["severity"] for labels in firing)


def test_the_rules_pass_the_linter(run):
    done = run("check", "rules", "--lint=all", "--lint-fatal", str(RULES))

    assert done.returncode == 0, done.stdout + done.stderr


def test_what_is_scraped_passes_the_linter(run):
    server, controller = Server(paper_snapshot()), ControllerMetrics()
    server.create(light_job())
    server.metrics.show(server.handler.snapshot, placements=1, forecast_age=0.5)
    for watches in (server.metrics.watches, controller.watches):
        watches.take(synced=True, ages={"jobs": 1.0}, relists={"jobs": 1}, problems={"jobs": 1})
    controller.expect(server.handler.snapshot)
    controller.show({"light-gpu": True})

    for registry in (server.metrics.registry, controller.registry):
        done = run("check", "metrics", given=generate_latest(registry).decode())

        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def _test(alert, case):
    series = case.get("series", {})
    return {
        "name": f"{alert} {case['it']}",
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {
                "expr": f'ALERTS{{alertname="{alert}",alertstate="firing"}}',
                "eval_time": case["at"],
                "exp_samples": [_sample(alert, labels) for labels in case.get("fires", ())],
            }
        ],
    }


def _sample(alert, labels):
    given = {"alertname": alert, "alertstate": "firing", **labels}
    written = ",".join(f'{name}="{value}"' for name, value in given.items())
    return {"labels": f"ALERTS{{{written}}}", "value": 1}
