"""What a soak makes of its samples."""

from bench import soak

ROLES = ("server", "observer", "controller")


def sample(memory, **changed):
    return {
        "calls": 3000,
        "seconds": 60.0,
        "errors": {},
        "notes": {"decided": 3000},
        "deleted": {"errors": {}},
        "memoryMegabytes": dict.fromkeys(ROLES, memory),
        **changed,
    }


def figures(*samples, rest=None, **changed):
    counted = dict.fromkeys(soak.COUNTED, 0.0)
    more = {"counted": counted, "observerRestarts": 0.0, "rate": 50.0, **changed}
    return {"samples": list(samples), "rest": rest or sample(1.0), **more}


def missed(found):
    return [target.name for target in soak.targets(found) if not target.is_met]


def test_memory_that_fills_up_first_and_then_stays_is_flat():
    found = figures(*(sample(memory) for memory in (50, 90, 100, 101, 102, 103)))

    assert soak.growths(found["samples"]) == dict.fromkeys(ROLES, 1.02)
    assert missed(found) == []


def test_memory_that_goes_on_growing_is_not():
    found = figures(*(sample(memory) for memory in (50, 60, 70, 80, 90, 100)))

    assert missed(found) == [f"memory of the {role}, last third to second" for role in ROLES]


def test_errors_of_creates_and_deletes_are_counted_to_the_end():
    rest = sample(1.0, deleted={"errors": {"deleting: timed out": 1}})
    found = figures(sample(1.0), sample(1.0, errors={"timed out": 2}), sample(1.0), rest=rest)

    assert missed(found) == ["creates and deletes that failed"]


def test_a_create_without_a_decision_is_missed():
    found = figures(*(sample(1.0, notes={"decided": 2999}) for _ in range(3)))

    assert missed(found) == ["creates without a decision"]


def test_a_control_plane_that_cannot_keep_up_is_said():
    found = figures(*(sample(1.0, seconds=80.0) for _ in range(3)))

    assert missed(found) == ["creates a second"]


def test_what_the_webhook_counts_as_wrong_must_not_grow():
    counted = {**dict.fromkeys(soak.COUNTED, 0.0), "failures_total": 1.0}
    found = figures(*(sample(1.0) for _ in range(3)), counted=counted, observerRestarts=1.0)

    assert missed(found) == ["restarts of the observer", "failures_total"]
