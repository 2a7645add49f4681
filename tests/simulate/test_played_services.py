"""Services in a replay: their replicas hold quota, and their latency follows their requests."""

import copy
from math import inf, log

import pytest

from tests.simulate import files
from tests.simulate.priced import START, tariff
from webhook.learn.estimates import RunTimeLearner
from webhook.simulate.comparison import table, to_json
from webhook.simulate.replay import replay
from webhook.simulate.results import ServiceMoment
from webhook.simulate.scenario_spec import ScenarioError

AT_10 = 0.1 + log((1 / 3) / 0.05) / (20 - 10)
"""The latency of two replicas that answer 10 a second each: one of three requests waits (Erlang's C
of a load of 1 and 2 servers is 1/3)."""
LOAD_10 = (2, pytest.approx(AT_10))
"""Two replicas, and their latency."""
AT_15 = 0.1 + log((9 / 14) / 0.05) / (20 - 15)
"""Erlang's C of 1.5 and 2 is 9/14."""


def deployment(queue="fast", replicas=2, kind="Deployment", **annotations):
    said = {"request-rate": "10", "target-latency": "300ms", **annotations}
    pods = {
        "metadata": {"labels": {"app": "chat"}},
        "spec": files.job()["spec"]["template"]["spec"],
    }
    pods["spec"].pop("restartPolicy")
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {
            "namespace": "team",
            "labels": {"kueue.x-k8s.io/queue-name": queue},
            "annotations": {f"kueue-fallback.dev/{key}": text for key, text in said.items()},
        },
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "chat"}},
            "template": pods,
        },
    }


def service(manifest=None, **changes):
    fast = {"requestsPerSecond": "10", "latency": "100ms"}
    slow = {"requestsPerSecond": "5", "latency": "200ms"}
    found = {"service": manifest or deployment(), "serves": {"fast": fast, "slow": slow}}
    return {**found, **changes}


def scenario(chat=None, *, cpu=2, **changes):
    """Return the small scenario with a service, and room for so many cores in each queue."""
    found = copy.deepcopy(files.document())
    for queue in found["cluster"]["objects"][2:4]:
        flavor = queue["spec"]["resourceGroups"][0]["flavors"][0]
        flavor["resources"][0]["nominalQuota"] = cpu
    found["services"] = {"chat": chat or service()}
    return {**found, **changes}


def played(source, strategy="static", **given):
    read = files.read(source, **given)
    (arm,) = read.arms([strategy])
    return replay(read, arm)


def test_the_latency_follows_the_requests_of_the_hours():
    curve = [{"hour": 0, "rate": 10}, {"hour": 18, "rate": 15}]
    priced = {"start": START, "tariffs": {"objects": [tariff()]}}

    found = played(scenario(service(curve=curve), **priced))

    (chat,) = found.services
    assert [chat.name, chat.queue, chat.option] == ["chat", "fast", ""]
    assert chat.moments == (
        ServiceMoment(0.0, 10.0, *LOAD_10),
        ServiceMoment(64800.0, 15.0, 2, pytest.approx(AT_15)),
    )
    assert (chat.within, chat.fewest, chat.mean_replicas, chat.most) == (0.75, 2, 2.0, 2)
    # Two cores for a day at 36 an hour, and their 8 W at 1 a kWh.
    assert chat.cost.total == pytest.approx(2 * 24 * 36 + 0.008 * 24)
    jobs = sum(job.cost.total for job in found.jobs)
    assert found.totals.costs.total == pytest.approx(chat.cost.total + jobs)


def test_a_curve_is_parts_of_the_stated_rate_from_the_start_of_the_scenario():
    parts = [0.5] * 12 + [2] * 12

    chat = files.read(scenario(service(curve=parts, created="11h30m", lasts="13h"))).services[0]

    hours = [5.0, *[20.0] * 12, 5.0]
    assert chat.rates == dict(zip([41400.0, *range(43200, 90000, 3600)], hours, strict=True))


def test_jobs_wait_for_the_quota_that_replicas_hold():
    found = played(scenario(service(lasts="1h")))

    # A second passes until those who wait are tried again.
    assert [job.start for job in found.jobs] == [3601.0, 3601.0, 3612.0, 3612.0]


def test_replicas_wait_for_the_quota_that_jobs_hold():
    at_once = scenario(service(created="5s", lasts="100s"))
    at_once["arrivals"] = [{"at": "0s", "job": "work"}]

    (chat,) = played(at_once).services

    # Until the Job ends one replica answers as many as come, and requests wait ever longer.
    assert chat.moments == (
        ServiceMoment(5.0, 10.0, 1, inf),
        ServiceMoment(11.0, 10.0, *LOAD_10),
    )
    assert chat.within == pytest.approx(0.94)


def test_a_replica_serves_once_it_has_started_and_costs_from_the_beginning():
    priced = {"start": START, "tariffs": {"objects": [tariff()]}}

    (chat,) = played(scenario(service(startup="36s", lasts="1h"), **priced)).services

    assert chat.moments == (ServiceMoment(0.0, 10.0, 0, inf), ServiceMoment(36.0, 10.0, *LOAD_10))
    assert (chat.within, chat.cost.total) == (0.99, pytest.approx(2 * 36 + 0.008))


def test_a_policy_decides_a_service_as_admission_does():
    spill = files.policy()
    spill["spec"]["match"]["kinds"] = ["Deployment"]
    source = scenario(service(deployment(replicas=1)), policies={"objects": [spill]})
    source["arrivals"] = [{"burst": {"count": 3, "jobs": ["work"]}}]
    source["services"]["chat"]["created"] = "1s"

    (chat,) = played(source, "Threshold").services

    assert [chat.queue, chat.option] == ["slow", "slow"]
    assert chat.moments == (ServiceMoment(1.0, 10.0, 1, inf),)


def by_cost(**autoscale):
    """Return a policy that sets the replicas of a service, and keeps an autoscaler for it."""
    serves = service()["serves"]
    auto = {"replicas": "Auto"}
    options = [{"queue": name, "serving": serves[name], "adaptation": auto} for name in serves]
    found = files.policy(strategy={"type": "Cost"})
    found["spec"] |= {"autoscale": autoscale, "options": options}
    found["spec"]["match"]["kinds"] = ["Deployment"]
    return found


HOURS = [{"hour": 0, "rate": 10}, {"hour": 1, "rate": 28}, {"hour": 2, "rate": 10}]


@pytest.mark.parametrize(
    ("asked", "autoscale", "cpu", "by_rates"),
    [
        # Erlang's C of 2.8 and 4 is 0.42865. What is too much is removed after five minutes, then
        # one a minute; of three replicas 1 of 11 requests waits, of four fewer than 5 of 100.
        (
            {},
            {"minReplicas": 1},
            9,
            [
                (0, 10, *LOAD_10),
                (3600, 28, 4, pytest.approx(0.1 + log(0.42865 / 0.05) / 12, rel=1e-4)),
                (7200, 10, 4, 0.1),
                (7500, 10, 3, pytest.approx(0.1 + log((1 / 11) / 0.05) / 20)),
                (7560, 10, *LOAD_10),
            ],
        ),
        # Its stated rate needs two.
        (
            {"request-rate": "10"},
            {},
            2,
            [(0, 10, *LOAD_10), (3600, 28, 2, inf), (7200, 10, *LOAD_10)],
        ),
        (
            {"max-replicas": "2"},
            {},
            9,
            [(0, 10, *LOAD_10), (3600, 28, 2, inf), (7200, 10, *LOAD_10)],
        ),
    ],
)
def test_an_autoscaler_follows_the_requests_within_its_bounds(asked, autoscale, cpu, by_rates):
    chat = service(deployment(replicas=1, **asked), curve=HOURS, lasts="3h")
    source = scenario(chat, cpu=cpu, policies={"objects": [by_cost(**autoscale)]})
    source["arrivals"] = [{"at": "20h", "job": "work"}]

    (chat,) = played(source, "Cost").services

    assert chat.option == "fast"
    assert list(chat.moments) == [ServiceMoment(*moment) for moment in by_rates]


def test_without_bounds_an_autoscaler_keeps_what_the_stated_rate_needs():
    curve = [{"hour": 0, "rate": 1}]
    source = scenario(service(curve=curve), policies={"objects": [by_cost()]})
    few = scenario(service(curve=curve), policies={"objects": [by_cost(minReplicas=1)]})

    kept, shrunk = (played(each, "Cost").services[0].moments for each in (source, few))

    assert [moment.replicas for moment in kept] == [2]
    assert [(moment.at, moment.replicas) for moment in shrunk] == [(0.0, 2), (300.0, 1)]


def test_a_replica_that_is_preempted_waits_and_serves_again():
    source = scenario()
    objects = source["cluster"]["objects"]
    objects[2]["spec"]["preemption"] = {"withinClusterQueue": "LowerPriority"}
    kueue = "kueue.x-k8s.io/v1beta2"
    named = {"metadata": {"name": "high"}, "value": 10}
    objects.append({"apiVersion": kueue, "kind": "WorkloadPriorityClass", **named})
    labels = {"kueue.x-k8s.io/queue-name": "fast", "kueue.x-k8s.io/priority-class": "high"}
    source["jobs"]["work"]["job"] = files.job(labels=labels)
    source["arrivals"] = [{"at": "100s", "job": "work"}]

    found = played(source)

    # A second passes until it has stopped, another until those who wait are tried again.
    assert [(job.start, job.preempted) for job in found.jobs] == [(101.0, 0)]
    assert found.services[0].moments == (
        ServiceMoment(0.0, 10.0, *LOAD_10),
        ServiceMoment(100.0, 10.0, 1, inf),
        ServiceMoment(112.0, 10.0, *LOAD_10),
    )


def test_nothing_is_learned_of_how_long_a_replica_was_there():
    by_finish = files.policy(strategy={"type": "FinishTime", "finishTime": {"runTime": "10s"}})
    source = scenario(service(lasts="1h"), policies={"objects": [by_finish]})
    read, learner = files.read(source), RunTimeLearner()

    replay(read, read.arms(["FinishTime"])[0], run_times=learner)

    # Those of the Jobs, which run for ten seconds.
    assert {round(run.seconds) for run in learner.estimates(at_once=None).values()} == {10}


def test_a_spread_of_the_rates_depends_on_the_seed_alone():
    def rates(seed):
        return list(files.read(scenario(service(sigma=0.2)), seed=seed).services[0].rates.values())

    assert rates(1) == rates(1)
    assert rates(1) != rates(2)
    assert len(set(rates(1))) == 24


def test_results_show_each_service_in_each_strategy():
    read = files.read(scenario(service(curve=[0.5] * 12 + [3] * 12)))
    results = [replay(read, arm) for arm in read.arms(["static"])]

    shown = [" ".join(line.split()) for line in table(read, results).splitlines()]
    answer = to_json(read, results, seed=0)["strategies"][0]["services"]

    at = shown.index("SERVICE STRATEGY OPTION FEWEST MEAN MOST WITHIN LATENCY COST")
    assert shown[at + 1] == "chat static - 2 2 2 50 % -"
    assert answer == [
        {
            "name": "chat",
            "queue": "fast",
            "option": None,
            "targetLatency": 0.3,
            "withinPercent": 50.0,
            "replicas": {"fewest": 2, "mean": 2.0, "most": 2},
            "deviceHours": {},
            "moments": [
                {"at": 0.0, "rate": 5.0, "replicas": 2, "latency": 0.146},
                {"at": 43200.0, "rate": 30.0, "replicas": 2, "latency": None},
            ],
        }
    ]


def test_services_may_come_without_jobs():
    read = files.read(scenario(jobs={}, arrivals=[]))

    (result,) = results = [replay(read, arm) for arm in read.arms(["static"])]

    assert (result.jobs, result.services[0].mean_replicas) == ((), 2.0)
    assert table(read, results).startswith("small: services, and no Jobs\n")


PATH = "services.chat.service"
MANY = "expected requests a second above 0 such as \"120\", got 'many'"
KINDS = "expected a Deployment or a LeaderWorkerSet"
FLAVORS = "expected a ResourceFlavor or an option; there is fast, slow"
NOTHING = "not above 0: a replica that answers nothing serves nobody"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (
            scenario(service(deployment(**{"request-rate": "many"}))),
            f"{PATH}.metadata.annotations[kueue-fallback.dev/request-rate]: {MANY}",
        ),
        (
            scenario(service(files.job())),
            f"{PATH}.kind: {KINDS}, got a Job",
        ),
        (
            scenario(service(deployment(kind="StatefulSet"))),
            f"{PATH}.kind: {KINDS}, got a StatefulSet",
        ),
        (
            scenario(service(deployment(replicas=0))),
            "services.chat.service.spec.replicas: expected at least 1",
        ),
        (
            scenario(service(deployment(queue="other"))),
            "services.chat: no LocalQueue other in namespace team; there is fast, slow",
        ),
        (
            scenario(service(serves={"none": {"requestsPerSecond": "1", "latency": "1s"}})),
            f"services.chat.serves.none: {FLAVORS}",
        ),
        (
            scenario(service(serves={"fast": {"requestsPerSecond": "0", "latency": "1s"}})),
            f"services.chat.serves.fast.requestsPerSecond: {NOTHING}",
        ),
        (
            scenario(services={"work": service()}),
            "expected one work, found a Job and a service of this name",
        ),
        (
            {**files.with_workers(files.worker("a")), "services": {"chat": service()}},
            "expected no clusters beside services: they are played in one cluster",
        ),
    ],
)
def test_what_is_wrong_with_a_service_is_named(source, expected):
    with pytest.raises(ScenarioError) as caught:
        files.read(source)

    assert str(caught.value) == expected


def test_a_service_must_say_its_requests_and_its_latency():
    silent = deployment()
    del silent["metadata"]["annotations"]

    with pytest.raises(ScenarioError) as caught:
        files.read(scenario(service(silent)))

    assert str(caught.value) == (
        "services.chat.service.metadata.annotations: expected kueue-fallback.dev/request-rate and"
        " kueue-fallback.dev/target-latency"
    )
