"""Workloads that are over, and when they were admitted."""

from tests.state.objects import condition, reserving

ADMITTED = {**condition("Admitted"), "lastTransitionTime": "2026-11-21T06:00:10Z"}


def finished(reason="Succeeded", *, at="2026-11-21T06:01:20Z"):
    return {**condition("Finished", reason=reason), "lastTransitionTime": at}


def ran(*conditions, **rest):
    source = reserving(also=conditions, **rest)
    source["metadata"]["uid"] = "fe8d536c-990b-49e4-988b-8cf1fe1d7f19"
    return source
