"""After a rollback: what a newer version decided is left as it is, and said to be."""

from tests.reviews import light_job
from tests.servers import Server, paper_snapshot

DECISION = "kueue-fallback.dev/decision"
OPTION = "kueue-fallback.dev/option"
NEWER = '{"version":2,"id":{"random":"a"},"original":["unknown"]}'
WARNING = (
    "kueue-fallback: left as it is: its decision is of a newer version (2) than this webhook can"
    " read"
)


def newer(name="newer", **annotations):
    return light_job(name, annotations={DECISION: NEWER, **annotations})


def test_a_manifest_with_a_newer_decision_is_left_and_counted():
    server = Server(paper_snapshot())

    job, warnings = server.create(newer())

    assert (job, warnings) == (newer(), [WARNING])
    assert server.handler.placements() == 1
    assert [str(each.outcome.skip) for each in server.considered] == ["decidedAlready"]


def test_a_reinvocation_counts_it_once():
    server = Server(paper_snapshot())

    server.create(newer())
    server.create(newer())

    assert server.handler.placements() == 1


def test_a_manifest_applied_again_is_left_to_the_api_server():
    server = Server(paper_snapshot())
    old = newer()
    old["metadata"]["labels"] |= {"kueue.x-k8s.io/queue-name": "cpu-lq", OPTION: "cpu"}

    job, warnings = server.update(old, newer())

    assert (job, warnings) == (newer(), [WARNING])


def test_taking_the_newer_decision_off_says_nothing():
    _, warnings = Server(paper_snapshot()).update(newer(), light_job("newer"))

    assert warnings == []
