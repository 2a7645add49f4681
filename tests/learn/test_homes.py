"""What is remembered of runs has a home, and no home pushes another's out."""

from tests.learn.runs import ended
from webhook.learn import run_records
from webhook.learn.estimates import RunTimeLearner
from webhook.learn.run_records import config_map, read_shard
from webhook.model.forecasts import home_of, of_queue


def test_a_class_and_all_classes_of_a_queue_name_their_home():
    assert home_of("team/0123456789abcdef") == "team"
    assert home_of("team/example.com/model=a") == "team"
    assert home_of(of_queue("gpu-cq", "team")) == "team"


def test_who_fills_the_memory_forgets_its_own_runs():
    runs = RunTimeLearner(most=40)
    for number in range(10):
        runs.add(ended(f"team/{number}", 1000 + number, coarse=f"team/~{number}"))
    for number in range(200):
        runs.add(ended(f"tenant/{number}", 5000 + number, coarse=f"tenant/~{number}"))

    kept = [key for key in runs.records if home_of(key) == "team"]
    assert kept == [f"team/{number}" for number in range(10)]
    assert len(runs.records) <= 40
    assert "tenant/199" in runs.records

    # What is known of others elsewhere is still taken up, however old it is.
    runs.add(ended("other/1", 10, coarse="other/~1"))
    assert "other/1" in runs.records


def test_who_fills_an_object_leaves_out_its_own_runs(monkeypatch):
    monkeypatch.setattr(run_records, "MOST_BYTES", 4000)
    runs = RunTimeLearner()
    for number in range(5):
        runs.add(ended(f"team/{number}", 1000 + number))
    for number in range(100):
        runs.add(ended(f"tenant/{number}", 5000 + number))

    written = config_map(0, runs.records)

    assert len(written["data"]["classes"].encode()) <= 4000
    kept = read_shard(written)
    assert {key for key in kept if home_of(key) == "team"} == {f"team/{n}" for n in range(5)}
    assert "tenant/99" in kept
    assert "tenant/0" not in kept
