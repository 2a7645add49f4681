"""Workloads that wait for a worker cluster."""

from tests.state.objects import RESERVED, condition, reserving

NOON = 1_795_262_400
"""2026-11-21T12:00:00Z, in seconds since 1970."""


def moment(condition_, time):
    return {**condition_, "lastTransitionTime": f"2026-11-21T{time}Z"}


def sent(name, reserved, admitted=None, **rest):
    also = (moment(condition("Admitted"), admitted),) if admitted else ()
    source = reserving(name, also=also, **rest)
    source["status"]["conditions"][0] = moment(RESERVED, reserved)
    source["status"]["admissionChecks"] = [{"name": "gpu-clusters"}]
    source["metadata"]["uid"] = name
    return source
