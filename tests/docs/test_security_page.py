"""What docs/security.md offers for Jobs whose decisions are believed without a signature."""

import json
import re
import shutil
import subprocess

import pytest

from tests.docs.pages import ROOT

PAGE = (ROOT / "docs/security.md").read_text()
DECISION = "kueue-fallback.dev/decision"


def job(name, *, ended=False, decision=None):
    metadata = {"name": name, "namespace": "team", "creationTimestamp": "2026-11-28T10:00:00Z"}
    annotations = {} if decision is None else {DECISION: decision}
    status = {"completionTime": "2026-11-28T11:00:00Z"} if ended else {}
    return {"metadata": {**metadata, "annotations": annotations}, "status": status}


@pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not here")
def test_unfinished_jobs_are_listed_with_what_an_undo_would_write_back():
    (program,) = re.findall(r"kubectl get jobs -A -o json \| jq -r '([^']+)'", PAGE)
    written = {"original": {"/metadata/labels/q": "gpu-lq"}}
    jobs = [
        job("signed", decision=json.dumps({**written, "signature": "x"})),
        job("forged", decision=json.dumps(written)),
        job("damaged", decision="{"),
        job("ended", ended=True, decision=json.dumps(written)),
        job("plain"),
    ]

    done = subprocess.run(
        ["jq", "-r", program],
        input=json.dumps({"items": jobs}),
        capture_output=True,
        text=True,
        check=True,
    )

    created, original = (
        "2026-11-28T10:00:00Z",
        json.dumps(written["original"], separators=(",", ":")),
    )
    assert done.stdout.splitlines() == [
        f"{created}\tteam\tsigned\tsigned\t{original}",
        f"{created}\tteam\tforged\tunsigned\t{original}",
        f"{created}\tteam\tdamaged\tunsigned\tnull",
    ]
