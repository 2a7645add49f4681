"""The journal as the controller's client reads it, and the record as it writes it."""

from types import SimpleNamespace

from tests.commands.apiserver import serving
from tests.hindsight.journal_server import OURS, STATIC, UNIX, Server, world
from webhook.api.client import Client
from webhook.api.kubernetes_api import NotServed
from webhook.api.resources import SAVINGS
from webhook.controller import savings_publisher
from webhook.controller.savings_publisher import SavingsPublisher
from webhook.hindsight.savings_record import read_savings
from webhook.model.policy.fallback_policy import Mode
from webhook.state.run_records_reader import path_of


def test_the_journal_is_read_object_by_object_and_what_was_saved_is_written(tmp_path, monkeypatch):
    server, asked = Server(STATIC), []
    clock = SimpleNamespace(time=lambda: UNIX, sleep=lambda _: None)
    monkeypatch.setattr(savings_publisher, "time", clock)

    def answer(method, url, body):
        path = url.partition("?")[0]
        if path == "/apis/kueue.x-k8s.io":
            versions = [{"groupVersion": "kueue.x-k8s.io/v1beta1", "version": "v1beta1"}]
            return 200, [], {"kind": "APIGroup", "name": "kueue.x-k8s.io", "versions": versions}
        asked.append((method, path.rpartition("/")[2].rstrip("0123456789")))
        calls = {"GET": server.get, "PATCH": server.patch, "POST": server.post}
        try:
            found = calls[method](path, *([] if body is None else [body]))
        except NotServed:
            return 404, [], {"kind": "Status", "message": "not found"}
        return 200, [], {"metadata": {}, **found}

    with serving(answer, tmp_path) as kubeconfig:
        publisher = SavingsPublisher(
            Client(kubeconfig), OURS, is_leader=lambda: True, survive=None, log=print
        )
        assert publisher.publish(world(Mode.OBSERVE))

    found = read_savings(server.held[f"{path_of(OURS)}/{SAVINGS}"])
    assert len(found.decisions) == 30
    assert set(asked) == {
        ("GET", "kueue-fallback-journal-"),
        ("GET", "workloads"),
        ("PATCH", SAVINGS),
        ("POST", "configmaps"),
    }
