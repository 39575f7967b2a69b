"""Compressed gradients: a vector to a small code and back. No communication here."""

from __future__ import annotations

import inspect
from typing import Any

from dlviz.compression.coding import measure_coding, variance
from dlviz.compression.compressor import Code, Compressor
from dlviz.compression.feedback import Feedback
from dlviz.compression.half import BF16, FP16
from dlviz.compression.lossless import Lossless
from dlviz.compression.one_bit import OneBit
from dlviz.compression.power import Power
from dlviz.compression.qsgd import QSGD, rounding_variance
from dlviz.compression.topk import Threshold, TopK
from dlviz.compression.topk_qsgd import TopKQSGD

_KINDS: dict[str, type[Compressor]] = {
    kind.name: kind
    for kind in (FP16, BF16, QSGD, OneBit, TopK, Threshold, TopKQSGD, Lossless, Power)
}
NAMES = tuple(_KINDS)

__all__ = [
    "NAMES", "Code", "Compressor", "Feedback", "make", "measure_coding", "rounding_variance",
    "variance",
]  # fmt: skip


def make(name: str, **options: Any) -> Compressor:
    """The compressor of that name, one of `NAMES`, with its options: bits, per, elias (qsgd), per
    (one_bit), share (topk), at (threshold), keep, per, bits (topk_qsgd), rank (power), scale (fp16,
    bf16), and a seed for those that draw. Raises ValueError for an unknown name or option, and for
    an invalid value."""
    if name not in _KINDS:
        raise ValueError(f"name={name!r} is not a compressor: use one of {', '.join(NAMES)}.")
    known = inspect.signature(_KINDS[name]).parameters
    for option, value in options.items():
        if option not in known:
            raise ValueError(
                f"{option}={value!r}: {name} has no such option, but {', '.join(known) or 'none'}."
            )
        if value is None:
            raise ValueError(f"{option}=None has to be a value.")
    return _KINDS[name](**options)
