"""Write what the chart needs to know of the kinds of Jobs: `python -m hack.job_kinds`.

Run it again when a kind is added to webhook/jobs.
"""

from pathlib import Path
from typing import Final

import yaml

from webhook.jobs import KINDS

TARGET: Final = Path(__file__).resolve().parent.parent / "helm/files/kinds.yaml"


def text() -> str:
    """Return the whole file: each kind's name with what the chart's templates ask of it."""
    served = {
        kind.kind: {
            "group": kind.group,
            "version": kind.version,
            "resource": kind.plural,
            "movable": kind.is_movable,
            "owner": kind.owns_queued,
        }
        for kind in KINDS.values()
    }
    return yaml.safe_dump(served)


if __name__ == "__main__":
    TARGET.write_text(text(), encoding="utf-8")
    print(TARGET)
