"""In which order those are served who wait."""

from webhook.server.worker import TurnsByPeer


def served(turns):
    return [turns.popleft() for _ in range(len(turns))]


def test_each_peer_has_one_turn_before_any_has_its_next():
    turns = TurnsByPeer()
    for waiting in ("a1", "a2", "a3", "b1", "c1", "c2"):
        turns.append(waiting[0], waiting)

    assert served(turns) == ["a1", "b1", "c1", "a2", "c2", "a3"]


def test_who_comes_later_waits_for_one_of_each_peer_at_most():
    turns = TurnsByPeer()
    for number in range(100):
        turns.append("busy", f"busy-{number}")
    first = turns.popleft()
    turns.append("other", "other")

    assert [first, *served(turns)[:3]] == ["busy-0", "busy-1", "other", "busy-2"]


def test_nobody_waits_once_all_are_served():
    turns = TurnsByPeer()
    turns.append("a", "a1")

    assert (len(turns), served(turns), len(turns)) == (1, ["a1"], 0)
