"""Variables that differ between options are read from an annotation: a move can change those."""

from dataclasses import replace

import pytest

from tests.builders import CPU_OPTION, GPU_OPTION, container, job, policy, template
from webhook.adapt.adaptation import adapt
from webhook.adapt.movable_env import as_literals, still_movable, with_movable_env
from webhook.model.job import ENV_PREFIX

GPU = {"name": "RUN_ENV", "value": "gpu"}
SECRET = {"name": "RUN_ENV", "valueFrom": {"secretKeyRef": {"name": "a", "key": "b"}}}
READ = {
    "name": "RUN_ENV",
    "valueFrom": {
        "fieldRef": {
            "apiVersion": "v1",
            "fieldPath": "metadata.annotations['kueue-fallback.dev/env.RUN_ENV']",
        }
    },
}


def option(name, **env):
    return {"name": name, "queue": f"{name}-lq", "adaptation": {"env": env}}


def policy_of(*options, reconsiders=True):
    return policy(*options, **({"reconsider": {}} if reconsiders else {}))


def under(name, *options, pods, reconsiders=True):
    """The containers' environments and the annotations under one of the options."""
    found = policy_of(*options, reconsiders=reconsiders)
    taken = next(each for each in found.spec.options if each.name == name)
    before = job(pods=pods)
    after = with_movable_env(before, adapt(before, taken), taken, found).pod_sets[0].template
    read = {key.removeprefix(ENV_PREFIX): value for key, value in after.annotations.items()}
    return [list(each.env) for each in (*after.containers, *after.init_containers)], read


def test_without_moves_it_is_read_where_an_option_changes_it():
    pods = template(container(env=(GPU,)))

    found = under("cpu", GPU_OPTION, CPU_OPTION, pods=pods, reconsiders=False)
    stays = under("gpu", GPU_OPTION, CPU_OPTION, pods=pods, reconsiders=False)

    assert (found, stays) == (([[READ]], {"RUN_ENV": "cpu"}), ([[GPU]], {}))


def test_what_was_not_set_stays_literal_without_moves():
    options = option("a", MODE="1"), option("b", MODE="2")

    found = under("b", *options, pods=template(container()), reconsiders=False)

    assert found == ([[{"name": "MODE", "value": "2"}]], {})


def test_what_all_options_set_alike_is_read_where_the_job_says_otherwise():
    found = under(
        "b",
        option("a", RUN_ENV="x"),
        option("b", RUN_ENV="x"),
        pods=template(container(env=(GPU,))),
    )

    assert found == ([[READ]], {"RUN_ENV": "x"})


@pytest.mark.parametrize("name", ["gpu", "cpu"])
def test_it_is_read_from_the_options_value(name):
    found = under(name, GPU_OPTION, CPU_OPTION, pods=template(container(env=(GPU,))))

    assert found == ([[READ]], {"RUN_ENV": name})


def test_it_keeps_its_place_and_of_several_of_one_name_the_last_counts():
    env = ({"name": "RUN_ENV", "value": "x"}, GPU, {"name": "B", "value": "$(RUN_ENV)"})

    (found,), _ = under("cpu", GPU_OPTION, CPU_OPTION, pods=template(container(env=env)))

    assert found == [env[0], READ, env[2]]


def test_options_that_all_set_it_need_nothing_of_the_job():
    pods = template(container(), init=[container("first")])

    found = under("b", option("a", MODE="1"), option("b", MODE="2"), pods=pods)

    path = "metadata.annotations['kueue-fallback.dev/env.MODE']"
    mode = {"name": "MODE", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}
    assert found == ([[mode], [mode]], {"MODE": "2"})


def test_a_container_in_which_it_never_changes_stays_literal():
    same = {"name": "RUN_ENV", "value": "cpu"}
    pods = template(container(env=(GPU,)), container("b", env=(same,)))

    assert under("gpu", GPU_OPTION, CPU_OPTION, pods=pods) == ([[READ], [same]], {"RUN_ENV": "gpu"})


@pytest.mark.parametrize(
    "pods",
    [
        template(container()),
        template(container(env=(GPU,)), init=[container("first")]),
        template(container(env=(SECRET,))),
        template(container(env=(GPU,)), container("b", env=({**GPU, "value": "other"},))),
        template(container(env=({**GPU, "value": "$(HOME)/gpu"},))),
        template(container(env=({**GPU, "value": "$$(HOME)"},))),
        template(container(env=({"name": "RUN_ENV", "value": "cpu"},))),
    ],
    ids=["unset", "unset in one", "read", "two values", "expanded", "escaped", "the same"],
)
@pytest.mark.parametrize("name", ["gpu", "cpu"])
def test_what_cannot_be_read_for_every_option_stays_literal(pods, name):
    before = job(pods=pods)
    found = policy_of()
    taken = next(each for each in found.spec.options if each.name == name)
    adapted = adapt(before, taken)

    assert with_movable_env(before, adapted, taken, found) is adapted


def test_what_the_job_reads_from_elsewhere_stays_where_all_options_set_it():
    pods = template(container(env=({**SECRET, "name": "MODE"},)))

    found = under("b", option("a", MODE="1"), option("b", MODE="2"), pods=pods)

    assert found == ([[{"name": "MODE", "value": "2"}]], {})


@pytest.mark.parametrize(
    ("name", "is_read"),
    [("A" * 59, True), ("A" * 60, False), ("A_", False), ("a.b-C", True), ("A B", False)],
)
def test_its_name_must_make_an_annotations_name(name, is_read):
    pods = template(container(env=({"name": name, "value": "0"},)))
    found = policy_of(option("a"), option("b"), reconsiders=False)
    adaptation = found.spec.options[0].adaptation.model_copy(update={"env": {name: "1"}})
    taken = found.spec.options[0].model_copy(update={"adaptation": adaptation})
    before = job(pods=pods)

    after = with_movable_env(before, adapt(before, taken), taken, found)

    assert bool(after.pod_sets[0].template.annotations) == is_read


def left(now, then):
    """What is left of the environments of pods that are to be as submitted."""
    (pod_set,) = still_movable(job(pods=now), job(pods=then)).pod_sets
    read = {
        key.removeprefix(ENV_PREFIX): value for key, value in pod_set.template.annotations.items()
    }
    return [list(each.env) for each in pod_set.template.containers], read


def test_what_is_read_from_an_annotation_stays_so_with_the_submitted_value():
    other = {"name": "B", "value": "1"}
    then = template(container(env=(GPU, other)), container("b", env=(GPU,)))

    found = left(template(container(env=(READ, other)), container("b", env=(GPU,))), then)

    assert found == ([[READ, other], [GPU]], {"RUN_ENV": "gpu"})


@pytest.mark.parametrize(
    "submitted",
    [
        ((GPU,), ({"name": "RUN_ENV", "value": "cpu"},)),
        ((GPU,), ()),
        ((SECRET,), (SECRET,)),
        ((READ,), (READ,)),
        (({"name": "RUN_ENV", "value": "$(A)"},), ({"name": "RUN_ENV", "value": "$(A)"},)),
    ],
)
def test_what_one_annotation_cannot_give_back_is_as_submitted(submitted):
    names = ("main", "b")
    now = template(*(container(name, env=(READ,)) for name in names))
    then = template(*(container(name, env=env) for name, env in zip(names, submitted, strict=True)))

    assert left(now, then) == ([list(env) for env in submitted], {})


def test_what_is_read_from_an_annotation_is_written_out():
    annotations = {ENV_PREFIX + "RUN_ENV": "gpu", "note": "mine"}
    pods = template(container(env=(READ,)), init=[container("i", env=(READ,))])
    reading = job(pods=replace(pods, annotations=annotations))

    written = as_literals(reading).pod_sets[0].template

    assert [each.env for each in (*written.containers, *written.init_containers)] == [(GPU,)] * 2
    assert written.annotations == annotations


@pytest.mark.parametrize("env", [(READ,), (SECRET,), (GPU,), ()])
def test_where_no_annotation_is_read_it_is_the_very_same_job(env):
    before = job(pods=template(container(env=env)))

    assert as_literals(before) is before
