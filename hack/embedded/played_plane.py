"""A control plane in one Python process: an embedded API server, a played Kueue, Jobs that run."""

from typing import Final

from hack.api import Object
from hack.embedded.control_loop import ControlLoop
from hack.embedded.plane import EmbeddedPlane
from hack.embedded.played_jobs import PlayedJobs
from hack.embedded.played_kueue import PlayedKueue, submitted

KUEUE_WEBHOOKS: Final = "kueue-mutating-webhook-configuration"


class PlayedPlane(EmbeddedPlane):
    """Queues are served in it, and Jobs run; `up`, then `down`."""

    _loop: ControlLoop | None = None

    def up(self) -> None:
        super().up()
        self.embedded.admission.played[KUEUE_WEBHOOKS] = _submitted
        self._loop = ControlLoop(self.kubeconfig, PlayedKueue, PlayedJobs)
        self._loop.start()

    def down(self) -> None:
        if self._loop is not None:
            self._loop.stop()
        super().down()


def _submitted(asked: Object) -> Object | None:
    """Admit a new Job as Kueue's webhook does."""
    is_new_job = asked["operation"] == "CREATE" and asked["kind"]["kind"] == "Job"
    return submitted(asked["object"]) if is_new_job else None
