"""Sparse codes: only the largest values, each with its index. What is left out is 0.

    topk          ceil(share n) values, the largest in size
    threshold     all values of size `at` or above: few or many, as the gradient is

Top-k loses at most (1 - k/n) |v|^2, so that error feedback carries the rest over. Alone it is
biased: a parameter whose gradient is never among the largest is never moved.

Sources: C. Renggli et al., "SparCML", SC 2019 (top-k SGD); N. Strom, "Scalable Distributed DNN
Training Using Commodity GPU Cloud Computing", Interspeech 2015 (threshold).
"""

from __future__ import annotations

import math

import torch

from dlviz.compression.compressor import Compressor, values_of
from dlviz.compression.packing import Code
from dlviz.counts import check_amounts

SAMPLE = 32  # every 32nd value says what the largest are about
FEW = 2**15  # of so few values all are sorted
SLACK = 1.5  # so many more candidates than wanted


class Sparse(Compressor):
    """Indices, int32 in order, and values, float32."""

    def chosen(self, row: torch.Tensor) -> torch.Tensor:
        """The indices to be sent, in order."""
        raise NotImplementedError

    def encode(self, flat: torch.Tensor) -> Code:
        row = values_of(flat)
        indices = self.chosen(row)
        return [indices.to(torch.int32), row[indices]]

    def decode(self, code: Code, n: int) -> torch.Tensor:
        indices, values = code
        return torch.zeros(n).index_copy_(0, indices.long(), values)


class TopK(Sparse):
    """The ceil(share n) largest values.

    Cost: 8 ceil(share n) bytes.
    """

    name = "topk"

    def __init__(self, share: float = 0.01):
        check_amounts(share=share)
        if not 0 < share <= 1:
            raise ValueError(f"share={share!r} has to be above 0, and 1 at most.")
        super().__init__(share=share)

    def chosen(self, row: torch.Tensor) -> torch.Tensor:
        k = math.ceil(self.options["share"] * len(row))
        return largest(row.abs(), k)

    def nbytes(self, n: int) -> int:
        return 8 * math.ceil(self.options["share"] * n)


class Threshold(Sparse):
    """All values of size `at` or above.

    Cost: 8 bytes a value sent.
    """

    name = "threshold"
    fixed = False

    def __init__(self, at: float = 1e-3):
        check_amounts(at=at)
        super().__init__(at=at)

    def chosen(self, row: torch.Tensor) -> torch.Tensor:
        return (row.abs() >= self.options["at"]).nonzero().flatten()

    def nbytes(self, n: int) -> int:
        return 8 * n


def largest(sizes: torch.Tensor, k: int) -> torch.Tensor:
    """The indices of the k largest, in order. A sample gives a bound that leaves few candidates;
    where it leaves fewer than k, all are."""
    n, candidates = len(sizes), None
    if n > FEW and k < n // 4:
        sample = sizes[::SAMPLE]
        above = min(len(sample), math.ceil(SLACK * k / n * len(sample)) + 8)
        bound = sample.topk(above).values[-1]
        candidates = (sizes >= bound).nonzero().flatten()
    if candidates is None or len(candidates) < k:
        return sizes.topk(k).indices.sort().values
    return candidates[sizes[candidates].topk(k).indices].sort().values
