"""What a soak makes of its samples."""

import pytest

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


FLAT, GROWING = (50, 90, 100, 101, 102, 103), (50, 60, 70, 80, 90, 100)
THREE = [sample(1.0)] * 3
WRONG = {**dict.fromkeys(soak.COUNTED, 0.0), "failures_total": 1.0}
UNDELETED = sample(1.0, deleted={"errors": {"deleting: timed out": 1}})


@pytest.mark.parametrize(
    ("found", "names"),
    [
        pytest.param(figures(*map(sample, FLAT)), [], id="fills up first and then stays"),
        pytest.param(
            figures(*map(sample, GROWING)),
            [f"memory of the {role}, last third to second" for role in ROLES],
            id="goes on growing",
        ),
        pytest.param(
            figures(*THREE, rest=UNDELETED), ["creates and deletes that failed"], id="errors"
        ),
        pytest.param(
            figures(*[sample(1.0, notes={"decided": 2999})] * 3),
            ["creates without a decision"],
            id="without a decision",
        ),
        pytest.param(
            figures(*[sample(1.0, seconds=80.0)] * 3), ["creates a second"], id="cannot keep up"
        ),
        pytest.param(
            figures(*THREE, counted=WRONG, observerRestarts=1.0),
            ["restarts of the observer", "failures_total"],
            id="counted as wrong",
        ),
    ],
)
def test_each_target_is_missed_by_what_misses_it(found, names):
    assert [target.name for target in soak.targets(found) if not target.is_met] == names
