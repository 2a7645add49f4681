"""For every Job and adaptation: a warning where something changed, and it is short."""

import json
from copy import deepcopy
from math import inf

from hypothesis import given
from hypothesis import strategies as st

from tests.flow.moves import plain
from tests.properties.decisions import decided, submitted, world
from tests.properties.jobs import adaptations, jobs
from webhook.decide import warning
from webhook.decide.warning import Differences
from webhook.jobs import BY_NAME
from webhook.model.decision import Assessment, Decision, Rejection
from webhook.model.forecasts import Forecast, Start
from webhook.model.job import DECISION, OURS, Job
from webhook.model.policy.fallback_policy import Mode
from webhook.model.reasons import Reason


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


NAMES = st.one_of(st.text(max_size=300), st.from_regex(r"[a-z]{1,253}", fullmatch=True))
SECONDS = st.one_of(st.none(), st.just(inf), st.floats(0, 1e7))
DIFFERENCES = st.builds(
    Differences,
    queue=st.booleans(),
    **{name: st.lists(NAMES, max_size=4).map(tuple) for name in ("lost", "gained", "others")},
)


@st.composite
def assessments(draw):
    start = Start(seconds=draw(st.floats(0, 1e7)), low=0.0, high=inf)
    detail = Rejection(reason=Reason.UNSUPPORTED, detail=draw(NAMES))
    return Assessment(
        option=draw(NAMES),
        queue=draw(NAMES),
        cluster=draw(st.one_of(st.just(""), NAMES)),
        starts_now=draw(st.booleans()),
        pending=draw(st.one_of(st.none(), st.integers(0, 10**6))),
        reserving=draw(st.one_of(st.none(), st.integers(0, 10**6))),
        rejection=draw(st.sampled_from([None, detail])),
        forecast=draw(st.sampled_from([None, Forecast(start=start, finish=draw(SECONDS))])),
    )


@given(st.lists(assessments(), min_size=1, max_size=3), DIFFERENCES, NAMES, NAMES, st.data())
def test_whatever_a_decision_says_its_warnings_are_short_lines_of_ascii(
    options, differences, left, reason, data
):
    decision = Decision(
        id="a",
        time="",
        policy="any",
        mode=data.draw(st.sampled_from([Mode.ADVISE, Mode.ENFORCE])),
        option=options[0].option,
        left_alone=None,
        reason=reason,
        from_queue=left,
        state_age_seconds=0.0,
        options=tuple(options),
    )

    kind = data.draw(st.sampled_from(list(BY_NAME.values())))
    job = Job(namespace=data.draw(NAMES), name=data.draw(NAMES))
    found = warning.decided(decision, differences, submitted=left, kind=kind, job=job)

    assert bool(found) == bool(differences.names)
    moved = warning.moved(options[0], differences, left=left, kind=kind, job=job)
    said = [*found, *moved, *warning.sentence(reason)]
    for text in (*said, *warning.refused(left[:60], reason)):
        assert len(text) < 120
        assert text.isascii()
        assert text.isprintable()


def _essence(job):
    """Leave our marks out, and what an empty object is as good as."""
    found = deepcopy(job)
    template = found["spec"]["template"]
    for metadata in (found["metadata"], template.get("metadata", {})):
        for key in ("labels", "annotations"):
            texts = metadata.get(key) or {}
            metadata[key] = {k: v for k, v in texts.items() if not k.startswith(OURS)}
    return plain(found)
