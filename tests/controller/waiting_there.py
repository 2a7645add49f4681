"""A worker cluster in which Workloads wait behind one that has just begun."""

from tests.builders import policy
from tests.state.objects import PENDING, named, reserving, state_with, workload
from webhook.api import resources as kinds
from webhook.state import forecast_input
from webhook.state.snapshot import updated

NOW = 1795240800.0
"""2026-11-21T06:00:00Z"""
BEGAN = "2026-11-21T06:00:00Z"


def state_of(*names, guest=("light-gpu", "gpu"), cpu="4"):
    """A cluster where one Workload of 100 s has just begun on all CPUs, and these wait."""
    admitted = {"type": "Admitted", "status": "True", "lastTransitionTime": BEGAN}
    running = reserving("running", job="running", guest=guest, also=(admitted,))
    waiting = [
        workload(name, job=name, guest=guest, conditions=(PENDING,), created=BEGAN)
        for name in names
    ]
    state = state_with(running, *waiting, cpu=cpu)
    state.replace(kinds.FLAVORS, [named("ResourceFlavor", "a100", spec={})])
    return state


def snapshot_of(state):
    by_finish = policy(strategy={"finishTime": {"runTime": "100s"}})
    known = updated(state.snapshot(0.0, NOW), policies=(by_finish,))
    return forecast_input.with_forecasts(state, known, NOW)
