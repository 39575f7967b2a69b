"""1-bit SGD: of each value its sign; of a bucket the mean of either sign.

    bucket    0.5  -0.2   0.1  -0.4        bits  1 0 1 0      means  0.3 (0 and above), -0.3 (below)
    decoded   0.3  -0.3   0.3  -0.3

Each value stands for the mean of its kind, which is the best that two numbers can do: what the code
stands for is the projection of v on the two kinds, so |v - C(v)|^2 = |v|^2 - |C(v)|^2, a
contraction. It is biased: without error feedback it may not learn at all.

Source: F. Seide et al., "1-Bit Stochastic Gradient Descent and its Application to Data-Parallel
Distributed Training of Speech DNNs", Interspeech 2014 (there a bucket is a column of the weights).
"""

from __future__ import annotations

import numpy as np
import torch

from dlviz.compression.compressor import Code, Compressor, in_blocks, in_rows, packed_size
from dlviz.counts import check_counts


class OneBit(Compressor):
    """A bit a value, and two float32 for each bucket of `per` values."""

    name = "one_bit"

    def __init__(self, per: int = 512):
        check_counts(per=per)
        super().__init__(per=per)
        self.per = per

    def _encode(self, flat: torch.Tensor) -> Code:
        n, bits, sums, above = flat.numel(), [], [], []
        left = n  # the rest is zeros that fill the last bucket
        for rows in in_blocks(flat.numpy(), self.per):
            positive, values = rows >= 0, torch.from_numpy(rows)
            positive.reshape(-1)[left:] = False
            left -= rows.size
            bits.append(np.packbits(positive, axis=1).reshape(-1))
            above.append(np.count_nonzero(positive, axis=1))
            halves = values.clamp(min=0), values.clamp(max=0)
            sums.append(torch.stack([half.sum(1, dtype=torch.float64) for half in halves], 1))
        counts = np.concatenate(above)
        counts = np.stack([counts, self.per - counts], axis=1)
        counts[-1, 1] -= -n % self.per
        means = torch.cat(sums) / torch.from_numpy(counts).clamp(min=1)  # (buckets, 2)
        packed = np.concatenate(bits)[: packed_size(n, self.per, 1)]
        return [means.float().flatten(), torch.from_numpy(packed)]

    def decode(self, code: Code, n: int) -> torch.Tensor:
        above, below = code[0].view(-1, 2).numpy().T[..., None]  # (buckets, 1) each
        bits = np.unpackbits(in_rows(code[1].numpy(), -(-self.per // 8)), axis=1, count=self.per)
        values = bits * above
        values += (bits ^ 1) * below
        return torch.from_numpy(values.reshape(-1)[:n])

    def nbytes(self, n: int) -> int:
        return 8 * -(-n // self.per) + packed_size(n, self.per, 1)
