"""Jobs whose Workloads may have to be repaired, told by their metadata."""

import pytest

from tests.controller.moving import job as decided
from tests.controller.watched_jobs import entry, stored
from webhook.api.resources import WORKLOADS
from webhook.api.watch import WatchUpdate
from webhook.controller import followed_watches
from webhook.controller.followed_watches import FollowedWatches
from webhook.jobs import JOB
from webhook.model.signatures import SigningKey, SigningKeys, signed_words
from webhook.settings import Settings
from webhook.state.signing_keys import KeyRing
from webhook.state.snapshot import Snapshot

OURS = "kueue-fallback.dev/"
LEFT = "2026-11-21T06:00:00Z cpu-cq"
KEYS = SigningKeys(keys=(SigningKey(id="a", made=1, secret=b"s"),), signing="a", since=1)


def seen(job):
    """Return what is followed once a Job is known, while no policy reconsiders."""
    watches = FollowedWatches(Settings(), KeyRing())
    watches.take(WatchUpdate(kind="jobs", at=0.0, entries=(entry(stored("other")),)))
    watches.take(WatchUpdate(kind="jobs", at=1.0, event=("ADDED", entry(job))))
    return {resource.kind for resource, _ in watches.begun(Snapshot(), for_others=False)}


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        pytest.param(decided(1, moves=1), True, id="moved"),
        pytest.param(decided(1, moves=0), False, id="decided and never moved"),
        pytest.param(stored(annotations={OURS + "undone-from": LEFT}), True, id="moved and back"),
        pytest.param(stored(annotations={OURS + "undone": "x"}), False, id="it had never left"),
        pytest.param(stored(annotations={OURS + "decision": "{"}), False, id="not readable"),
    ],
)
def test_a_job_that_was_in_another_queue_while_it_waited_is_told_apart(job, expected):
    assert seen(job) == ({WORKLOADS, "pendingjobs"} if expected else set())


@pytest.mark.parametrize(
    ("text", "has_left"),
    [
        (signed_words(LEFT, "team", KEYS), True),
        (LEFT, False),
        (signed_words(LEFT, "other", KEYS), False),
        (signed_words(LEFT, "team", KEYS).replace("cpu", "gpu"), False),
    ],
    ids=["signed", "unsigned", "copied", "changed"],
)
def test_only_what_is_signed_makes_the_controller_follow_jobs(text, has_left):
    jobs = followed_watches.followed(JOB, lambda: KEYS)
    found = jobs.read(jobs.kind, stored(annotations={OURS + "undone-from": text}))

    assert found.value.has_left is has_left
