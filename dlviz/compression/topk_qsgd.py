"""Few values in few bits: the largest of each bucket, rounded as QSGD rounds (the lecture's
Top16_Q4: 16 of 512, 4 bits each).

    a bucket | norm of the values sent: 4 bytes | index, sign, level | index, sign, level | ...

Source: C. Renggli et al., "SparCML: High-Performance Sparse Communication for Machine Learning",
SC 2019.
"""

from __future__ import annotations

import math

import torch

from dlviz.compression.bits import pack_rows, rows_of_bytes, unpack_rows
from dlviz.compression.compressor import Random, bucketed, rows_of, values_of
from dlviz.compression.packing import Code
from dlviz.compression.qsgd import check_bits, rounded, signed_levels, with_sign
from dlviz.counts import check_counts


class TopKQSGD(Random):
    """The `keep` largest of each bucket of `per` values, in `bits` bits with an index of
    ceil(log2 per).

    Cost: ceil(keep (index + bits) / 8) + 4 bytes a bucket.
    """

    name = "topk_qsgd"

    def __init__(self, keep: int = 16, per: int = 512, bits: int = 4, seed: int = 0):
        check_bits(bits)
        check_counts(keep=keep, per=per)
        if keep > per:
            raise ValueError(f"keep={keep} is more than the per={per} values of a bucket.")
        super().__init__(seed=seed, keep=keep, per=per, bits=bits)
        self.levels = 2 ** (bits - 1) - 1
        self._word = bits + math.ceil(math.log2(per))

    def encode(self, flat: torch.Tensor) -> Code:
        bits, norms, packed = self.options["bits"], [], []
        for rows in rows_of(values_of(flat), self.options["per"]):
            keep = min(self.options["keep"], rows.shape[1])
            indices = rows.abs().topk(keep, dim=1).indices.sort(dim=1).values  # (buckets, keep)
            chosen = rows.gather(1, indices)
            norm, level = rounded(chosen, self.levels, self._draws)
            words = (indices << bits) | with_sign(chosen, level, bits).long()
            norms.append(norm.flatten())
            packed.append(pack_rows(words, self._word).flatten())
        none = torch.empty(0)
        return [torch.cat([none, *norms]), torch.cat([none.to(torch.uint8), *packed])]

    def decode(self, code: Code, n: int) -> torch.Tensor:
        norms, packed = code
        bits, per, found = self.options["bits"], self.options["per"], []
        for rows in rows_of_bytes(packed, n, per, self._bytes(per)):
            k = per if n >= per and not found else n % per
            words = unpack_rows(rows, min(self.options["keep"], k), self._word)
            own, norms = norms[: len(rows), None], norms[len(rows) :]
            values = signed_levels(words & (2**bits - 1), bits) * (own / self.levels)
            found.append(torch.zeros(len(rows), k).scatter_(1, words >> bits, values).flatten())
        return torch.cat([torch.empty(0), *found])

    def _bytes(self, k: int) -> int:
        return math.ceil(min(self.options["keep"], k) * self._word / 8)

    def nbytes(self, n: int) -> int:
        return bucketed(n, self.options["per"], lambda k: 4 + self._bytes(k))
