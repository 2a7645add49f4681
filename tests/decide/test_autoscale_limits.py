"""Which services of a policy are not autoscaled."""

import pytest

from tests.builders import policy
from webhook.decide import policy_limits

OFF = "spec.autoscale: nothing is autoscaled, as controller.autoscale is off in the chart"
NEVER = (
    "spec.match.kinds[1]: no StatefulSet is autoscaled, as Kueue lets its replicas change only "
    "from and to 0"
)


@pytest.mark.parametrize(
    ("given", "is_on", "want"),
    [({}, True, [NEVER]), ({}, False, [OFF, NEVER]), (None, False, [])],
    ids=["on", "off", "not wanted"],
)
def test_what_is_not_scaled_is_listed(given, is_on, want):
    found = policy(
        match={"kinds": ["Deployment", "StatefulSet"], "jobSelector": {}},
        strategy={"type": "Cost"},
        **({} if given is None else {"autoscale": given}),
    )

    assert [str(limit) for limit in policy_limits.of_autoscale(found, is_on=is_on)] == want
