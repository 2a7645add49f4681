"""Pods that run as long as they say."""

from hack import kwok


def test_only_the_stage_that_ends_a_pod_waits():
    stages = [
        {"metadata": {"name": "pod-ready"}, "spec": {}},
        {"metadata": {"name": "pod-complete"}, "spec": {}},
    ]

    ready, complete = kwok.with_run_times(stages)

    assert ready == stages[0]
    assert complete["spec"]["delay"]["durationMilliseconds"] == 1000
    assert stages[1]["spec"] == {}


def test_a_pod_fails_at_its_end_only_if_it_says_so_and_has_no_gpu():
    template = "exitCode: 0\nreason: Completed\nphase: Succeeded\n"
    stages = [
        {"metadata": {"name": "pod-ready"}, "spec": {"next": {"statusTemplate": template}}},
        {"metadata": {"name": "pod-complete"}, "spec": {"next": {"statusTemplate": template}}},
    ]

    ready, complete = kwok.with_failures(stages)

    assert ready == stages[0]
    assert complete["spec"]["next"]["statusTemplate"] == kwok.FAILS.lstrip() + (
        "exitCode: {{ if $fails }}1{{ else }}0{{ end }}\n"
        "reason: {{ if $fails }}Error{{ else }}Completed{{ end }}\n"
        "phase: {{ if $fails }}Failed{{ else }}Succeeded{{ end }}\n"
    )
    assert kwok.CPU_FAILS in kwok.FAILS


def test_nodes_are_fake_and_some_have_gpus():
    nodes = kwok.nodes()

    assert {node["metadata"]["annotations"]["kwok.x-k8s.io/node"] for node in nodes} == {"fake"}
    assert [node["metadata"]["name"] for node in nodes] == ["cpu-0", "cpu-1", "gpu-0", "gpu-1"]
    assert [node["status"]["allocatable"][kwok.GPU] for node in nodes] == ["0", "0", "1k", "1k"]
