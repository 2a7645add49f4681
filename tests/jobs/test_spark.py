"""What Kueue counts of a SparkApplication, and where its fields are changed."""

import pytest

from tests.builders import policy
from webhook.adapt.adaptation import adapt
from webhook.admission import patch
from webhook.decide import match
from webhook.jobs import BY_NAME
from webhook.kueue import requests
from webhook.model.fields import FieldError
from webhook.model.queues import KueueConfig
from webhook.model.reasons import Obstacle
from webhook.model.snapshot_parts import ClusterObjects

SPARK = BY_NAME["SparkApplication"]
GPU = "nvidia.com/gpu"
ONE_GPU = {"gpu": {"name": GPU, "quantity": 1}}


def application(*, driver=None, executor=None, **spec):
    return {
        "apiVersion": "sparkoperator.k8s.io/v1beta2",
        "kind": "SparkApplication",
        "metadata": {"name": "features", "namespace": "team"},
        "spec": {"driver": driver or {}, "executor": executor or {}, **spec},
    }


def needs(source):
    return [
        (each.name, each.count, dict(each.per_pod))
        for each in requests.needs(SPARK.read(source), ClusterObjects(), KueueConfig())
    ]


def test_driver_and_executors_are_counted_by_request_and_not_by_cores_or_overhead():
    source = application(
        driver={"cores": 4, "coreRequest": "1", "memory": "1g", "memoryOverhead": "1g"},
        executor={"instances": 3, "coreLimit": "2", "memory": "512m", **ONE_GPU},
    )

    assert needs(source) == [
        ("driver", 1, {"cpu": 1000, "memory": 1 << 30}),
        ("executor", 3, {"cpu": 2000, "memory": 512 << 20, GPU: 1}),
    ]


@pytest.mark.parametrize(
    ("written", "amount"),
    [("1g", 1 << 30), ("2gb", 2 << 30), ("64k", 64 << 10), ("1Gi", 1 << 30), ("1024", 1024)],
)
def test_memory_is_read_as_java_or_kubernetes_writes_it(written, amount):
    (_, _, driver), _ = needs(application(driver={"memory": written}))

    assert driver == {"memory": amount}


def test_memory_in_capitals_is_what_the_operator_does_not_read():
    with pytest.raises(FieldError, match=r"spec\.driver\.memory: expected a unit in small letters"):
        SPARK.read(application(driver={"memory": "4G"}))


def test_executors_are_none_until_instances_says_how_many():
    assert [count for _, count, _ in needs(application())] == [1, 0]


@pytest.mark.parametrize(
    ("source", "what"),
    [
        (application(nodeSelector={"a": "b"}), "its nodeSelector for all pods"),
        (application(dynamicAllocation={"enabled": True}), "its dynamic allocation"),
        (
            application(sparkConf={"spark.executor.resource.gpu.amount": "1"}),
            "its sparkConf spark.executor.resource.gpu.amount",
        ),
        (application(driver={"template": {"spec": {}}}), "the template of its driver"),
        (application(executor={"envVars": {"A": "b"}}), "the envVars of its executor"),
    ],
)
def test_what_kueue_counts_otherwise_is_not_modelled(source, what):
    assert SPARK.read(source).unmodelled.startswith(what)


def adapted(source, **adaptation):
    before = SPARK.read(source)
    options = [{"queue": "gpu-lq"}, {"queue": "cpu-lq", "adaptation": adaptation}]
    after = adapt(before, policy(options=options).spec.options[1])
    return before, after


def test_memory_that_is_given_is_written_as_java_reads_it():
    source = application(executor={"memory": "1g", "coreRequest": "4", **ONE_GPU})
    given = {"cpu": "6", "memory": "1500Mi"}
    before, after = adapted(source, accelerator="Remove", perRemoved=given, env={"RUN_ENV": "cpu"})

    patch.operations(SPARK.edits(before, after), source, SPARK.allowed)

    assert source["spec"]["executor"]["memory"] == "1500m"
    assert source["spec"]["executor"]["coreRequest"] == "6"
    assert "gpu" not in source["spec"]["executor"]
    assert {"name": "RUN_ENV", "value": "cpu"} in source["spec"]["executor"]["env"]


def test_a_sidecar_is_changed_at_its_own_place():
    sidecar = {"name": "helper", "resources": {"limits": {GPU: "1"}}}
    source = application(executor={"sidecars": [sidecar]})
    before, after = adapted(source, accelerator="Remove")

    patch.operations(SPARK.edits(before, after), source, SPARK.allowed)

    assert source["spec"]["executor"]["sidecars"][0]["resources"] == {"limits": {}}


@pytest.mark.parametrize(
    ("adaptation", "what"),
    [
        ({"resources": {"requests": {"example.com/fpga": "1"}}}, "the resource example.com/fpga"),
        ({"runtimeClassName": "gvisor"}, "the RuntimeClass"),
        ({"resources": {"requests": {"cpu": "2"}}}, ""),
    ],
)
def test_what_spark_has_no_field_for_cannot_be_written(adaptation, what):
    assert SPARK.unwritable(*adapted(application(), **adaptation)) == what


@pytest.mark.parametrize(
    ("suspended", "state", "obstacle"),
    [
        (True, "", None),
        (True, "SUSPENDED", None),
        (False, "", Obstacle.NOT_SUSPENDED),
        (True, "SUSPENDING", Obstacle.PODS_ACTIVE),
        (True, "FAILED", Obstacle.FINISHED),
    ],
)
def test_it_may_be_created_anew_while_it_waits(suspended, state, obstacle):
    source = application(suspend=suspended) | {"status": {"applicationState": {"state": state}}}

    assert SPARK.kept_from_anew(source) is obstacle
    assert SPARK.held_back(source) is Obstacle.CREATION_ONLY


@pytest.mark.parametrize(
    ("config", "why"),
    [
        (KueueConfig(), "Kueue's integration sparkoperator.k8s.io/sparkapplication is off"),
        (
            KueueConfig(frameworks=(SPARK.framework,)),
            f"Kueue's integration {SPARK.framework} needs its feature gate {SPARK.gate}",
        ),
        (KueueConfig(frameworks=(SPARK.framework,), gates={SPARK.gate: True}), ""),
    ],
)
def test_its_integration_needs_a_feature_gate(config, why):
    assert match.integration_off(SPARK, config) == why
