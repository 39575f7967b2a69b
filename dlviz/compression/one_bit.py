"""One bit a value: whether it is 0 or above, or below 0; and for each bucket the two means that the
bits stand for.

    v      0.5  -1.0   0.1  -0.2        bits 1 0 1 0, means 0.3 and -0.6
    code   0.3  -0.6   0.3  -0.6

The means make the error of a bucket as small as two values can. They are biased all the same: a
small value becomes as large as its neighbours. 1-bit SGD adds what was lost to the next gradient
(feedback.py), without which it does not learn.

Source: F. Seide et al., "1-Bit Stochastic Gradient Descent and its Application to Data-Parallel
Distributed Training of Speech DNNs", Interspeech 2014.
"""

from __future__ import annotations

import math

import numpy as np
import torch

from dlviz.compression.bits import rows_of_bytes
from dlviz.compression.compressor import Compressor, bucketed, rows_of, values_of
from dlviz.compression.packing import Code
from dlviz.counts import check_counts


class OneBit(Compressor):
    """A bit a value and two float32 means for each bucket of `per` values.

    Cost: ceil(k / 8) + 8 bytes for a bucket of k.
    """

    name = "one_bit"

    def __init__(self, per: int = 512):
        check_counts(per=per)
        super().__init__(per=per)

    def encode(self, flat: torch.Tensor) -> Code:
        bits, means = [], []
        for rows in rows_of(values_of(flat), self.options["per"]):  # (buckets, k)
            above = rows >= 0
            count = above.sum(1)  # (buckets,)
            up = rows.clamp(min=0).sum(1) / count.clamp(min=1)
            down = rows.clamp(max=0).sum(1) / (rows.shape[1] - count).clamp(min=1)
            bits.append(torch.from_numpy(np.packbits(above.numpy(), axis=1)).flatten())
            means.append(torch.stack([down, up], 1).flatten())
        return [_joined(bits, torch.uint8), _joined(means, torch.float32)]

    def decode(self, code: Code, n: int) -> torch.Tensor:
        bits, means = code
        per, found = self.options["per"], []
        pairs = means.view(-1, 2)  # below, above
        for rows in rows_of_bytes(bits, n, per, math.ceil(per / 8)):
            k = per if n >= per and not found else n % per
            above = torch.from_numpy(np.unpackbits(rows.numpy(), axis=1, count=k)).bool()
            own, pairs = pairs[: len(rows)], pairs[len(rows) :]
            found.append(torch.where(above, own[:, 1:], own[:, :1]).flatten())
        return _joined(found, torch.float32)

    def nbytes(self, n: int) -> int:
        return bucketed(n, self.options["per"], lambda k: math.ceil(k / 8) + 8)


def _joined(parts: list[torch.Tensor], dtype: torch.dtype) -> torch.Tensor:
    return torch.cat(parts) if parts else torch.empty(0, dtype=dtype)
