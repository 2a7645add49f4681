"""Runs and records for tests; what is left out is small and unremarkable."""

from webhook.learn.run_records import Began, Ended, Run

DAY = 86_400


def ended(key="k", finished=1000, *, seconds=60, uid=1, succeeded=True, **rest):
    given = {"coarse": "~c", "name": "trainer", "flavors": "t4", **rest}
    return Ended(key=key, run=Run(finished, uid, seconds), succeeded=succeeded, **given)


def failure(finished, *, option="cpu", generation=1, **rest):
    where = {"policy": "light-gpu", "option": option, "generation": generation, "flavors": "plain"}
    return ended(finished=finished, succeeded=False, **where, **rest)


def success(finished, *, option="gpu", generation=1, policy="light-gpu", **rest):
    return ended(finished=finished, policy=policy, option=option, generation=generation, **rest)


def began(*, admitted=100, ready=0, reserved=0, uid=1, **rest):
    given = {"cluster_queue": "gpu-cq", "flavors": "t4", "cluster": "", **rest}
    return Began(uid=uid, reserved=reserved, admitted=admitted, ready=ready, **given)
