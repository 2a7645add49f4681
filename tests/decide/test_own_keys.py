"""What a Job says under our prefix and nothing reads is named, with what was probably meant."""

import pytest

from tests.builders import job, policy
from webhook.decide import wishes
from webhook.model.fields import FieldError
from webhook.model.marks import MARKS

OURS = "kueue-fallback.dev/"


def refusal(policy=policy(), **given):  # noqa: B008 - frozen
    with pytest.raises(FieldError) as error:
        wishes.check_own_keys(job(**given), policy)
    return str(error.value)


@pytest.mark.parametrize(
    ("key", "near"),
    [
        ("polcy", "policy"),
        ("Policy", "policy"),
        ("max_wait", "max-wait"),
        ("runtime", "run-time"),
        ("maxSlowdown", "max-slowdown"),
        ("allowed", "allow"),
        ("dead-line", "deadline"),
    ],
)
def test_a_misspelt_key_is_named_with_its_nearest(key, near):
    found = refusal(annotations={OURS + key: "none"})

    assert found == f"metadata.annotations[{OURS}{key}]: not known, did you mean {near}?"


def test_an_annotation_near_nothing_is_named_with_all_there_are():
    assert refusal(annotations={OURS + "zzz": "a"}) == (
        "metadata.annotations[kueue-fallback.dev/zzz]: not known, a Job may say"
        " policy, allow, max-slowdown, deadline, max-wait, run-time, value-of-time, lateness,"
        " budget, max-carbon, checkpoint, data, hold, gpu-memory, gpu-bandwidth, gpu-compute,"
        " request-rate, target-latency, max-replicas, move-to"
    )


@pytest.mark.parametrize("key", ["policy", "allow", "run-time", "max-wait"])
def test_a_known_key_as_a_label_is_named(key):
    found = refusal(labels={OURS + key: "none"})

    assert found == f"metadata.labels[{OURS}{key}]: not read, make it an annotation"


def test_a_misspelt_label_is_named_too():
    assert refusal(labels={OURS + "polcy": "none"}) == (
        "metadata.labels[kueue-fallback.dev/polcy]: not known, did you mean the annotation policy?"
    )


def test_a_few_are_named_and_no_more():
    found = refusal(annotations={f"{OURS}policy-{number}": "none" for number in range(2000)})

    assert found.count("metadata.annotations") == 3


@pytest.mark.parametrize(
    "given",
    [
        {"annotations": dict.fromkeys((*MARKS, *wishes.WISHES, OURS + "probe"), "a")},
        {"labels": dict.fromkeys(MARKS, "a")},
        {"labels": {OURS + "tier": "a"}, "annotations": {"example.com/polcy": "none"}},
    ],
)
def test_what_is_known_and_what_is_not_ours_passes(given):
    wishes.check_own_keys(job(**given), policy())


@pytest.mark.parametrize(
    "spec",
    [
        {"match": {"jobSelector": {"matchLabels": {"kueue-fallback.dev/policies": "a"}}}},
        {
            "match": {
                "jobSelector": {
                    "matchExpressions": [
                        {"key": "kueue-fallback.dev/policies", "operator": "Exists"}
                    ]
                }
            }
        },
    ],
)
def test_a_label_that_the_policy_itself_reads_passes(spec):
    labels = {OURS + "policies": "a"}

    wishes.check_own_keys(job(labels=labels), policy(**spec))

    assert "did you mean the annotation policy?" in refusal(labels=labels)
