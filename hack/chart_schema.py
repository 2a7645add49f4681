"""Write the parts of the chart's values.schema.json that say which settings and kinds there are.

`python -m hack.chart_schema`; run it again when webhook/settings.py or webhook/jobs changes.
"""

import json
from pathlib import Path
from typing import Any, Final

from webhook.jobs import KINDS
from webhook.settings import Settings

TARGET: Final = Path(__file__).resolve().parent.parent / "helm" / "values.schema.json"
# What the chart derives from its own values, or what has no meaning in a pod.
GIVEN_BY_VALUES: Final = frozenset(
    {
        "listen",
        "metrics_listen",
        "console_listen",
        "console_audience",
        "console_follow_jobs",
        "namespace",
        "kueue_namespace",
        "client_ca",
        "client_names",
        "path_segments",
        "certificates",
        "ca_secret",
        "webhook_configuration",
        "service",
        "tls_cert",
        "tls_key",
        "kinds",
        "kubeconfig",
        "drain_seconds",
        "currency",
        "series",
        "watch_nodes",
        "fragmentation_minutes",
        "team_policies",
        "holds",
        "watch_workers",
        "dispatcher",
        "autoscale",
        "prometheus",
    }
)
# What pydantic adds that helm has no use for.
_SILENT: Final = frozenset({"title", "default", "description"})


def settings() -> dict[str, Any]:
    """Return the schema of the value `settings`."""
    found = Settings.model_json_schema()["properties"]
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            name: {key: value for key, value in field.items() if key not in _SILENT}
            for name, field in found.items()
            if name not in GIVEN_BY_VALUES
        },
    }


def text() -> str:
    """Return the whole file with that part as it must be."""
    schema = json.loads(TARGET.read_text(encoding="utf-8"))
    schema["properties"]["settings"] = settings()
    schema["properties"]["kinds"]["items"]["enum"] = sorted(kind.kind for kind in KINDS.values())
    return json.dumps(schema, indent=2) + "\n"


if __name__ == "__main__":
    TARGET.write_text(text(), encoding="utf-8")
    print(TARGET)
