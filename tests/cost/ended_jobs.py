"""Jobs that have ended, as the journal has them, and prices by which they cost something."""

from tests.cost.tariffs import profile
from tests.hindsight.slots import expecting
from webhook.hindsight.journal import JournalEntry
from webhook.model.costs.prices import Prices, curve


def flat(value):
    return curve({0.0: value}, 1e12)


PRICES = {
    "": Prices(
        rates={("gpu", "nvidia.com/gpu"): flat(3.0)},
        electricity=flat(0.2),
        carbon=flat(400.0),
        devices={"gpu": profile(flavors=["gpu"], watts={"maximum": 400, "busy": 300}).device},
    )
}
LABELS = {"kueue.x-k8s.io/queue-name": "h100-lq"}
EXPECTED = {"money": 5.0, "electricity": 0.1, "kWh": 0.1, "carbonGrams": 50.0}


def ran(namespace="team", **values):
    """Return an entry of a Job that ran for an hour on a GPU, to which it was moved."""
    used = ((("gpu", "nvidia.com/gpu"), 1),)
    given = {"decision": expecting(EXPECTED, policy="p"), "used": used, **values}
    return JournalEntry(
        key="w",
        uid="u",
        namespace=namespace,
        name="job",
        created=100.0,
        admitted=200,
        finished=3800,
        outcome="Succeeded",
        submitted="{}",
        ran="{}",
        **{"queue": "gpu-lq", "labels": LABELS, **given},
    )
