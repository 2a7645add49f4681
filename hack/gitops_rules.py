"""Write what GitOps tools shall ignore, from the places that may be patched, into the cookbook.

usage: python -m hack.gitops_rules
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from webhook.admission.patch import to_pointer
from webhook.jobs import KINDS
from webhook.model.edits import Path as Place
from webhook.model.job import OURS

TARGET: Final = Path(__file__).resolve().parent.parent / "docs/policy-cookbook.md"
START: Final = (
    "<!-- rules: from the places that may be patched, by python -m hack.gitops_rules -->\n"
)
END: Final = "<!-- end of rules -->\n"
_ALLOWED: Final = KINDS["batch", "v1", "Job"].allowed


def in_manifests() -> Iterator[Place]:
    """List the places that a manifest may hold; what is ours alone stands in none."""
    return (place for place in _ALLOWED if not any(part.startswith(OURS) for part in place))


def jq_path(place: Place) -> str:
    """Write a place as Argo CD reads it; all of a mapping where any key may change."""
    *above, last = place
    parts = ("[]" if part == "*" else _step(part) for part in above)
    return "".join(parts) + ("" if last == "*" else _step(last))


def _step(part: str) -> str:
    return f".{part}" if part.isalnum() else f'["{part}"]'


def pointer(place: Place) -> str:
    """Write a place as a JSON pointer, which ends where an element of a list would be named."""
    return to_pointer(place[: place.index("*")] if "*" in place else place)


def argo_cd() -> dict[str, Any]:
    paths = [jq_path(place) for place in in_manifests()]
    return {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Application",
        "spec": {
            "ignoreDifferences": [{"group": "batch", "kind": "Job", "jqPathExpressions": paths}]
        },
    }


def flux() -> dict[str, Any]:
    paths = list(dict.fromkeys(pointer(place) for place in in_manifests()))
    rule = {"paths": paths, "target": {"group": "batch", "kind": "Job"}}
    return {
        "apiVersion": "helm.toolkit.fluxcd.io/v2",
        "kind": "HelmRelease",
        "spec": {"driftDetection": {"mode": "enabled", "ignore": [rule]}},
    }


def rules() -> str:
    return f"For Argo CD:\n\n{_fenced(argo_cd())}\nFor Flux's HelmReleases:\n\n{_fenced(flux())}"


def _fenced(item: dict[str, Any]) -> str:
    return f"```yaml\n{yaml.safe_dump(item, sort_keys=False)}```\n"


def text() -> str:
    """Return the whole page with the rules as they must be."""
    before, _, rest = TARGET.read_text().partition(START)
    _, _, after = rest.partition(END)
    return f"{before}{START}\n{rules()}\n{END}{after}"


if __name__ == "__main__":
    TARGET.write_text(text())
