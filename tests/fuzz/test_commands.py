"""No object of a stranger breaks a command, or steers the terminal of who runs it."""

import json
import re

import pytest
from click.testing import CliRunner
from hypothesis import strategies as st

from tests.commands.apiserver import serving
from tests.commands.cluster import Cluster
from tests.fuzz.drawing import fuzzed
from tests.fuzz.objects import good, hostile, hostile_bases, hostile_jobs, journal, records
from tests.fuzz.values import anything, deep, mutated
from webhook.__main__ import main
from webhook.api import resources as kinds

STEERS = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""What a terminal obeys; a line's end is ours."""
SAID = {0, 1, 2, 3}
UNKNOWN = (kinds.KUEUE_CONFIG, kinds.KUEUE_DEPLOYMENT, kinds.OFF_SWITCH, kinds.WEBHOOKS)
"""Kinds that go by a name of their own."""


def run(*words):
    found = CliRunner().invoke(main, [str(word) for word in words])
    assert found.exception is None or isinstance(found.exception, SystemExit), found.exception
    assert found.exit_code in SAID
    assert not STEERS.search(found.output)
    return found


def items():
    return [item for kind, objects in good().items() if kind not in UNKNOWN for item in objects]


@st.composite
def states(draw):
    """Draw a saved state with a hostile object or two, and a whole hostile Job."""
    kind = draw(st.sampled_from(sorted(set(hostile_bases()) - set(UNKNOWN))))
    found = [draw(hostile(kind)), draw(hostile(kinds.WORKLOADS)), draw(hostile_jobs())]
    for base in (records(), journal()):
        written = {key: base[key] for key in ("data", "binaryData") if key in base}
        found.append({**base, **draw(mutated(written, st.one_of(anything, deep)))})
    return [*items(), *found], found[2]


@pytest.mark.parametrize("output", ["text", "wide", "json"])
def test_files_that_strangers_had_a_part_in_are_explained_and_reported(tmp_path, output):
    snapshot, manifest = tmp_path / "snapshot.json", tmp_path / "job.json"

    @fuzzed(states(), share=0.2)
    def hold(drawn):
        found, job = drawn
        snapshot.write_text(json.dumps({"kind": "List", "items": found}))
        manifest.write_text(json.dumps(job))
        run("explain", "-f", manifest, "--snapshot", snapshot, "-o", output)
        run("report", "--snapshot", snapshot, "-o", output)
        run("report", "--snapshot", snapshot, "--run-times", "-o", output)

    hold()


def test_a_cluster_that_strangers_have_a_part_in_is_explained_reported_and_shown(tmp_path):
    cluster = Cluster()

    with serving(cluster, tmp_path, namespace="tenant") as kubeconfig:

        @fuzzed(states(), share=0.3)
        def hold(drawn):
            cluster.objects, job = drawn
            where = ("--kubeconfig", kubeconfig)
            run("explain", job["metadata"]["name"], *where)
            run("report", *where)
            run("report", "--run-times", *where)
            run("status", *where)

        hold()
