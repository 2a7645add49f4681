import pytest

from webhook.commands.kubectl import read_query
from webhook.model.fields import FieldError

LABELS = {"team": "ml", "tier": "a", "app.kubernetes.io/name": "x"}


@pytest.mark.parametrize(
    ("query", "matches"),
    [
        ("", True),
        ("team=ml", True),
        ("team==ml,tier=a", True),
        ("team=ml,tier=b", False),
        ("team!=dev, env!=dev", True),
        ("team != ml", False),
        ("tier in (a, b)", True),
        ("tier in (c),team=ml", False),
        ("tier notin (c, d),team", True),
        ("env notin (a)", True),
        ("app.kubernetes.io/name=x", True),
        ("!env", True),
        ("!team", False),
        ("env", False),
    ],
)
def test_a_query_chooses_as_kubectls_does(query, matches):
    assert read_query(query).matches(LABELS) is matches


@pytest.mark.parametrize("query", ["a=b=c", "a in b", ",", "a b", "=x", "a in (b"])
def test_what_is_no_query_is_refused(query):
    with pytest.raises(FieldError, match="--selector: expected a label query such as team=ml"):
        read_query(query)
