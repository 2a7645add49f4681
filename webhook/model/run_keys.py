"""Names of what run times are kept by: a class of Jobs, or all classes of a ClusterQueue."""

from __future__ import annotations

from typing import NamedTuple

IN_CLUSTER = "@"
"""No name of a ResourceFlavor has it."""


def of_queue(cluster_queue: str, home: str) -> str:
    """Name what stands for all classes of one home in a ClusterQueue where one is looked up."""
    return f"{IN_CLUSTER}{cluster_queue}/{home}"


def is_of_queue(key: str) -> bool:
    """Tell whether all classes of a ClusterQueue are meant, and not one."""
    return key.startswith(IN_CLUSTER)


def home_of(key: str) -> str:
    """Name whose Jobs a record is of: the home of its class, or of all classes."""
    home, _, rest = key.partition("/")
    return rest if is_of_queue(key) else home


class JobClass(NamedTuple):
    key: str
    """The class: its home, a slash, and a digest, or ``label=value`` by the label that a policy
    names."""
    coarse: str
    """The wider class that differs from Job to Job in numbers among the arguments alone."""

    def at(self, home: str) -> JobClass:
        """Give the class that was told without its home that home."""
        return JobClass(key=f"{home}/{self.key}", coarse=f"{home}/{self.coarse}")
