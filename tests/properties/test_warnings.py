"""For every Job and adaptation: a warning where something changed, and it is short."""

import json
from copy import deepcopy

from hypothesis import given

from tests.moves import plain
from tests.properties.jobs import adaptations, jobs
from tests.properties.test_flow import decided, submitted, world
from webhook.model.job import DECISION, OURS


@given(jobs(), adaptations())
def test_there_is_a_warning_where_something_changed_and_nowhere_else(source, adaptation):
    job = submitted(source)

    outcome, admitted = decided(job, world(adaptation))

    assert bool(outcome.warnings) == (_essence(admitted) != _essence(job))
    for text in outcome.warnings:
        assert len(text) < 120
        assert text.isascii()
        assert text.isprintable()
    if DECISION in admitted["metadata"].get("annotations", {}):
        noted = json.loads(admitted["metadata"]["annotations"][DECISION])
        assert bool(noted.get("changed")) == bool(outcome.warnings)


def _essence(job):
    """Leave our marks out, and what an empty object is as good as."""
    found = deepcopy(job)
    template = found["spec"]["template"]
    for metadata in (found["metadata"], template.get("metadata", {})):
        for key in ("labels", "annotations"):
            texts = metadata.get(key) or {}
            metadata[key] = {k: v for k, v in texts.items() if not k.startswith(OURS)}
    return plain(found)
