"""Learned run times."""

from webhook.model.forecasts import Basis, RunTime


def learned(seconds, runs=10, *, width=1.5):
    return RunTime(
        seconds=seconds, low=seconds / width, high=seconds * width, basis=Basis.LEARNED, runs=runs
    )
