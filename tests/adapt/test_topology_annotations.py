"""What an option asks of a Topology, as annotations on the pods."""

import pytest

from tests.builders import container, job, policy, template
from webhook.adapt.adaptation import adapt

PREFIX = "kueue.x-k8s.io/podset-"
REQUIRED, PREFERRED = f"{PREFIX}required-topology", f"{PREFIX}preferred-topology"
ASKED = {REQUIRED: "block", f"{PREFIX}slice-size": "2", f"{PREFIX}group-name": "g", "note": "x"}


def asking(topology, before=None, count=4):
    option = policy({"name": "o", "queue": "q", "adaptation": {"topology": topology}}).spec.options
    pods = template(container(), annotations=before or {})
    return adapt(job(pods=pods, count=count), option[0]).pod_sets[0].template.annotations


@pytest.mark.parametrize(
    ("topology", "count", "want"),
    [
        ({"mode": "Required", "level": "rack"}, 4, {REQUIRED: "rack"}),
        ({"mode": "Preferred", "level": "rack"}, 4, {PREFERRED: "rack"}),
        ({"mode": "Unconstrained"}, 4, {f"{PREFIX}unconstrained-topology": "true"}),
        ({"mode": "Remove"}, 4, {}),
        # Without knowledge of the Nodes nothing is demanded that might never be there.
        ({"mode": "Auto", "level": "rack"}, 4, {PREFERRED: "rack"}),
        ({"mode": "Auto", "level": "rack"}, 1, {PREFERRED: "kubernetes.io/hostname"}),
    ],
)
def test_pods_ask_for_what_the_option_says_and_for_nothing_else(topology, count, want):
    assert asking(topology, ASKED, count) == {**want, "note": "x"}
    assert asking(topology, {}, count) == want


@pytest.mark.parametrize("topology", [{"mode": "Keep"}, {}])
def test_what_the_job_asks_for_is_kept_by_default(topology):
    assert asking(topology, ASKED) == ASKED
