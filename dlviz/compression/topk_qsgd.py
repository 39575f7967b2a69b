"""Top-k of each bucket, its values quantised: the lecture's Top16_Q4 is 16 of 512 in 4 bits.

    bucket of 512 ->  16 largest  -> | norm of the 16 (float32) | 16 x (index 9 bits, code 4 bits) |

30 bytes a bucket in place of 2,048. The rounding is QSGD's, by chance, of the 16 values alone.

Source: C. Renggli et al., "SparCML: High-Performance Sparse Communication for Machine Learning",
SC 2019.
"""

from __future__ import annotations

import numpy as np
import torch

from dlviz.compression.compressor import Code, Compressor, in_rows, pack, unpack
from dlviz.compression.qsgd import check_bits, norms_of, rounded, signed, values_of
from dlviz.counts import check_counts


class TopKQSGD(Compressor):
    """The `keep` largest of each bucket of `per` values, in `bits` bits each."""

    name = "topk_qsgd"

    def __init__(self, keep: int = 16, per: int = 512, bits: int = 4, seed: int = 0):
        check_counts(keep=keep, per=per)
        check_bits(bits)
        if keep > per:
            raise ValueError(
                f"keep={keep} is more than the per={per} values of a bucket: keep fewer."
            )
        if per > 256**2 >> bits:
            raise ValueError(
                f"per={per} has indices too long for 16 bits with bits={bits}: "
                f"use per={256**2 >> bits} or less."
            )
        super().__init__(keep=keep, per=per, bits=bits, seed=seed)
        self.keep, self.per, self.bits = keep, per, bits
        self.wide = bits + (per - 1).bit_length()  # bits of an index and a code
        self.levels = 2 ** (bits - 1) - 1

    def _encode(self, flat: torch.Tensor) -> Code:
        n, rows = flat.numel(), in_rows(flat.numpy(), self.per)
        sizes = np.abs(rows)
        sizes[-1, n - rows.size + self.per :] = -1  # what fills the last bucket is never sent
        at = np.argpartition(sizes, self.per - self.keep, axis=1)[:, self.per - self.keep :]
        at.sort(axis=1)
        if (rest := n % self.per) and rest < self.keep:
            at[-1] = np.arange(self.keep)  # all of them, and what fills up
        values = np.take_along_axis(rows, at, axis=1)
        norms = norms_of(values)
        levels = rounded(values, norms, self.levels, self.rng)
        words = at << self.bits | signed(levels, values, self.bits)
        words = words.astype(np.uint8 if self.wide <= 8 else np.uint16)
        packed = pack(words, self.wide).reshape(-1)
        return [
            torch.from_numpy(norms),
            torch.from_numpy(packed[: self.nbytes(n) - norms.nbytes]),
        ]

    def decode(self, code: Code, n: int) -> torch.Tensor:
        norms = code[0].numpy()
        packed = in_rows(code[1].numpy(), -(-self.keep * self.wide // 8))
        words = unpack(packed, self.keep, self.wide)
        rows = np.zeros((len(norms), self.per), np.float32)
        at = (words >> self.bits).astype(np.int64)
        values = values_of(words & (1 << self.bits) - 1, norms, self.bits)
        if (rest := n % self.per) and rest < self.keep:
            at[-1], values[-1, rest:] = np.arange(self.keep), 0
        np.put_along_axis(rows, at, values, axis=1)
        return torch.from_numpy(rows.reshape(-1)[:n])

    def nbytes(self, n: int) -> int:
        full, rest = divmod(n, self.per)
        last = 4 + -(-min(self.keep, rest) * self.wide // 8) if rest else 0
        return full * (4 + -(-self.keep * self.wide // 8)) + last
