import re

import pytest

from webhook.decide.wishes import NONE, Wishes, read_wishes
from webhook.model.fields import FieldError

CREATED = 1795240800.0
"""2026-11-21T06:00:00Z"""


def read(**annotations):
    found = {f"kueue-fallback.dev/{name.replace('_', '-')}": v for name, v in annotations.items()}
    return read_wishes(found, CREATED)


def test_a_job_that_says_nothing_wishes_nothing():
    assert read() == read_wishes({"example.com/deadline": "soon"}, CREATED) == NONE


def test_wishes_are_read_in_seconds():
    found = read(max_slowdown="3", deadline="45m", max_wait="10m", run_time="1h30m")

    assert found == Wishes(max_slowdown=3.0, deadline=2700.0, max_wait=600.0, run_time=5400.0)


def test_wishes_about_costs_are_read_as_money_kilograms_and_gibibytes():
    found = read(
        value_of_time="5",
        lateness="20.5",
        budget="0",
        max_carbon="2.5",
        checkpoint="10m",
        data="imagenet=120Gi, llama-3-8b=512Mi",
    )

    assert found == Wishes(
        value_of_time=5.0,
        lateness=20.5,
        budget=0.0,
        max_carbon=2.5,
        checkpoint=600.0,
        data=(("imagenet", 120.0), ("llama-3-8b", 0.5)),
    )


@pytest.mark.parametrize(
    ("written", "number"), [("8Gi", 8 << 30), ("8e9", 8 * 10**9), ("1", 1), ("0.5", 1)]
)
def test_what_a_job_needs_of_a_device_is_read_in_bytes(written, number):
    assert read(gpu_memory=written) == Wishes(gpu_memory=number)


def test_how_fast_a_device_a_job_needs_is_read_in_the_units_of_a_profile():
    found = read(gpu_bandwidth="1555.5", gpu_compute="bf16=300, int8 = 600.5")

    assert found == Wishes(gpu_bandwidth=1555.5, gpu_compute=(("bf16", 300.0), ("int8", 600.5)))


@pytest.mark.parametrize(
    ("key", "written"),
    [
        ("gpu_bandwidth", "0"),
        ("gpu_bandwidth", "-1"),
        ("gpu_bandwidth", "2TB/s"),
        ("gpu_bandwidth", "9" * 400),
        ("gpu_compute", ""),
        ("gpu_compute", "300"),
        ("gpu_compute", "bf16"),
        ("gpu_compute", "bf16=0"),
        ("gpu_compute", "bf16=fast"),
        ("gpu_compute", "bfloat16=300"),
        ("gpu_compute", "bf16=300,bf16=200"),
        ("gpu_compute", ",".join(["int8=1"] * 5000)),
        ("request_rate", "0"),
        ("request_rate", "120/s"),
        ("target_latency", "200"),
        ("target_latency", "0ms"),
        ("target_latency", "200 msec"),
        ("max_replicas", "0"),
        ("max_replicas", "many"),
    ],
)
def test_a_need_that_cannot_be_read_names_its_annotation_and_what_was_expected(key, written):
    with pytest.raises(FieldError) as error:
        read(**{key: written})

    assert error.value.path == f"metadata.annotations[kueue-fallback.dev/{key.replace('_', '-')}]"
    assert "expected" in error.value.message


def test_a_service_says_its_rate_its_latency_and_the_most_replicas_it_may_have():
    found = read(request_rate="0.5", target_latency="200ms", max_replicas="8")

    assert found == Wishes(request_rate=0.5, target_latency=0.2, max_replicas=8)


@pytest.mark.parametrize(
    ("said", "lacking"),
    [
        ({"request_rate": "120"}, "target-latency]: must be given beside request-rate"),
        ({"target_latency": "200ms"}, "request-rate]: must be given beside target-latency"),
    ],
)
def test_a_rate_and_a_latency_say_nothing_without_each_other(said, lacking):
    with pytest.raises(FieldError, match=re.escape(lacking)):
        read(**said)


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("2026-11-21T06:00:40Z", 40.0),
        ("2026-11-21T08:00:00+02:00", 0.0),
        ("2026-11-21T05:59:00Z", -60.0),
        ("2026-11-21T06:01:00", 60.0),
        ("90s", 90.0),
    ],
)
def test_a_deadline_is_a_moment_or_a_time_from_the_creation_on(written, seconds):
    assert read(deadline=written).deadline == seconds


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("max-slowdown", "fast", 'a number of at least 1 such as "3"'),
        ("max-slowdown", "0.5", 'a number of at least 1 such as "3"'),
        ("max-slowdown", "nan", 'a number of at least 1 such as "3"'),
        ("max-slowdown", "inf", 'a number of at least 1 such as "3"'),
        ("deadline", "tomorrow", "a time such as 2026-12-01T08:00:00Z, or a duration such as 45m"),
        ("max-wait", "10", "a duration such as 90s or 1h30m"),
        ("run-time", "", "a duration such as 90s or 1h30m"),
        ("run-time", "0s", "a duration above 0"),
        ("value-of-time", "-1", 'a number that is not negative, such as "2.5"'),
        ("lateness", "1e9", 'a number that is not negative, such as "2.5"'),
        ("budget", "ten", 'a number that is not negative, such as "2.5"'),
        ("budget", "5\n", 'a number that is not negative, such as "2.5"'),
        ("max-carbon", "", 'a number that is not negative, such as "2.5"'),
        ("checkpoint", "often", "a duration such as 90s or 1h30m"),
        ("gpu-memory", "much", "an amount of memory such as 8Gi"),
        ("gpu-memory", "0", "an amount of memory such as 8Gi"),
        ("gpu-memory", "-8Gi", "an amount of memory such as 8Gi"),
        ("data", "imagenet", 'names with sizes such as "imagenet=120Gi"'),
        ("data", "imagenet=-1Gi", 'names with sizes such as "imagenet=120Gi"'),
        ("data", "Image Net=1Gi", 'names with sizes such as "imagenet=120Gi"'),
        ("run-time", "1h" * 17, "a duration such as 90s or 1h30m"),
    ],
)
def test_what_cannot_be_read_is_named_with_what_was_expected(name, value, expected):
    with pytest.raises(FieldError) as caught:
        read(**{name: value})

    path = f"metadata.annotations[kueue-fallback.dev/{name}]"
    assert str(caught.value) == f"{path}: expected {expected}, got {value!r}"
