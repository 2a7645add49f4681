"""Whatever features come together in a scenario, each Job runs once to its end, within quota."""

import json
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import THOROUGH
from tests.simulate import files
from tests.simulate.shipped import SCENARIOS
from webhook.simulate.replay import replay
from webhook.simulate.scenario import Arm
from webhook.state.kueue_config import read_kueue_config
from webhook.state.snapshot import updated

SOURCE = (SCENARIOS / "shared-gpus.yaml").read_text()
QUEUES = st.fixed_dictionaries(
    {},
    optional={
        "queueingStrategy": st.sampled_from(["StrictFIFO", "BestEffortFIFO"]),
        "fairSharing": st.sampled_from([{"weight": "0.5"}, {"weight": "2"}]),
    },
)
MOVES = st.fixed_dictionaries(
    {
        "after": st.sampled_from(["0s", "1s", "5s"]),
        "minimumGain": st.sampled_from([{"time": "0s", "percent": 0}, {"time": "9s"}]),
        "maxMoves": st.sampled_from([1, 10]),
    }
)
POLICIES = st.fixed_dictionaries({}, optional={"reconsider": MOVES})
OTHER = {"name": "other", "slowdown": 1.2}
"""The GPUs of the other team."""
GIVEN = st.fixed_dictionaries(
    {
        "gpus": st.sampled_from([2, 4]),
        "spread": st.sampled_from([0, 0.6]),
        "minimum-gain": st.sampled_from(["1s", "20s"]),
        "rate-a": st.sampled_from(["0.1/s", "0.5/s"]),
        "rate-b": st.sampled_from(["0.1/s", "0.5/s"]),
        "duration": st.just("40s"),
        "within": st.sampled_from(["Never", "LowerPriority", "LowerOrNewerEqualPriority"]),
        "reclaim": st.sampled_from(["Never", "LowerPriority", "Any"]),
    }
)


@st.composite
def scenarios(draw):
    document = yaml.safe_load(SOURCE)
    for source in document["cluster"]["objects"]:
        if source["metadata"]["name"] in ("gpu-a", "gpu-b") and source["kind"] == "ClusterQueue":
            source["spec"] |= draw(QUEUES)
    for source, other in zip(document["policies"]["objects"], ("gpu-b", "gpu-a"), strict=True):
        source["spec"] |= draw(POLICIES)
        if draw(st.booleans()):
            source["spec"]["options"].append({**OTHER, "queue": other})
    scenario = files.read(document, given=draw(GIVEN), seed=draw(st.integers(0, 99)))
    return scenario if draw(st.booleans()) else with_fair_sharing(scenario)


def with_fair_sharing(scenario):
    config = json.dumps({"kind": "Configuration", "fairSharing": {}})
    kueue = read_kueue_config({"metadata": {}, "data": {"config": config}})
    return replace(scenario, snapshot=updated(scenario.snapshot, kueue=kueue))


@settings(max_examples=max(10, THOROUGH // 15))
@given(scenarios())
def test_each_job_runs_once_to_its_end_and_all_of_them_within_quota(scenario):
    jobs = replay(scenario, Arm(name="all", policies=scenario.policies)).jobs

    for job in jobs:
        times = [job.arrival, *(at for lost in job.lost for at in lost[1:]), job.start, job.finish]
        assert all(before <= after for before, after in pairwise(times)), job
        assert len(job.lost) == job.preempted
    assert over(scenario, jobs) == []


def over(scenario, jobs):
    """Return the moments at which the last runs of Jobs hold more of a cell than there is."""
    nominal = Counter()
    for queue in scenario.snapshot.setup.cluster_queues.values():
        for group in queue.groups:
            nominal.update({cell: quota.nominal for cell, quota in group.quotas.items()})
    # What ends at a moment is free for what starts then.
    changes = [
        change
        for job in jobs
        for cell, amount in job.held.items()
        for change in ((job.start, 1, cell, amount), (job.finish, 0, cell, -amount))
    ]
    held, found = Counter(), []
    for at, _, cell, amount in sorted(changes):
        held[cell] += amount
        if held[cell] > nominal[cell]:
            found.append((at, cell, held[cell]))
    return found
