import pytest

from tests.cost.tariffs import profile, tariff, tariff_object
from webhook.api.kubernetes_api import NotServed
from webhook.controller import status_keeper
from webhook.cost.cluster_prices import zone_of
from webhook.cost.rates import compile_tariff
from webhook.model.costs.tariff import read_tariff
from webhook.model.queues import ResourceFlavor, WorkerCluster
from webhook.state.snapshot import Snapshot, updated

ONLY_ALWAYS = "only entries that always apply count"
NOW, TIME = 1796112000.0, "2026-12-01T08:00:00Z"


def cluster(*names, profiles=(), tariffs=(), workers=()):
    return updated(
        Snapshot(),
        flavors={name: ResourceFlavor(name=name, node_labels={"pool": name}) for name in names},
        accelerator_profiles=tuple(profiles),
        tariffs=tuple(map(compiled, tariffs)),
        worker_clusters={name: WorkerCluster() for name in workers},
    )


def judged_profile(given, *others, flavors=("gpu",)):
    found = status_keeper.judge_profile(given, cluster(*flavors, profiles=[*others, given]))
    return str(found.reason), found.message, found.rest["flavors"]


@pytest.mark.parametrize(
    ("given", "reason", "message"),
    [
        (
            profile("a", like="NVIDIA-X", flavors=["gpu"]),
            "UnknownModel",
            "spec.like: no product NVIDIA-X",
        ),
        (
            profile("a", flavors=["gpu", "gone"]),
            "NoFlavor",
            "spec.flavors[1]: no ResourceFlavor gone",
        ),
        (
            profile("a", nodeLabels={"pool": "gone"}),
            "NoFlavor",
            "spec.nodeLabels: no ResourceFlavor is among its `flavors` or has its `nodeLabels`",
        ),
    ],
    ids=["product", "flavor", "labels"],
)
def test_what_of_a_profile_cannot_be_used_is_named(given, reason, message):
    assert judged_profile(given)[:2] == (reason, message)


def test_a_flavor_that_two_profiles_claim_is_the_first_ones():
    first, second = profile("a", flavors=["gpu"]), profile("b", flavors=["gpu"])

    assert judged_profile(second, first) == ("Ambiguous", "ResourceFlavor gpu is that of a", [])
    assert judged_profile(first, second)[0] == "Resolved"


def compiled(given):
    return compile_tariff(given, now=NOW, zone=zone_of(given.spec.time_zone))


def judged_tariff(given, *others, **state):
    state = cluster("gpu", tariffs=[*others, given], **state)
    found = status_keeper.judge_tariff(compiled(given), state, NOW)
    return str(found.reason), found.message, found.rest["now"]


def test_a_tariff_says_what_holds_now():
    given = tariff(
        timeZone="Europe/Berlin",
        rates=[{"flavors": ["gpu"], "resources": {"nvidia.com/gpu": "2.50"}}],
        electricity=[{"price": "0.24"}, {"hours": "09:00-10:00", "price": "0.31"}],
    )

    assert judged_tariff(given) == (
        "Resolved",
        "every entry and series can be used",
        {"rates": {"gpu/nvidia.com/gpu": "2.5"}, "electricity": "0.31"},
    )


@pytest.mark.parametrize(
    ("given", "reason", "message"),
    [
        (
            tariff("b", timeZone="Europe/Atlantis"),
            "BadTimeZone",
            f"spec.timeZone: there is no time zone Europe/Atlantis; {ONLY_ALWAYS}",
        ),
        (
            tariff("b", clusters=["", "far"]),
            "UnknownCluster",
            "spec.clusters[1]: no MultiKueueCluster far",
        ),
        (
            tariff("b", rates=[{"flavors": ["gpu", "gone"], "resources": {"cpu": 1}}]),
            "NoFlavor",
            "spec.rates[0].flavors[1]: no ResourceFlavor gone",
        ),
        (
            tariff("b", carbon=[{"intensity": 1}]),
            "Ambiguous",
            "spec.carbon: Tariff a says it for the same cluster, and counts",
        ),
    ],
    ids=["zone", "cluster", "flavor", "twice"],
)
def test_what_of_a_tariff_cannot_be_used_is_named_with_its_path(given, reason, message):
    other = tariff("a", carbon=[{"intensity": 2}])

    assert judged_tariff(given, other)[:2] == (reason, message)


class Cluster:
    """Serves tariffs alone, and keeps what is patched."""

    def __init__(self, *tariffs):
        self.tariffs, self.patched = tariffs, []

    def get(self, path, params=None):
        if path.endswith("/tariffs"):
            return {"items": list(self.tariffs), "metadata": {}}
        raise NotServed(path)

    def patch(self, path, body):
        self.patched.append((path, body))
        return body


def reconciled(*sources, leads=True):
    transport = Cluster(*sources)
    valid = [read_tariff(source) for source in sources if source["metadata"]["name"] != "bad"]
    report = status_keeper.reconcile_costs(
        transport, cluster("gpu", tariffs=valid), unix=NOW, time=TIME, is_leader=lambda: leads
    )
    return transport.patched, report


def test_a_status_that_is_another_is_written_and_one_that_is_the_same_is_not():
    source = tariff_object(electricity=[{"price": "0.24"}])
    patched, report = reconciled(source)

    ((path, body),) = patched
    assert path == "/apis/kueue-fallback.dev/v1alpha1/tariffs/here/status"
    assert body["status"] == {
        "now": {"rates": {}, "electricity": "0.24"},
        "conditions": [
            {
                "type": "Ready",
                "status": "True",
                "observedGeneration": 0,
                "reason": "Resolved",
                "message": "every entry and series can be used",
                "lastTransitionTime": TIME,
            }
        ],
    }
    assert [(name, said.ready) for name, said in report.written] == [("tariffs/here", True)]
    assert reconciled({**source, "status": body["status"]})[0] == []


def test_a_tariff_that_breaks_a_rule_is_told_so_and_others_go_on():
    bad = {"metadata": {"name": "bad"}, "spec": {"overhead": "0.5"}}
    patched, _ = reconciled(bad, tariff_object())

    conditions = {path.split("/")[-2]: body["status"]["conditions"][0] for path, body in patched}
    assert (conditions["bad"]["reason"], conditions["bad"]["message"]) == (
        "Invalid",
        "spec.overhead: below 1: the building cannot take less than its machines",
    )
    assert conditions["here"]["status"] == "True"


def test_only_the_leader_writes():
    assert reconciled(tariff_object(), leads=False)[0] == []
