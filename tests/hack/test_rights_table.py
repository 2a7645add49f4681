"""docs/security.md names every right that the chart gives to an account, and what it is for."""

import pytest

from hack import rights_table

CONTROLLER = "kueue-fallback-controller"


@pytest.fixture(scope="module")
def found():
    return rights_table.by_condition()


def test_the_page_is_what_the_chart_gives(found):
    written = rights_table.TARGET.read_text()

    assert rights_table.table(found) in written, "run python -m hack.rights_table"


def test_each_right_says_what_it_is_for(found):
    silent = [(right.account, right.resources) for right in found if not right.why]

    assert silent == [], "write a comment above the rule in helm/templates"


@pytest.mark.parametrize(
    ("resource", "verb", "where"),
    [
        ("jobs", "patch", "everywhere"),
        ("workloads", "patch", "everywhere"),
        ("events", "create", "everywhere"),
        ("configmaps", "get", "the release's namespace"),
    ],
)
def test_what_the_controller_may_write_is_there(found, resource, verb, where):
    rows = {
        (right.account, each, verb, right.where)
        for right in found
        for each in right.resources
        for verb in right.verbs
    }

    assert (CONTROLLER, resource, verb, where) in rows


def test_a_right_that_comes_with_a_value_says_so(found):
    conditions = {right.resources: text for right, text in found.items()}

    assert conditions["tokenreviews",] == "only with `console.expose=true`"
    assert set(found.values()) >= {
        "",
        "not with `certificates.mode=certManager`",
        "only with `clusters.watchWorkers={name}`",
    }


def test_nobody_reads_pods_unless_it_is_wanted_or_changes_rights(found):
    wanted = (
        "only with `kinds={Job,Pod}`",
        "only with `accelerators.fragmentationMinutes=10`",
    )
    about = {
        (right.group, each.partition("/")[0])
        for right, condition in found.items()
        for each in right.resources
        if condition not in wanted
    }

    assert ("", "pods") not in about
    assert "rbac.authorization.k8s.io" not in {group for group, _ in about}
