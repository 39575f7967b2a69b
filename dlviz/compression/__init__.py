"""Compressors: a gradient in fewer bytes. One file a compressor, and no communication in it.

    casts.py        fp16, bf16: half of the bits; the codes may be added
    qsgd.py         qsgd: few levels of a norm, rounded at random (elias.py: in few bits each)
    one_bit.py      one_bit: a bit a value, two means a bucket
    topk.py         topk, threshold: only the largest values
    topk_qsgd.py    topk_qsgd: the largest values, in few bits
    lossless.py     lossless: byte planes and zlib
    power.py        power: PowerSGD, two thin matrices; the codes may be added
    feedback.py     what a code loses is added to the next gradient
    torch_hook.py   a compressor under torch's own DistributedDataParallel

`collectives/coded.py` is how codes meet, `data.train(compress=...)` trains with them.
"""

from __future__ import annotations

import inspect
from typing import Any

from dlviz.compression.casts import BF16, FP16
from dlviz.compression.coding import measure_coding
from dlviz.compression.compressor import Compressor
from dlviz.compression.feedback import Feedback, variance
from dlviz.compression.lossless import Lossless
from dlviz.compression.one_bit import OneBit
from dlviz.compression.power import Power
from dlviz.compression.qsgd import QSGD
from dlviz.compression.topk import Threshold, TopK
from dlviz.compression.topk_qsgd import TopKQSGD

__all__ = ["NAMES", "Compressor", "Feedback", "make", "measure_coding", "variance"]

_KINDS: dict[str, type[Compressor]] = {
    kind.name: kind
    for kind in (FP16, BF16, QSGD, OneBit, TopK, Threshold, TopKQSGD, Lossless, Power)
}
NAMES = (*_KINDS,)


def make(name: str, **options: Any) -> Compressor:
    """The compressor of that name, one of `NAMES`:

    fp16, bf16      scale=1.0: by which values are multiplied before
    qsgd            bits=4 for sign and level, per=512 values a bucket, elias=False, seed=0
    one_bit         per=512
    topk            share=0.01 of the values
    threshold       at=0.001: the size from which on a value is sent
    topk_qsgd       keep=16 of per=512 values, bits=4, seed=0
    power           rank=1

    Raises ValueError for an unknown name or option, or an invalid value.
    """
    if name not in _KINDS:
        raise ValueError(f"{name!r} is no compressor: use one of {', '.join(NAMES)}.")
    known = [*inspect.signature(_KINDS[name]).parameters]
    for option in options:
        if option not in known or option == "options":
            raise ValueError(
                f"{option}= is no option of {name!r}, which has "
                f"{', '.join(key for key in known if key != 'options') or 'none'}."
            )
    return _KINDS[name](**options)
