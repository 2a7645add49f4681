"""Kueue's Deployment, in the shapes in which people install it, and in odd ones."""

import pytest

from tests.state.kueue import ARGUMENTS, IMAGE, VOLUMES, deployment
from webhook.model.kueue_support import KueueManager
from webhook.state.kueue_config import read_kueue_manager


def read(**given):
    return read_kueue_manager(deployment(**given))


def test_the_charts_deployment():
    assert read() == KueueManager(version="v0.19.2")


@pytest.mark.parametrize(
    ("image", "version", "unknown"),
    [
        ("localhost:5000/kueue:0.19.2", "0.19.2", ""),
        (f"{IMAGE}@sha256:{'a' * 64}", "v0.19.2", ""),
        (f"kueue@sha256:{'a' * 64}", "", f"its image has no tag: 'kueue@sha256:{'a' * 46}…'"),
        ("localhost:5000/kueue", "", "its image has no tag: 'localhost:5000/kueue'"),
        ("kueue:latest", "", "the tag of its image is no version: 'latest'"),
        ("kueue:sha-19ab", "", "the tag of its image is no version: 'sha-19ab'"),
        ("", "", "its image has no tag: ''"),
        (None, "", "its image has no tag: ''"),
        (["kueue:v0.19.2"], "", "its image has no tag: ''"),
    ],
)
def test_the_version_is_the_tag_of_the_image(image, version, unknown):
    found = read(image=image)

    assert (found.version, found.unknown_version) == (version, unknown)


@pytest.mark.parametrize(
    ("words", "gates"),
    [
        (["--feature-gates=PriorityBoost=true"], {"PriorityBoost": True}),
        (["-feature-gates", "A=T,B=0, C = false ,"], {"A": True, "B": False, "C": False}),
        (["--feature-gates=A=true", "--feature-gates=B=1"], {"B": True}),
        (["--feature-gates="], None),
        (["--zap-devel", "--feature-gates=A=true"], {"A": True}),
        (["--", "--feature-gates=A=true"], None),
    ],
)
def test_gates_are_read_as_kueue_reads_them(words, gates):
    assert read(args=[*ARGUMENTS, *words]).gates == gates
    assert read(args=ARGUMENTS, command=["/manager", *words]).gates == (
        None if words[0] == "--" else gates
    )


@pytest.mark.parametrize("gates", ["A", "A=maybe", "$(GATES)", "A=true;B=true"])
def test_gates_that_cannot_be_read_are_unknown(gates):
    found = read(args=[*ARGUMENTS, f"--feature-gates={gates}"])

    assert found == KueueManager(
        version="v0.19.2",
        unreadable=f"--feature-gates: expected NAME=true or =false: {gates!r}",
    )


def test_thousands_of_gates_are_read():
    text = ",".join(f"Gate{number}=true" for number in range(20_000))

    assert len(read(args=[f"--feature-gates={text}"]).gates) == 20_000


def test_without_a_configuration_kueue_takes_its_defaults():
    assert read(args=[], volumes=[]) == KueueManager(version="v0.19.2", has_configuration=False)


def test_a_configuration_from_elsewhere_is_unknown():
    volumes = [{"name": "manager-config", "configMap": {"name": "another"}}]

    found = read(volumes=volumes)

    assert found.unreadable == "its Deployment mounts no ConfigMap kueue-manager-config"


def test_injected_containers_are_told_from_kueues_own():
    assert read(also=[{"name": "proxy", "image": "proxy:v1"}]).version == "v0.19.2"


def test_a_single_container_is_kueues_whatever_its_name():
    source = deployment()
    source["spec"]["template"]["spec"]["containers"][0]["name"] = "kueue"

    assert read_kueue_manager(source).version == "v0.19.2"


@pytest.mark.parametrize(
    ("source", "unknown"),
    [
        ({}, "spec.template.spec.containers: expected one with the name manager"),
        ({"spec": []}, "spec: expected an object, got a list"),
        ({"spec": {"template": {"spec": {"containers": 3}}}}, "spec.template.spec.containers"),
        ({"spec": {"template": {"spec": {"containers": ["a"]}}}}, "spec.template.spec.containers"),
        ({"spec": {"template": {"spec": {"containers": [{}, {}]}}}}, "expected one with the name"),
    ],
)
def test_a_deployment_of_an_odd_shape_leaves_everything_unknown(source, unknown):
    found = read_kueue_manager(source)

    assert unknown in found.unknown_version
    assert found.unreadable == found.unknown_version


@pytest.mark.parametrize(
    ("args", "volumes"),
    [
        (3, VOLUMES),
        ([3], VOLUMES),
        ([{}], VOLUMES),
        (ARGUMENTS, 3),
        (ARGUMENTS, [{"configMap": 1}]),
    ],
)
def test_arguments_of_an_odd_shape_leave_the_configuration_unknown(args, volumes):
    found = read(args=args, volumes=volumes)

    assert found.version == "v0.19.2"
    assert "expected" in found.unreadable
