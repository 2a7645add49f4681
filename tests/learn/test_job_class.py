import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import container, job, template
from webhook.jobs import batch
from webhook.learn import job_class
from webhook.learn.job_class import Mark
from webhook.model.forecasts import JobClass

GPU = {"cpu": "4", "nvidia.com/gpu": "1"}


def light(*args, image="stable-diffusion", requests=None, limits=None, **rest):
    main = container(
        image=image,
        command=["python", "run.py"],
        args=args or ["--steps", "20"],
        requests=GPU if requests is None else requests,
        limits=limits,
    )
    return job(main, **rest)


SAME = job_class.of_job(light())

NUMBERS = re.compile(
    r"\b(?=[0-9a-f-]*[0-9])[0-9a-f][0-9a-f-]{7,}\b"
    r"|[0-9]+(?:[.,_:][0-9]+)*(?:e[+-]?[0-9]+)?",
    re.IGNORECASE,
)
"""What is masked, written down plainly: it takes the square of the text."""


@pytest.mark.parametrize(
    "other",
    [
        light(name="light-2", queue="cpu-lq", labels={"a": "b"}, annotations={"a": "b"}),
        light(requests={"cpu": "4000m", "nvidia.com/gpu": "1"}),
        light(requests={"cpu": "4"}, limits={"nvidia.com/gpu": "1"}),
        light(limits={"cpu": "8"}),
    ],
    ids=["another name", "other words for an amount", "a limit stands for it", "a higher limit"],
)
def test_jobs_that_run_alike_are_of_one_class(other):
    assert job_class.of_job(other) == SAME


@pytest.mark.parametrize(
    "other",
    [
        light(image="stable-diffusion:2"),
        light(requests={**GPU, "cpu": "8"}),
        light(count=2),
        light("--steps", "20", "--fast"),
    ],
    ids=["image", "requests", "count", "arguments"],
)
def test_another_image_amount_count_or_argument_is_another_class(other):
    found = job_class.of_job(other)

    assert found.key != SAME.key
    assert found.coarse != SAME.coarse


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (["--steps", "20"], ["--steps", "50"]),
        (["--lr=1e-4"], ["--lr=3.5e-5"]),
        (["--seed=7", "part-003"], ["--seed=8", "part-117"]),
        (["run-3fa9c2d1"], ["run-90b1ffe4"]),
        (["6f1e7a9c-16a6-4a58-9f2c-0a2f5b7c1d3e"], ["0c8a11de-22f1-4b0e-8f44-9b7a6a5f1234"]),
    ],
)
def test_numbers_in_arguments_make_classes_of_one_coarse_class(first, second):
    one, other = (job_class.of_job(light(*args)) for args in (first, second))

    assert one.key != other.key
    assert one.coarse == other.coarse


@given(st.text("ab1-z", max_size=50) | st.text("afAF09-_:.,egG ", max_size=50))
def test_numbers_are_those_that_one_plain_expression_finds(text):
    assert job_class.masked(text) == NUMBERS.sub("#", text)


def test_numbers_far_into_the_words_keep_coarse_classes_apart():
    script = "do something;" * 400

    early, other = (job_class.of_job(light(number, script)) for number in ("1", "2"))
    late, later = (job_class.of_job(light(script, number)) for number in ("1", "2"))

    assert early.coarse == other.coarse
    assert late.coarse != later.coarse


def test_words_keep_coarse_classes_apart():
    one, other = (job_class.of_job(light("--data", name)) for name in ("laion", "facade"))

    assert one.coarse != other.coarse


def test_env_makes_no_difference():
    plain = container(image="x")
    with_env = container(image="x", env=({"name": "A", "value": "1"},))

    assert job_class.of_job(job(plain)) == job_class.of_job(job(with_env))


def test_init_containers_count():
    with_init = job(pods=template(container(image="x"), init=[container("i", image="fetch")]))

    assert job_class.of_job(with_init) != job_class.of_job(job(container(image="x")))


def test_a_label_names_the_class_and_jobs_without_it_have_their_own():
    labelled = light("--steps", "50", labels={"model": "llama-7b"})

    assert job_class.of_job(labelled, label="model") == JobClass("team/model=llama-7b", SAME.coarse)
    assert job_class.of_job(light(labels={"model": ""}), label="model") == SAME
    assert job_class.of_job(light(), label="model") == SAME


def test_command_and_arguments_are_read_from_a_manifest():
    main = {"name": "main", "image": "stable-diffusion", "command": ["python", "run.py"]}
    main |= {"args": ["--steps", "20"], "resources": {"requests": GPU}}
    spec = {"template": {"spec": {"containers": [main]}}}
    source = {"metadata": {"namespace": "team"}, "spec": spec}

    assert job_class.of_job(batch.read_job(source)) == SAME


def test_classes_stay_the_same_between_versions():
    assert JobClass("team/44eea1809923263b", "team/~0cf58f346c13255a") == SAME


@pytest.mark.parametrize("home", ["team", "*light-gpu"])
@pytest.mark.parametrize("said", [0, 1, 999_999_999])
def test_what_is_written_on_the_pods_is_read_again(home, said):
    coarse = SAME.coarse.replace("team", home)
    mark = Mark(JobClass(f"{home}/model=llama-7b", coarse), 3, said)

    assert job_class.parse_mark(job_class.mark_text(mark), "team") == mark


def test_a_class_that_namespaces_share_is_the_same_in_each():
    one, other = (
        job_class.of_job(light(namespace=namespace), shared=job_class.shared_home("light-gpu"))
        for namespace in ("team", "another-team")
    )
    mark = Mark(one, 3)

    assert one == other != SAME
    assert job_class.parse_mark(job_class.mark_text(mark), "another-team") == mark


def test_classes_of_two_namespaces_have_nothing_in_common():
    other = job_class.of_job(light(namespace="another-team"))

    assert {*other}.isdisjoint(SAME)


@pytest.mark.parametrize("text", ["", "a b", "a b c", "a b 1 2 3", "a b ²"])
def test_anything_else_on_the_pods_is_no_mark(text):
    assert job_class.parse_mark(text, "team") is None


@pytest.mark.parametrize(
    ("image", "command", "name"),
    [
        ("registry.example.com/team/trainer:v2", ["python", "a.py"], "trainer:v2 python"),
        ("mysql:8", ["/usr/bin/mysql -phunter2", "-phunter2"], "mysql:8 mysql"),
        ("mysql:8", [], "mysql:8"),
        ("mysql:8", ["  "], "mysql:8"),
        ("a" * 80, ["sh"], "a" * 59 + "…"),
    ],
)
def test_a_class_is_named_by_image_and_program_and_by_no_argument(image, command, name):
    assert job_class.name_of(image, command) == name


STEPS = {"args": ("--steps", "-s"), "env": ("STEPS",)}


def with_steps(steps):
    return job(container(image="x", command=["run"], env=({"name": "STEPS", "value": steps},)))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (light("--steps", "5"), light("--steps", "30")),
        (light("--steps=5"), light("--steps=30")),
        (light("-s", "5"), light("-s", "30")),
        (with_steps("5"), with_steps("30")),
    ],
    ids=["two words", "one word", "short", "variable"],
)
def test_named_values_tell_classes_apart_the_coarse_ones_too(first, second):
    one, other = (job_class.of_job(each, **STEPS) for each in (first, second))

    assert job_class.of_job(first).coarse == job_class.of_job(second).coarse
    assert one.key != other.key
    assert one.coarse != other.coarse


def test_numbers_that_no_policy_names_are_left_out_of_the_coarse_class():
    one, other = (
        job_class.of_job(light("--steps", "5", "--seed", seed), **STEPS) for seed in ("1", "2")
    )

    assert one.coarse == other.coarse


def test_a_flag_keeps_the_class_that_its_workload_tells_without_a_mark():
    assert job_class.of_job(light(), **STEPS).key == SAME.key


def test_a_label_and_a_flag_tell_apart_together():
    by = {"label": "model", "args": ("--steps",)}
    few, many, unsaid = (
        job_class.of_job(light(*args, labels={"model": "llama"}), **by).key
        for args in (("--steps", "5"), ("--steps", "30"), ("--fast",))
    )

    assert few != many
    assert unsaid == "team/model=llama"
    assert re.fullmatch("team/[0-9a-f]{16}", few)
