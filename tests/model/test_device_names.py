"""Which names are accelerators' by their shape, and which only look like one."""

import pytest

from webhook.model.device_names import names_accelerated_node, names_accelerator

INSTANCE = "node.kubernetes.io/instance-type"
CATEGORY = "karpenter.k8s.aws/instance-category"


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        *((name, True) for name in ("gpu", "vgpu", "npu", "TPU", "qgpu-core", "mgpu-memory")),
        *((name, True) for name in ("sgpu", "gpu-memory-ratio", "vnpu-core", "cgpu", "ipu")),
        *((name, True) for name in ("neuron_cores", "neuroncore", "accelerator_type:A100")),
        *((name, True) for name in ("TPU-v4-8-head", "HPU", "gpus", "shared-gpu")),
        *((name, False) for name in ("fast-disk", "hca", "gpu-licenses", "gpu-credits", "input")),
        *((name, False) for name in ("cpu", "output", "rdma", "tpusher", "slots")),
    ],
)
def test_resources_of_accelerators_are_told_by_their_name(name, is_one):
    assert names_accelerator(name) is is_one


@pytest.mark.parametrize(
    ("key", "value", "is_one"),
    [
        *(
            (INSTANCE, value, True)
            for value in (
                *("p5.48xlarge", "ml.p5.48xlarge", "p6-b300.48xlarge", "p6e-gb200.36xlarge"),
                *("g6e.xlarge", "gr6.4xlarge", "trn2.48xlarge", "inf2.xlarge", "dl1.24xlarge"),
                *("a3-highgpu-8g", "a4x-highgpu-4g", "g2-standard-4", "ct5lp-hightpu-4t"),
                *("tpu7x-standard-4t", "Standard_NC6s_v3", "Standard_ND96", "ecs.gn7i-c8g1.2x"),
                *("ecs.vgn6i-m4.xlarge", "gd-8xh100ib-i128", "BM.GPU.H100.8"),
            )
        ),
        *(
            (INSTANCE, value, False)
            for value in ("m5.large", "c7g.large", "n2-standard-4", "r6gd.large", "t4g.micro")
        ),
        *((CATEGORY, value, True) for value in ("g", "p", "trn", "inf")),
        *((CATEGORY, value, False) for value in ("c", "m", "r")),
        *(
            ("node-type", value, True)
            for value in (
                *("mi300x", "mi325x", "gb200", "gh200", "b300", "a10g", "a30", "a40", "h20"),
                *("h800", "l20", "l40s", "p100", "rtx4090", "v100s", "gpu-spot", "tpu-v5"),
            )
        ),
        *(("node-type", value, False) for value in ("highmem", "spot", "arm64", "x86", "b", "a1")),
        ("node.coreweave.cloud/type", "gd-8xh100ib-i128", True),
        ("nvidia.com/gpu.clique", "true", True),
        ("topology.kubernetes.io/rack", "a10", False),
        ("kubernetes.io/hostname", "h20", False),
        ("topology.kubernetes.io/zone", "eu-west-1a", False),
        ("kubernetes.io/arch", "arm64", False),
    ],
)
def test_nodes_with_accelerators_are_told_by_their_labels(key, value, is_one):
    assert names_accelerated_node(key, value) is is_one
