"""A review finds its kind of Job in the one table."""

from tests.reviews import light_job
from tests.servers import Server, paper_snapshot
from webhook.jobs import KINDS

GROUP = "batch.example.com"
KIND = {"group": GROUP, "version": "v1", "kind": "Job"}
OPTION = "kueue-fallback.dev/option"


def test_a_kind_that_is_put_into_the_table_is_decided(monkeypatch):
    server = Server(paper_snapshot())
    before, _ = server.create(light_job(), kind=KIND)
    monkeypatch.setitem(KINDS, (GROUP, "v1", "Job"), KINDS["batch", "v1", "Job"])

    after, _ = server.create(light_job(), kind=KIND)

    assert [OPTION in job["metadata"]["labels"] for job in (before, after)] == [False, True]
