"""What the observer tells the ledger about a Workload that has become visible."""

from __future__ import annotations

from typing import NamedTuple

BY_NAME = "job:"


class Seen(NamedTuple):
    """One Workload; with what a Job without a decision, and even without a name, is known by."""

    key: str
    """The decision's id, or ``job:<namespace>/<name>``."""
    namespace: str = ""
    job_name: str = ""
    local_queue: str = ""
