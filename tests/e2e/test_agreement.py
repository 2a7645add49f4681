"""Agreement with Kueue: what we say starts now is what Kueue gives quota at once, and the same.

A disagreement prints its seed; ``AGREEMENT_SEEDS=17,40-45`` runs those cases alone.
"""

from __future__ import annotations

import os

import pytest
import yaml

from tests.e2e.agreement import case_of_a_strict_head, make_case, make_topology_case, seeds
from tests.e2e.comparing import compare, compare_all, disagreements

CASES = 25
"""About a minute on two cores; `make verify` compares 300."""
TOPOLOGIES = 6
"""Some seconds; `make verify` compares 200."""
AGAIN = "AGREEMENT_SEEDS={} pytest tests/e2e/test_agreement.py"
OF_TOPOLOGIES = "AGREEMENT_TOPOLOGIES={} pytest tests/e2e/test_agreement.py -k domains"


@pytest.mark.timeout(3600)
def test_what_starts_now_is_what_kueue_gives_quota_at_once(plane, tmp_path):
    found = compare_all(plane.client, map(make_case, seeds(CASES)), tmp_path, again=AGAIN)

    if not os.environ.get("AGREEMENT_SEEDS"):
        assert len(found) > CASES
    assert [str(item) for item in disagreements(found)] == []


@pytest.mark.timeout(3600)
def test_a_gang_starts_now_where_kueue_finds_domains_for_it(plane, tmp_path):
    wanted = seeds(TOPOLOGIES, "AGREEMENT_TOPOLOGIES")

    found = compare_all(
        plane.client, map(make_topology_case, wanted), tmp_path, again=OF_TOPOLOGIES
    )

    certain = [item for item in found if not item.excused]
    elsewhere = [item for item in certain if item.is_elsewhere]
    print(f"{len(certain)} of {len(found)} without uncertain: topology")
    print(f"{len(elsewhere)} of them in other domains: {[str(item) for item in elsewhere]}")
    assert len(certain) > len(wanted)
    assert [str(item) for item in disagreements(found)] == []


def test_quota_set_aside_for_a_strict_head_is_given_to_nobody_else(plane):
    found = compare(plane.client, case_of_a_strict_head())

    assert [(item.predicted, item.reserved) for item in found] == [
        (True, True),
        (False, False),
        (False, False),
        (True, True),
    ]


@pytest.mark.parametrize("seed", [7, 300])
def test_a_seed_makes_the_same_case_again(seed):
    assert yaml.safe_dump(make_case(seed).manifests()) == yaml.safe_dump(
        make_case(seed).manifests()
    )
