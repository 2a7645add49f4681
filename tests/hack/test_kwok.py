"""Pods that run as long as they say."""

import copy

from hack import kwok

ENDS = "exitCode: 0\nreason: Completed\nphase: Succeeded\n"
READY = """\
hostIP: {{ index . 0 | Quote }}
{{ $podIPs := PodIPsWith .spec.nodeName }}
{{ with $podIPs }}
podIP: {{ index . 0 | Quote }}
{{ end }}
phase: Running
"""


def played(name, template):
    stage = {
        "metadata": {"name": name},
        "spec": {"delay": {"durationMilliseconds": 0}, "next": {"statusTemplate": template}},
    }
    before = copy.deepcopy(stage)
    (changed,) = kwok.played([stage])
    assert stage == before
    return changed["spec"]


def test_a_pod_is_ready_at_once_and_runs_a_second_unless_it_says_otherwise():
    ready, complete = played("pod-ready", READY)["delay"], played("pod-complete", ENDS)["delay"]

    assert (ready["durationMilliseconds"], complete["durationMilliseconds"]) == (0, 1000)
    assert kwok.STARTS_IN in ready["durationFrom"]["expressionFrom"]
    assert complete["durationFrom"]["expressionFrom"] == kwok.RUN_TIME.strip()


def test_a_pod_fails_at_its_end_only_if_it_says_so_and_has_no_gpu():
    assert played("pod-complete", ENDS)["next"]["statusTemplate"] == kwok.FAILS.lstrip() + (
        "exitCode: {{ if $fails }}1{{ else }}0{{ end }}\n"
        "reason: {{ if $fails }}Error{{ else }}Completed{{ end }}\n"
        "phase: {{ if $fails }}Failed{{ else }}Succeeded{{ end }}\n"
    )
    assert kwok.CPU_FAILS in kwok.FAILS


def test_a_pod_may_be_made_ready_twice():
    spec = played("pod-ready", READY)

    assert spec["next"]["statusTemplate"] == "hostIP: {{ index . 0 | Quote }}\nphase: Running\n"
    assert spec["immediateNextStage"] is True


def test_nodes_are_fake_and_some_have_gpus():
    nodes = kwok.nodes()

    assert {node["metadata"]["annotations"]["kwok.x-k8s.io/node"] for node in nodes} == {"fake"}
    assert [node["metadata"]["name"] for node in nodes] == ["cpu-0", "cpu-1", "gpu-0", "gpu-1"]
    assert [node["status"]["allocatable"][kwok.GPU] for node in nodes] == ["0", "0", "1k", "1k"]
