"""The dashboard's queries are ones that Prometheus understands."""

import json
import re
import subprocess
from pathlib import Path

import yaml

from hack import tools

DASHBOARD = Path(__file__).resolve().parents[2] / "helm/files/dashboard.json"
CHOSEN = {"$namespace": ".*", "$policy": ".*", "$__rate_interval": "5m", "$__range": "6h"}


def test_every_query_of_the_dashboard_is_understood(tmp_path):
    queries = [
        target["expr"]
        for panel in json.loads(DASHBOARD.read_text())["panels"]
        for target in panel.get("targets", ())
    ]
    chosen = re.compile("|".join(map(re.escape, CHOSEN)))
    rules = [
        {"record": f"query:{number}", "expr": chosen.sub(lambda found: CHOSEN[found[0]], query)}
        for number, query in enumerate(queries)
    ]
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": rules}]}))

    done = subprocess.run(
        [tools.program("promtool"), "check", "rules", "--lint=none", str(file)],
        capture_output=True,
        text=True,
        check=False,
    )

    assert len(queries) > 30
    assert "$" not in file.read_text()
    assert done.returncode == 0, done.stdout + done.stderr
