"""The journal as the process that looks back reads it, and the record as the controller writes."""

from functools import partial
from types import SimpleNamespace

from tests.commands.apiserver import serving
from tests.hindsight.journal_server import OURS, STATIC, UNIX, Server, answering, world
from webhook.api.client import Client
from webhook.api.resources import SAVINGS
from webhook.controller import look_back_process, savings_publisher
from webhook.controller.savings_publisher import SavingsPublisher
from webhook.hindsight.savings_record import read_savings
from webhook.model.faults import Failures
from webhook.model.policy.fallback_policy import Mode
from webhook.state.run_records_reader import path_of


def test_the_journal_is_read_object_by_object_and_what_was_saved_is_written(tmp_path, monkeypatch):
    server, asked = Server(STATIC), []
    monkeypatch.setattr(savings_publisher, "time", SimpleNamespace(time=lambda: UNIX))

    with serving(answering(server, asked), tmp_path) as kubeconfig:
        publisher = SavingsPublisher(
            Client(kubeconfig),
            OURS,
            is_leader=lambda: True,
            failures=Failures(print),
            look_back=partial(look_back_process.run, str(kubeconfig)),
            journal_version=lambda: 0,
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
