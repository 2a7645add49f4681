"""For any Jobs: worker clusters change nothing that the quotas do not say."""

from hypothesis import given
from hypothesis import strategies as st

from tests.simulate import files
from tests.simulate.files import with_workers, worker
from webhook.simulate.replay import replay

SIZES = {"small": 1, "middle": 2, "big": 3}
COMING = st.lists(
    st.tuples(st.integers(0, 30), st.sampled_from(sorted(SIZES)), st.integers(0, 12)),
    min_size=1,
    max_size=12,
)


def replayed(source, coming):
    source["jobs"] = {
        name: {"job": files.job(cpu=str(cpu)), "runTimes": {"fast": {"times": 1}}}
        for name, cpu in SIZES.items()
    }
    source["arrivals"] = [
        {"at": f"{at}s", "job": name, "runTime": f"{seconds}s"} for at, name, seconds in coming
    ]
    scenario = files.read(source)
    return replay(scenario, *scenario.arms(["static"])).jobs


@given(COMING, st.integers(1, 4), st.sampled_from(["same", "more"]))
def test_one_worker_with_all_the_quota_is_as_one_cluster(coming, cpu, at_manager):
    alone = files.document()
    alone["cluster"]["objects"][2] = files.cluster_queue("fast", cpu=cpu)
    behind = with_workers(worker("a", cpu=cpu), cpu=cpu if at_manager == "same" else 1000)

    here, there = replayed(alone, coming), replayed(behind, coming)

    assert [(job.start, job.finish) for job in there] == [(job.start, job.finish) for job in here]
    assert {job.cluster for job in there if job.start is not None} <= {"a"}


@given(COMING, st.integers(1, 4), st.lists(st.integers(1, 4), min_size=1, max_size=3))
def test_quotas_are_never_exceeded_here_or_there(coming, cpu, cpus):
    workers = [worker(f"w{number}", cpu=each) for number, each in enumerate(cpus)]

    jobs = replayed(with_workers(*workers, cpu=cpu), coming)

    limits = {f"w{number}": each for number, each in enumerate(cpus)}
    ran = [job for job in jobs if job.finish is not None and job.finish > job.start]
    for moment in {job.start for job in ran}:
        running = [job for job in ran if job.start <= moment < job.finish]
        assert sum(SIZES[job.template] for job in running) <= cpu
        for name, limit in limits.items():
            used = sum(SIZES[job.template] for job in running if job.cluster == name)
            assert used <= limit
