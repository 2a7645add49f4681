"""An API server that holds a journal."""

from tests.controller.objects import Objects
from tests.hindsight import journals
from webhook.api.kubernetes_api import Forbidden, NotServed
from webhook.hindsight.journal import Slot, config_map, slot_of
from webhook.state.run_records_reader import path_of

OURS = "ours"


GIVEN = journals.scenario("burst")


STATIC = journals.entries(GIVEN, journals.happened(GIVEN, "static"))


UNIX = journals.BEGAN + 3000.0


def world(mode):
    """Return the queues and the policies of the journal's Jobs, in a mode."""
    return journals.world(GIVEN, "FinishTime", mode=mode).snapshot


class Server(Objects):
    """An API server with a journal, and Workloads that go on."""

    def __init__(self, entries, *running):
        super().__init__()
        self.running, self.refuses = running, False
        slot = Slot(number=slot_of(journals.BEGAN), entries={each.key: each for each in entries})
        if entries:
            self.post(path_of(OURS), config_map(slot))

    def kueue_version(self):
        return "v1beta2"

    def get(self, path, params=None):
        if self.refuses:
            raise Forbidden("configmaps", "you may not get configmaps")
        if path.endswith("/workloads"):
            return {"items": list(self.running)}
        return super().get(path)


def answering(server, asked=None):
    """Return the answers of this API server to calls over HTTP; notes them in the list *asked*."""

    def answer(method, url, body):
        path = url.partition("?")[0]
        if path == "/apis/kueue.x-k8s.io":
            versions = [{"groupVersion": "kueue.x-k8s.io/v1beta1", "version": "v1beta1"}]
            return 200, [], {"kind": "APIGroup", "name": "kueue.x-k8s.io", "versions": versions}
        if asked is not None:
            asked.append((method, path.rpartition("/")[2].rstrip("0123456789")))
        calls = {"GET": server.get, "PATCH": server.patch, "POST": server.post}
        try:
            found = calls[method](path, *([] if body is None else [body]))
        except NotServed:
            return 404, [], {"kind": "Status", "message": "not found"}
        except Forbidden as error:
            return 403, [], {"kind": "Status", "message": str(error)}
        return 200, [], {"metadata": {}, **found}

    return answer
