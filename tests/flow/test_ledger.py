from dataclasses import replace

from webhook.flow.ledger import LEAST_UNSEEN, MOST_UNSEEN, Ledger
from webhook.model.queues import Arrival
from webhook.state.workload import SeenWorkload


def arrival(key, *, queue="gpu-lq", **rest):
    return Arrival(key=key, namespace="team", local_queue=queue, needs=(), **rest)


def ledger_with(*keys):
    ledger = Ledger(ttl_seconds=30.0)
    for key in keys:
        ledger.enter(arrival(key), now=0.0)
    return ledger


def seen_job(name, *, queue="gpu-lq"):
    return SeenWorkload(f"job:team/{name}", "team", name, queue)


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

    ledger.seen([SeenWorkload("d1", "team", "other", "gpu-lq"), seen_job("train")])

    assert ledger.entries() == ()


def test_a_placement_whose_workload_never_comes_leaves_after_its_time():
    ledger = ledger_with("d1")

    assert ledger.expire(29.9) == ()
    assert ledger.expire(30.0) == (arrival("d1"),)
    assert ledger.entries() == ()


def test_with_a_healthy_watch_it_leaves_within_seconds():
    ledger = ledger_with("d1")

    assert ledger.expire(4.9, healthy=True) == ()
    assert ledger.expire(29.9) == ()
    assert ledger.expire(5.0, healthy=True) == (arrival("d1"),)


def test_it_waits_longer_while_others_are_slow_to_come_and_never_longer_than_its_time():
    ledger = ledger_with("d1", "d2", "d3")
    ledger.seen([SeenWorkload("d1")], now=3.0)

    assert ledger.expire(11.9, healthy=True) == ()
    assert ledger.expire(12.0, healthy=True) == (arrival("d2"), arrival("d3"))

    ledger.enter(arrival("d4"), now=20.0)
    ledger.enter(arrival("d5"), now=20.0)
    ledger.seen([SeenWorkload("d4")], now=40.0)
    assert ledger.expire(49.9, healthy=True) == ()
    assert ledger.expire(50.0, healthy=True) == (arrival("d5"),)


def test_how_slow_others_were_is_forgotten_with_those_that_were_quick():
    ledger = ledger_with("d1")
    ledger.seen([SeenWorkload("d1")], now=3.0)
    for number in range(50):
        ledger.enter(arrival(f"quick-{number}"), now=10.0)
        ledger.seen([SeenWorkload(f"quick-{number}")], now=10.0)
    ledger.enter(arrival("d2"), now=10.0)

    assert ledger.expire(15.0, healthy=True) == (arrival("d2"),)


def test_a_burst_of_one_namespace_counts_up_to_a_bound_and_others_are_not_affected():
    ledger = ledger_with(*(f"d{number}" for number in range(MOST_UNSEEN)))
    other = replace(arrival("other"), namespace="others")

    assert ledger.room(arrival("more")) == 0
    assert ledger.room(arrival("d1"))
    assert ledger.room(other)

    ledger.seen([SeenWorkload("d1")])
    assert ledger.room(arrival("more"))


def test_a_namespace_whose_placements_come_to_nothing_has_little_room_until_some_are_seen():
    ledger = ledger_with(*(f"d{number}" for number in range(40)))
    ledger.expire(5.0, healthy=True)
    for number in range(LEAST_UNSEEN):
        assert ledger.room(arrival("more"))
        ledger.enter(arrival(f"next-{number}"), now=6.0)
    assert ledger.room(arrival("more")) == 0

    ledger.seen([SeenWorkload(f"next-{number}") for number in range(4)], now=6.0)
    room = 0
    while ledger.room(arrival("more")):
        ledger.enter(arrival(f"again-{room}"), now=6.0)
        room += 1
    assert room == 4 * 8 - 4


def test_of_one_object_with_very_many_workloads_only_so_many_count():
    ledger = ledger_with()
    huge = arrival("huge", count=1_000_000_000)
    first = ledger.room(huge)
    ledger.enter(replace(huge, count=first - 1), now=0.0)

    assert (first, ledger.room(arrival("more", count=7))) == (MOST_UNSEEN, 1)
    assert ledger.room(huge) == MOST_UNSEEN  # in its own place

    ledger.seen([SeenWorkload("huge")])
    assert ledger.room(huge) == MOST_UNSEEN


def test_what_another_peer_asks_about_takes_no_room_whether_it_comes_to_something_or_not():
    ledger = Ledger(ttl_seconds=30.0)
    for number in range(MOST_UNSEEN):
        ledger.enter(arrival(f"phantom-{number}"), now=0.0, peer="10.0.0.9")

    while_they_count = ledger.room(arrival("more", count=MOST_UNSEEN), "10.0.0.1")
    ledger.expire(now=6.0, healthy=True)
    afterwards = [
        ledger.room(arrival("more", count=MOST_UNSEEN), peer) for peer in ("10.0.0.1", "10.0.0.9")
    ]

    assert while_they_count == MOST_UNSEEN
    assert afterwards == [MOST_UNSEEN, LEAST_UNSEEN]


def test_a_silent_watch_takes_nobodys_room():
    ledger = ledger_with(*(f"d{number}" for number in range(40)))
    ledger.expire(30.0)
    for number in range(MOST_UNSEEN - 1):
        ledger.enter(arrival(f"next-{number}"), now=31.0)

    assert ledger.room(arrival("more"))


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
            SeenWorkload("d9", "team", "train-x7k2p", "gpu-lq"),
            SeenWorkload("job:other/train-x7k2p", "other", "train-x7k2p", "gpu-lq"),
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


def test_a_workload_claims_only_placements_of_jobs_of_its_own_kind():
    ledger = ledger_with("gen:team/rayjob/sd-/u1", "gen:team/sd-/u2")

    ledger.seen([SeenWorkload("job:team/rayjob/sd-x7k2p", "team", "rayjob/sd-x7k2p", "gpu-lq")])

    assert [entry.key for entry in ledger.entries()] == ["gen:team/sd-/u2"]
