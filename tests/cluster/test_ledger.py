from webhook.cluster.ledger import Ledger
from webhook.cluster.seen import Seen
from webhook.model.queues import Arrival


def arrival(key, *, queue="gpu-lq", **rest):
    return Arrival(key=key, namespace="team", local_queue=queue, needs=(), **rest)


def ledger_with(*keys):
    ledger = Ledger(ttl_seconds=30.0)
    for key in keys:
        ledger.enter(arrival(key), now=0.0)
    return ledger


def seen_job(name, *, queue="gpu-lq"):
    return Seen(f"job:team/{name}", "team", name, queue)


def keys(ledger):
    return [entry.key for entry in ledger.entries()]


def test_placements_are_listed_oldest_first():
    ledger = ledger_with("d1", "d2")

    assert ledger.entries() == (arrival("d1"), arrival("d2"))
    assert ledger.knows("d1")
    assert not ledger.knows("d3")


def test_the_same_key_replaces_and_lives_anew():
    ledger = ledger_with("d1", "d2")

    ledger.enter(arrival("d1", option="cpu"), now=20.0)
    gone = ledger.expire(30.0)

    assert gone == (arrival("d2"),)
    assert ledger.entries() == (arrival("d1", option="cpu"),)


def test_a_placement_leaves_when_its_workload_is_seen():
    ledger = ledger_with("d1", "job:team/train")

    ledger.seen([Seen("d1", "team", "other", "gpu-lq"), seen_job("train")])

    assert ledger.entries() == ()


def test_a_placement_whose_workload_never_comes_leaves_after_its_time():
    ledger = ledger_with("d1")

    assert ledger.expire(29.9) == ()
    assert ledger.expire(30.0) == (arrival("d1"),)
    assert ledger.entries() == ()


def test_a_workload_claims_the_oldest_unnamed_placement_that_may_be_its_own():
    ledger = ledger_with("gen:team/train-/1", "gen:team/train-/2", "gen:team/other-/3")

    ledger.seen([seen_job("train-x7k2p")])

    assert keys(ledger) == ["gen:team/train-/2", "gen:team/other-/3"]


def test_it_claims_once_however_often_it_is_told_of():
    ledger = ledger_with("gen:team/train-/1", "gen:team/train-/2")

    ledger.seen([seen_job("train-x7k2p")])
    ledger.seen([seen_job("train-x7k2p")])

    assert keys(ledger) == ["gen:team/train-/2"]


def test_a_workload_seen_before_an_unnamed_placement_does_not_claim_it_later():
    ledger = Ledger(ttl_seconds=30.0)
    ledger.seen([seen_job("train-x7k2p")])

    ledger.enter(arrival("gen:team/train-/1"), now=1.0)
    ledger.seen([seen_job("train-x7k2p")])

    assert keys(ledger) == ["gen:team/train-/1"]


def test_what_cannot_be_its_workload_does_not_claim_an_unnamed_placement():
    ledger = ledger_with("gen:team/train-/1")

    ledger.seen(
        [
            seen_job("train-x7k2p", queue="cpu-lq"),
            seen_job("train-long-x7k2p"),
            seen_job("other-x7k2p"),
            Seen("d9", "team", "train-x7k2p", "gpu-lq"),
            Seen("job:other/train-x7k2p", "other", "train-x7k2p", "gpu-lq"),
        ]
    )

    assert keys(ledger) == ["gen:team/train-/1"]


def test_a_long_generate_name_is_cut_as_the_api_server_cuts_it():
    base = "a" * 62
    ledger = ledger_with(f"gen:team/{base}/1")

    ledger.seen([seen_job("a" * 58 + "x7k2p")])

    assert ledger.entries() == ()


def test_names_are_forgotten_in_the_end():
    ledger = Ledger(ttl_seconds=30.0)
    ledger.seen([seen_job("train-x7k2p")])
    ledger.expire(10_000.0)

    ledger.enter(arrival("gen:team/train-/1"), now=10_001.0)
    ledger.seen([seen_job("train-x7k2p")])

    assert ledger.entries() == ()


def test_its_length_is_the_number_of_placements():
    ledger = Ledger(ttl_seconds=30.0)
    ledger.enter(arrival("a"), 0.0)
    ledger.enter(arrival("b"), 1.0)

    assert len(ledger) == 2
