"""Write the CRD of FallbackPolicy into the chart: `python -m hack.crd`."""

from pathlib import Path
from typing import Final

import yaml

from webhook.model.policy import schema

TARGET: Final = Path(__file__).resolve().parent.parent / "helm" / "files" / "fallbackpolicies.yaml"
_HEADER = "# Generated from webhook/model by `python -m hack.crd`; change it there.\n"


class _Dumper(yaml.SafeDumper):
    """Write every list and object out, none by reference."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - its signature
        return True


def text() -> str:
    """Write it out; deleting it would delete every policy, so helm shall keep it on uninstall."""
    definition = schema.crd()
    kept = {**definition["metadata"], "annotations": {"helm.sh/resource-policy": "keep"}}
    definition = {**definition, "metadata": kept}
    return _HEADER + yaml.dump(definition, Dumper=_Dumper, sort_keys=False, width=96)


if __name__ == "__main__":
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    TARGET.write_text(text(), encoding="utf-8")
    print(TARGET)
