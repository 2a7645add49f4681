from tests.api.script import Script
from tests.learn.runs import ended
from webhook.api.kubernetes_api import Forbidden, NotServed, Unreachable
from webhook.learn.run_records import SHARDS, config_map, name_of
from webhook.state.run_records_reader import AGAIN_SECONDS, RETRY_SECONDS, RunRecordsReader

RECORDS = {"k": ended().record()}
MISSING = NotServed("configmaps")


def reader(script):
    return RunRecordsReader(
        "ours",
        script,
        script.messages.append,
        clock=lambda: script.now,
        sleep=script.sleep,
        uniform=lambda low, high: high,
    )


def test_every_shard_is_read_by_its_name_and_missing_ones_hold_nothing():
    written = config_map(0, RECORDS)
    written["metadata"]["namespace"] = "ours"
    script = Script(written, *[MISSING] * (SHARDS - 1))

    reader(script).step()

    (message,) = script.messages
    assert [path for _, path, _ in script.asked] == [
        f"/api/v1/namespaces/ours/configmaps/{name_of(shard)}" for shard in range(SHARDS)
    ]
    assert message.kind == "kueue-fallback-run-times"
    assert [entry.value for entry in message.entries] == [RECORDS, *[{}] * (SHARDS - 1)]
    assert script.slept == [AGAIN_SECONDS[1]]


def test_without_an_answer_it_is_soon_tried_again():
    script = Script(Unreachable("no answer"))

    reader(script).step()

    assert [(m.error, m.unreadable) for m in script.messages] == [("no answer", False)]
    assert script.slept == [RETRY_SECONDS[1]]


def test_without_the_right_it_is_seldom_tried():
    script = Script(Forbidden("configmaps", "no right"))

    reader(script).step()

    assert [(m.error, m.unreadable) for m in script.messages] == [("no right", True)]
    assert script.slept == [AGAIN_SECONDS[1]]
