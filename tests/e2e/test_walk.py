"""The walk that docs/walk.md tells of, with short run times: the same commands still do."""

import re

import pytest

from hack import walk
from hack.terminal import Terminal
from tests.conftest import FULL
from tests.docs import pages
from tests.e2e.release import Release

FASTER = 10


needs_time = pytest.mark.skipif(not FULL, reason="walks for a minute; FULL=1 runs it")


@pytest.fixture(scope="module")
def taken(own_plane, tmp_path_factory):
    """Walk, and return the steps by their titles."""
    folder = tmp_path_factory.mktemp("walk")
    walk.write_files(folder, faster=FASTER)
    release = Release(own_plane, tmp_path_factory.mktemp("helm"), certificates="selfManaged")
    try:
        return {step.title: dict(ran) for step, ran in walk.walk(Terminal(release, folder))}
    finally:
        release.down()


def test_the_page_tells_of_these_commands():
    told = [command.text for command in pages.commands(walk.PAGE)]

    assert told == [command for step in walk.steps() for command in step.commands]


@needs_time
def test_observe_touches_nothing_and_says_what_it_would_do(taken):
    outputs = [ran.output for ran in taken["Forty Jobs"].values()]

    assert "would be sent to cpu-lq (cpu): starts now" in outputs[2]
    assert outputs[3].splitlines()[-1] == "40"
    assert re.search(r"^light-gpu +research .*\b20\b", outputs[5], re.MULTILINE)
    # The last column, the option, is empty.
    assert all(re.search(r" \d+s *$", line) for line in outputs[4].splitlines()[1:])


@needs_time
def test_advise_warns_and_leaves_the_job_where_it_was_sent(taken):
    *_, created, reason = (ran.output for ran in taken["Advise"].values())

    assert created.startswith("Warning: kueue-fallback: would run in cpu-lq without nvidia.com/gpu")
    assert reason.startswith("kueue-fallback: would be sent to cpu-lq (cpu): ")


@needs_time
def test_enforce_moves_the_light_job_and_explains_both(taken):
    _, _, light, heavy, shown, why_light, why_heavy = (
        ran.output for ran in taken["Enforce"].values()
    )

    assert light.startswith("Warning: kueue-fallback: runs in cpu-lq without nvidia.com/gpu: ")
    assert heavy == "job.batch/heavy-81 created\n"
    assert re.search(r"^light-22 .* cpu +cpu-lq$", shown, re.MULTILINE)
    assert re.search(r"^heavy-81 .* gpu-lq$", shown, re.MULTILINE)
    assert "cpu-lq" in why_light
    assert "no policy matches this Job" in why_heavy


@needs_time
def test_undo_puts_a_job_that_waits_back(taken):
    _, undone, shown = (ran.output for ran in taken["Undo"].values())

    assert "Job research/cpu-16 is as it was submitted, in LocalQueue gpu-lq." in undone
    assert re.search(r"^cpu-16 .* gpu-lq$", shown, re.MULTILINE)


@needs_time
def test_after_the_uninstall_jobs_are_created_as_they_are_submitted(taken):
    _, created, deleted = (ran.output for ran in taken["Uninstall"].values())

    assert created == "job.batch/light-23 created\n"
    assert "fallbackpolicies.kueue-fallback.dev" in deleted
