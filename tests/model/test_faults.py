import pytest

from webhook.model import faults
from webhook.model.faults import Attention, Failures, Fault


@pytest.mark.parametrize(
    ("line", "level"), [("leads", "info"), (Attention("no"), "warning"), (Fault("ended"), "error")]
)
def test_a_line_has_the_level_of_what_it_asks_for(line, level):
    written = faults.logged("observer", line, 1.0004)

    assert written == {"ts": 1.0, "level": level, "process": "observer", "msg": str(line)}


def test_a_failure_that_nobody_expected_is_an_error():
    lines = []

    Failures(lines.append).survive("moves", lambda: 1 // 0)

    assert [line.level for line in lines] == ["error"]
