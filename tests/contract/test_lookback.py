"""The journal as the console's own client reads it from an API server."""

from tests.commands.apiserver import serving
from tests.console.journal_server import OURS, STATIC, UNIX, Server, world
from webhook.api.client import Client
from webhook.api.errors import NotServed
from webhook.console.lookback import Looker
from webhook.model.policy.fallback_policy import Mode


def test_the_journal_is_read_object_by_object_and_workloads_are_listed(tmp_path):
    server, asked = Server(STATIC), []

    def answer(method, url, _):
        path = url.partition("?")[0]
        if path == "/apis/kueue.x-k8s.io":
            versions = [{"groupVersion": "kueue.x-k8s.io/v1beta1", "version": "v1beta1"}]
            return 200, [], {"kind": "APIGroup", "name": "kueue.x-k8s.io", "versions": versions}
        asked.append((method, path.rpartition("/")[2].rstrip("0123456789")))
        try:
            return 200, [], {"metadata": {}, **server.get(path)}
        except NotServed:
            return 404, [], {"kind": "Status", "message": "not found"}

    with serving(answer, tmp_path) as kubeconfig:
        said = []
        looker = Looker(
            lambda: Client(kubeconfig), OURS, said.append, unix=lambda: UNIX, sleep=lambda _: None
        )
        looker.step(world(Mode.OBSERVE))
        found = looker.found(world(Mode.OBSERVE))

    assert (said, len(found.decisions)) == ([], 30)
    assert set(asked) == {("GET", "kueue-fallback-journal-"), ("GET", "workloads")}
