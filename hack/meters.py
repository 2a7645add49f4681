"""What the bench reads off: histograms, quantiles, memory, and the handler on its own."""

import contextlib
import gc
import http.client
import math
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from hack import bodies, paper
from webhook.admission.review import read_review
from webhook.api.client import Client
from webhook.flow.create import Rules
from webhook.serving.handler import Handler
from webhook.serving.server_metrics import Metrics
from webhook.state.live_occupancy import OccupancyOfSnapshots
from webhook.state.pipe import Update, changes
from webhook.state.snapshot import Snapshot
from webhook.state.snapshot_file import fetch_snapshot

Quantiles = dict[str, float]
Buckets = dict[float, float]

_OBSERVER: Final = "webhook.observer"
_LOOKS_BACK: Final = "webhook.controller.look_back_process"
"""The controller's child, which lives for seconds: what a sample finds of it depends on when."""
ALONE: Final = 2000
WARM_UP: Final = 50
_BUCKET: Final = re.compile(
    r'kueue_fallback_review_seconds_bucket\{.*?le="([^"]+)".*?operation="CREATE".*?\} (\S+)'
)


def reviews(metrics_port: int) -> Buckets:
    """Scrape the histogram of CREATE reviews: upper bound in seconds to the count up to it."""
    found = _BUCKET.findall(scrape(metrics_port))
    return {float(bound): float(count) for bound, count in found}


class Counter:
    """Tells by how much a metric, summed over its labels, has grown since this was made."""

    def __init__(self, metrics_port: int, name: str) -> None:
        self._port = metrics_port
        self._line = re.compile(rf"^{name}(?:\{{.*\}})? (\S+)$", re.MULTILINE)
        self._before = self._sum()

    def grown(self) -> float:
        return self._sum() - self._before

    def _sum(self) -> float:
        return sum(map(float, self._line.findall(scrape(self._port))))


def scrape(metrics_port: int) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", metrics_port, timeout=30)
    with contextlib.closing(connection):
        connection.request("GET", "/metrics")
        return connection.getresponse().read().decode()


def difference(before: Buckets, after: Buckets) -> Quantiles:
    """Give the quantiles, in milliseconds, of what was counted between two scrapes."""
    counts = {bound: count - before.get(bound, 0.0) for bound, count in sorted(after.items())}
    total = max(counts.values())
    return {
        "p50": _quantile(counts, 0.5 * total),
        "p99": _quantile(counts, 0.99 * total),
        "within2ms": round(counts[0.002] / total, 5),
    }


def _quantile(counts: Mapping[float, float], rank: float) -> float:
    """Interpolate inside a bucket, as Prometheus does."""
    lower, below = 0.0, 0.0
    for bound, count in counts.items():
        if count >= rank:
            if math.isinf(bound):
                return lower * 1000
            share = (rank - below) / (count - below)
            return round((lower + (bound - lower) * share) * 1000, 3)
        lower, below = bound, count
    return lower * 1000


def quantiles(values: Sequence[float]) -> Quantiles:
    ranked = sorted(values)
    last = len(ranked) - 1
    return {
        "p50": round(ranked[last // 2], 3),
        "p99": round(ranked[math.ceil(last * 0.99)], 3),
        "max": round(ranked[-1], 3),
    }


def memory_megabytes(pid: int) -> dict[str, float]:
    """Read the proportional set size of a process and what it runs that stays, by what that is."""
    return {name: _pss(each) for name, each in _family(pid)}


def cpu_seconds(pid: int) -> dict[str, float]:
    """Read the CPU time that a process and its descendants have used: load does not change it."""
    ticks = os.sysconf("SC_CLK_TCK")
    found = {name: Path(f"/proc/{each}/stat").read_text() for name, each in _family(pid)}
    return {
        name: round(sum(map(int, text.rpartition(")")[2].split()[11:13])) / ticks, 2)
        for name, text in found.items()
    }


def is_observer(pid: int) -> bool:
    return _OBSERVER in _words(pid)


def _family(pid: int) -> Iterator[tuple[str, int]]:
    parents = dict(_parents())
    for each in sorted({pid, *parents}):
        above = each
        while above != pid and above in parents:
            above = parents[above]
        words = _words(each) if above == pid else ()
        if words and _LOOKS_BACK not in words:
            yield f"{_role(each, words)} (pid {each})", each


def _words(pid: int) -> Sequence[str]:
    """Read a command line; empty: the process has ended."""
    return tuple(_text(Path(f"/proc/{pid}/cmdline")).split("\0")[:-1])


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def _role(pid: int, words: Sequence[str]) -> str:
    if is_observer(pid):
        return "observer"
    return "controller" if "control" in words else "server"


def _parents() -> Iterator[tuple[int, int]]:
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            after_name = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        yield int(folder.name), int(after_name[1])


def _pss(pid: int) -> float:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    kilobytes = next(line.split()[1] for line in lines if line.startswith("Pss:"))
    return round(int(kilobytes) / 1024, 1)


def handler_alone(kubeconfig: str, names: paper.Names) -> dict[str, Quantiles]:
    """Decide in this process, on the live cluster's state: milliseconds of wall and of CPU."""
    now = time.monotonic()
    snapshot = OccupancyOfSnapshots()(fetch_snapshot(Client(kubeconfig), now=now, unix=time.time()))
    handler = Handler(Rules(), Metrics(), clock=lambda: now)
    changed = changes(Snapshot(), snapshot)
    handler.update(Update(changed=changed, as_of=now, synced=True))
    texts = [bodies.review(names, f"{n:012d}") for n in range(ALONE + WARM_UP)]
    given = [read_review(text.encode()) for text in texts]
    gc.freeze()
    wall, cpu = [], []
    for review in given:
        times = time.perf_counter(), time.thread_time()
        handler.admit(review)
        wall.append((time.perf_counter() - times[0]) * 1000)
        cpu.append((time.thread_time() - times[1]) * 1000)
    return {"wall": quantiles(wall[WARM_UP:]), "cpu": quantiles(cpu[WARM_UP:])}
