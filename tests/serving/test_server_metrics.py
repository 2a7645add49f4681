"""What is scraped after each kind of traffic is what the table says, and its page too."""

import json

import pytest

from hack import metrics_page
from tests.builders import policy, team_policy
from tests.cost.bad_tariffs import RATES, TAKEN, unix
from tests.cost.ended_jobs import EXPECTED, PRICES, ran
from tests.cost.tariffs import tariff_object
from tests.flow.moves import move, pending, reconsidering
from tests.hindsight.slots import expecting
from tests.reviews import light_job, review
from tests.scrapes import check, shown
from tests.servers import Server, paper_snapshot
from webhook.admission.patch import PatchError
from webhook.controller.controller_metrics import ControllerMetrics
from webhook.hindsight.freed_slices import SliceSize
from webhook.metric_table import Kind
from webhook.model.costs.prices import CongestionPrices, ScarceCell
from webhook.model.reasons import Obstacle
from webhook.model.snapshot_parts import OffSwitch
from webhook.state.snapshot import updated
from webhook.state.state import State

BLOCKED = SliceSize(
    resource="nvidia.com/mig-3g.20gb", waiting=1, free=0, unusable={"n": 0.5}, blocked=1, freed=()
)


def left_alone(server):
    server.create(light_job(annotations={"kueue-fallback.dev/allow": "nothing"}))
    server.now = 200.0
    server.create(light_job())


def skipped(server):
    server.create(light_job(labels={}))
    server.show(paper_snapshot(off=OffSwitch()))
    server.create(light_job())


def restored(server):
    decided, _ = server.create(light_job())
    server.update(decided, {**light_job(), "metadata": {**decided["metadata"], "labels": {}}})


def moved(server):
    server.show(reconsidering(pending=0))
    there, _ = move(server, pending(server.create(light_job())[0]), "cpu")
    move(server, there, "nowhere")
    move(server, there, "none")


def rejected(server):
    options = [{"queue": "nowhere-lq"}, {"queue": "gpu-lq"}]
    found = policy(*options, name="another", match={"jobSelector": {}, "queues": ["gpu-lq"]})
    server.show(updated(paper_snapshot(), policies=(found,)))
    server.create(light_job())


def unreadable(server):
    server.post(b"x")
    server.post(json.dumps(review({**light_job(), "spec": None})))
    server.post(json.dumps(review(light_job(), operation="CONNECT")))


def raising(error):
    def traffic(server):
        def admit(*_):
            raise error

        server.handler.admit = admit
        server.post(json.dumps(review(light_job())))

    return traffic


@pytest.mark.parametrize(
    ("traffic", "counted"),
    [
        (lambda _: None, {}),
        (lambda server: server.create(light_job()), {"decisions_total": 1, "reviews_total": 1}),
        (left_alone, {"decisions_total": 2}),
        (skipped, {"skipped_total": 2}),
        (restored, {"restorations_total": 1}),
        (moved, {"moves_total": 3, "unmoved_total": 1, "decisions_total": 1}),
        (unreadable, {"reviews_total": 3}),
        (raising(PatchError("/spec", "no")), {"patch_verification_failures_total": 1}),
        (raising(ZeroDivisionError()), {"failures_total": 1}),
    ],
    ids=[
        "nothing",
        "decided",
        "left alone",
        "skipped",
        "restored",
        "moved",
        "unreadable",
        "unpatchable",
        "failed",
    ],
)
def test_after_each_kind_of_traffic_what_is_scraped_is_in_the_table(traffic, counted):
    server = Server(paper_snapshot())
    traffic(server)
    server.metrics.show(
        server.handler.snapshot,
        placements=server.handler.placements(),
        forecast_age=server.handler.forecast_age_seconds(),
    )

    names = check(server.metrics)

    assert {f"kueue_fallback_{name}" for name in counted} <= names
    assert {name: total(server.metrics, name) for name in counted} == counted


def test_series_of_policies_and_options_that_are_gone_are_removed():
    server = Server(paper_snapshot())
    server.create(light_job())
    rejected(server)
    before = policies(server.metrics)

    server.show(paper_snapshot())
    server.metrics.show(server.handler.snapshot, placements=0, forecast_age=0.0)

    assert before == {"light-gpu", "another"}
    assert policies(server.metrics) == {"light-gpu"}
    assert total(server.metrics, "rejections_total") == 0


def test_each_worker_cluster_that_is_watched_shows_its_age_and_no_other():
    server = Server(paper_snapshot())
    server.metrics.show_clusters({"gpu-worker": 3.0, "gone": 40.0})

    server.metrics.show_clusters({"gpu-worker": 4.0})

    shown = "kueue_fallback_cluster_state_age_seconds"
    assert server.count(shown, cluster="gpu-worker") == 4.0
    assert server.count(shown, cluster="gone") is None


def test_what_the_worker_counts_is_taken_over():
    metrics = Server().metrics
    for unanswered in ({"handshake": 1}, {"handshake": 3, "413": 1}):
        metrics.show_messages(in_flight=2, unanswered=unanswered)

    check(metrics)
    assert total(metrics, "unanswered_total") == 4
    assert total(metrics, "reviews_in_flight") == 2


def test_the_controllers_metrics_are_in_its_table():
    metrics = ControllerMetrics()
    snapshot = paper_snapshot()
    metrics.watches.take(synced=True, ages={"jobs": 1.0}, relists={"jobs": 1}, problems={"jobs": 1})
    metrics.watches.show(ready=True, age=1.0)
    metrics.expect(snapshot)
    metrics.show({"light-gpu": True, "another": False})
    metrics.show_failing({("light-gpu", "cpu"): 2}, snapshot.fallback.policies)
    for name in ("light-gpu", "another"):
        metrics.count_move(name, "moved", gained=20.0)
    metrics.show_obstacles({(name, Obstacle.TOO_SOON): 3 for name in ("light-gpu", "another")})
    metrics.unreviewed.labels("another").inc()
    metrics.writes.labels("written").inc()
    moved = ran(decision=expecting(EXPECTED, policy="light-gpu"))
    metrics.costs.count([moved], PRICES)
    odd, state = TAKEN["a series out of proportion"], State()
    spec = {**odd.spec, "rates": RATES, "clusters": ["", "far"]}
    state.replace("tariffs", [tariff_object(**spec)])
    state.replace("series points", [odd.config_map])
    metrics.costs.show(state.snapshot(1.0, unix(odd.now)).costs.tariffs, unix(odd.now))
    scarce = {ScarceCell("queue gpu-cq", "gpu", "nvidia.com/gpu"): 0.5}
    metrics.costs.show_congestion(CongestionPrices(prices=scarce))
    metrics.costs.show_advised({"light-gpu": 12.5})
    metrics.slices.show([BLOCKED])

    names = check(metrics)
    before = policies(metrics)
    metrics.show({"light-gpu": True})

    missing = {metric.name for metric in metrics.table.metrics} - names
    assert missing == set()
    moved = {"policy": "another", "outcome": "moved"}
    assert metrics.registry.get_sample_value("kueue_fallback_controller_moves_total", moved) is None
    assert (before, policies(metrics)) == ({"light-gpu", "another"}, {"light-gpu"})
    assert metrics.registry.get_sample_value("kueue_fallback_policies", {"ready": "False"}) == 0


def test_what_keeps_failing_is_counted_for_each_option_but_the_first_of_the_policies_there_are():
    metrics = ControllerMetrics()
    metrics.show_failing({("light-gpu", "cpu"): 2}, paper_snapshot().fallback.policies)
    before = failing(metrics)
    metrics.show_failing({}, paper_snapshot().fallback.policies)
    after = failing(metrics)
    metrics.show_failing({}, ())

    assert before == {("light-gpu", "cpu"): 2.0}
    assert after == {("light-gpu", "cpu"): 0.0}
    assert failing(metrics) == {}


def failing(metrics):
    name = "kueue_fallback_keeps_failing"
    return {
        (labels["policy"], labels["option"]): metrics.registry.get_sample_value(name, labels)
        for found, _, labels in shown(metrics)
        if found == name
    }


def test_jobs_without_a_review_are_counted_from_zero_only_where_they_can_be_told():
    metrics = ControllerMetrics()
    observing = updated(
        paper_snapshot(), policies=(policy(name="another", mode="Observe"), policy())
    )

    metrics.expect(observing)

    counted = [labels for name, _, labels in shown(metrics) if name.endswith("viewed_jobs_total")]
    assert counted == [{"policy": "light-gpu"}]


def test_names_follow_the_conventions():
    tables = [Server().metrics.table.metrics, ControllerMetrics().table.metrics]
    for metric in (metric for table in tables for metric in table):
        assert metric.name.endswith("_total") == (metric.kind is Kind.COUNTER), metric.name
        assert metric.text.endswith("."), metric.name
    for table in tables:
        assert len({metric.name for metric in table}) == len(table)


def test_the_page_is_current():
    assert metrics_page.PAGE.read_text() == metrics_page.text()


def total(metrics, name):
    families = metrics.registry.collect()
    samples = [sample for family in families for sample in family.samples]
    return sum(one.value for one in samples if one.name == f"kueue_fallback_{name}")


def policies(metrics):
    return {labels["policy"] for _, _, labels in shown(metrics) if "policy" in labels}


def test_policies_of_a_namespaces_own_share_one_series_and_one_option():
    policies = tuple(team_policy(name=name) for name in ("a", "b"))
    server = Server(updated(paper_snapshot(), policies=policies))

    server.create(light_job())
    server.create(light_job(annotations={"kueue-fallback.dev/policy": "team/b"}))

    taken = {"policy": "team/*", "mode": "Enforce", "option": "*", "reason": "decided"}
    assert server.count("kueue_fallback_decisions_total", **taken) == 2
    server.metrics.show(server.handler.snapshot, placements=0, forecast_age=0.0)
    assert server.count("kueue_fallback_decisions_total", **taken) == 2
    gone = updated(paper_snapshot(), policies=())
    server.metrics.show(gone, placements=0, forecast_age=0.0)
    assert server.count("kueue_fallback_decisions_total", **taken) is None


READY = ("light-gpu", "team/light", "team/*")


def test_what_a_namespaces_own_policies_lack_is_no_alert_for_administrators():
    metrics = ControllerMetrics()
    metrics.show({"light-gpu": True, "team/light": False})
    metrics.show_failing({("team/light", "cpu"): 2}, (team_policy(),))
    metrics.count_move("team/light", "repaired")
    metrics.expect(updated(paper_snapshot(), policies=(team_policy(),)))

    value = metrics.registry.get_sample_value
    ready = {name: value("kueue_fallback_policy_ready", {"policy": name}) for name in READY}
    assert ready == {"light-gpu": 1, "team/light": None, "team/*": None}
    assert failing(metrics) == {}
    assert value("kueue_fallback_policies", {"ready": "False"}) == 0
    moved = {"policy": "team/*", "outcome": "repaired"}
    assert value("kueue_fallback_controller_moves_total", moved) == 1
    assert value("kueue_fallback_unreviewed_jobs_total", {"policy": "team/*"}) == 0
