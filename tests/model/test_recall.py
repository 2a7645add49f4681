import tracemalloc

from tests.reviews import light_job
from webhook.jobs import batch, served_job
from webhook.model.pods import Memo


def asked(memo, key, size=1, done=None):
    return memo.recall(key, size, lambda: (done.append(key) if done is not None else None) or key)


def test_work_is_done_once():
    memo, done = Memo(most=2, most_bytes=100), []

    assert [asked(memo, "a", done=done) for _ in range(3)] == ["a", "a", "a"]
    assert done == ["a"]


def test_all_go_where_there_are_too_many():
    memo, done = Memo(most=2, most_bytes=100), []

    for key in "ababcba":
        asked(memo, key, done=done)

    assert done == ["a", "b", "c", "b", "a"]


def test_all_go_where_they_are_too_long_together():
    memo, done = Memo(most=10, most_bytes=100), []

    for key in ("a", "b", "c", "long", "long", "a"):
        asked(memo, key, 40 if key == "long" else 30, done)

    assert done == ["a", "b", "c", "long", "a"]


def test_what_alone_is_too_long_is_not_kept_and_puts_nobody_out():
    memo, done = Memo(most=10, most_bytes=100), []

    for key in ("a", "long", "long", "a"):
        asked(memo, key, 101 if key == "long" else 1, done)

    assert done == ["a", "long", "long"]


def test_what_is_longer_than_any_one_may_be_is_not_kept():
    memo, done = Memo(most=10, most_bytes=100, longest=50), []

    for key in ("a", "long", "long", "a"):
        asked(memo, key, 51 if key == "long" else 50, done)

    assert done == ["a", "long", "long"]


def test_hundreds_of_long_templates_take_a_few_megabytes():
    job = light_job()
    container = job["spec"]["template"]["spec"]["containers"][0]
    served_job.forget()

    tracemalloc.start()
    for number in range(120):
        container["args"] = [f"{number}-{word}" for word in range(2000)]
        batch.read_job(job)
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    served_job.forget()
    assert kept < 6_000_000
