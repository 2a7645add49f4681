"""A Tariff for the small scenario, and its replays."""

from tests.simulate.files import read
from webhook.simulate.comparison import replay_all

START = "2026-01-05T00:00Z"
RATES = [
    {"flavors": ["fast"], "resources": {"cpu": "36"}},
    {"flavors": ["slow"], "resources": {"cpu": "3.6"}},
    {"flavors": ["slow"], "hours": "01:00-02:00", "resources": {"cpu": "360"}},
]


def tariff(**spec):
    return {
        "apiVersion": "kueue-fallback.dev/v1alpha1",
        "kind": "Tariff",
        "metadata": {"name": "here"},
        "spec": {"rates": RATES, "electricity": [{"price": "1"}], **spec},
    }


def results(source, *names):
    scenario = read(source)
    return scenario, replay_all(scenario, scenario.arms(names))
