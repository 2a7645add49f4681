"""Tells by their shape which names are accelerators', where no vendor's table has them.

Names of products and instance types are made anew each year, and most of them from the same parts.
"""

from __future__ import annotations

import re
from typing import Final

_KINDS: Final = (
    r"[a-z]?(?:gpu|npu|tpu|ipu|hpu|dcu|mlu|gcu|xpu|vpu|rbln)"
    r"|neuron(?:_?cores?|devices?)?|gaudi|trainium|inferentia|ascend|accelerator|cuda"
)
_PRODUCTS: Final = (
    # NVIDIA: letters of a generation and a number of two or three digits, as in gb200 or a10g.
    r"g?[abhlv]\d{2,3}[a-z]{0,2}|[lpt]4\d?s?|p100|k80|rtx\w*|quadro\w*"
    # AMD, Google, Intel, AWS.
    r"|mi\d{2,3}[a-z]?|tpu\w*|gaudi\d?|trainium\d?|inferentia\d?"
)
_PRODUCT: Final = re.compile(rf"(?<![a-z0-9])(?:\d+x)?(?:{_PRODUCTS})(?:ib)?(?![a-z0-9])")
_KIND: Final = re.compile(rf"(?<![a-z0-9])(?:{_KINDS})s?(?![a-z])")
_LIKE_KIND: Final = re.compile("gpu|accelerator|cuda|nvidia|gaudi|neuron")
_PLACES: Final = re.compile(
    r"zone|region|rack|row|block|spine|leaf|host|datacenter|building|floor|site|arch|os$|version"
)
"""Parts of keys whose values are places or versions, and may look like products (rack a10)."""
_OTHER: Final = re.compile(r"licen[cs]es?|credits?|tokens?|slots?$")
"""Parts of resources that are counted for accelerators and are none."""
_INSTANCE_KEYS: Final = ("instance-type", "instance-family", "machine-family", "/type")
_CATEGORY_KEY: Final = "instance-category"
_INSTANCES: Final = re.compile(
    # EC2's accelerated families, also as SageMaker writes them.
    r"(?:ml[.])?(?:p\d[a-z]*|gr?\d[a-z]*|trn\d[a-z]*|inf\d[a-z]*|dl\d[a-z]*|vt\d)(?:[.-]|$)"
    # Google's accelerator-optimized and TPU machines, Azure's N series, Alibaba's gn.
    r"|(?:a[2-9]x?|ct\d[a-z]*|tpu\w*)(?:-|$)|standard_n[cdgpv]|(?:ecs[.])?[a-z]*gn\d"
)
_CATEGORIES: Final = re.compile(r"(?:g|p|trn|inf|dl|vt)$")


def names_accelerator(name: str) -> bool:
    """Return whether a resource's name, without its domain, is that of a kind of accelerators.

    So are Ray's own resources: ``TPU``, ``neuron_cores``, ``accelerator_type:A100``.
    """
    written = name.lower()
    return _KIND.search(written) is not None and _OTHER.search(written) is None


def names_product(key: str, value: str) -> bool:
    """Return whether a label's value names a product, or its key does; the key without domain."""
    key, value = key.lower(), value.lower()
    return _PLACES.search(key) is None and _PRODUCT.search(f"{key} {value}") is not None


def names_accelerated_node(key: str, value: str) -> bool:
    """Return whether a label, whose key may have a domain, seems to select accelerated nodes."""
    key, value = key.lower(), value.lower()
    if f"/{key}".endswith(_INSTANCE_KEYS) and _INSTANCES.match(value):
        return True
    if key.endswith(_CATEGORY_KEY):
        return _CATEGORIES.match(value) is not None
    name = key.rpartition("/")[2]
    return _LIKE_KIND.search(f"{name} {value}") is not None or names_product(name, value)
