"""Sparsification: send the largest values, or those above a threshold, each with its index.

    v     0.1  -2.0   0.0   0.7  -0.3        share=0.4: the 2 largest
    code  indices 1 3 (int32), values -2.0 0.7 (float32): 8 bytes each

Top-k leaves at most 1 - k/n of |v|^2, a contraction: with error feedback what was not sent grows
until it is among the largest. `Threshold` skips small updates, so its bytes depend on the values.

Sources: C. Renggli et al., "SparCML", SC 2019; A. Aji and K. Heafield, "Sparse Communication for
Distributed Gradient Descent", EMNLP 2017; N. Strom, "Scalable Distributed DNN Training Using
Commodity GPU Cloud Computing", Interspeech 2015 (threshold).
"""

from __future__ import annotations

import math
from abc import abstractmethod

import numpy as np
import torch

from dlviz.compression.compressor import Code, Compressor
from dlviz.counts import check_amounts

STRIDE = 61  # of the sample: coprime to the widths of common layers
MARGIN = 5.0  # standard deviations by which the sample's threshold is lowered


class Sparse(Compressor):
    """Indices, int32, and values, float32."""

    def _encode(self, flat: torch.Tensor) -> Code:
        indices = self._chosen(flat.abs().numpy())
        return [torch.from_numpy(indices.astype(np.int32)), flat[torch.from_numpy(indices)]]

    @abstractmethod
    def _chosen(self, sizes: np.ndarray) -> np.ndarray:
        """The indices to send, ascending."""

    def decode(self, code: Code, n: int) -> torch.Tensor:
        return torch.zeros(n).index_copy_(0, code[0].long(), code[1])

    def subtract(self, v: torch.Tensor, code: Code) -> None:
        v[code[0].long()] -= code[1]


class TopK(Sparse):
    """The ceil(share * n) values that are largest."""

    name = "topk"

    def __init__(self, share: float = 0.01):
        check_amounts(share=share)
        if not 0 < share <= 1:
            raise ValueError(f"share={share!r} has to be above 0, and 1 at most.")
        super().__init__(share=share)

    def _chosen(self, sizes: np.ndarray) -> np.ndarray:
        return largest(sizes, math.ceil(self.options["share"] * len(sizes)))

    def nbytes(self, n: int) -> int:
        return 8 * math.ceil(self.options["share"] * n)


class Threshold(Sparse):
    """The values of size `at` or above."""

    name = "threshold"
    fixed = False

    def __init__(self, at: float = 1e-3):
        check_amounts(at=at)
        super().__init__(at=at)

    def _chosen(self, sizes: np.ndarray) -> np.ndarray:
        return np.flatnonzero(sizes >= self.options["at"])

    def nbytes(self, n: int) -> int:
        return 8 * n


def largest(sizes: np.ndarray, k: int) -> np.ndarray:
    """Indices of the k largest, ascending. A sample gives a threshold that a few more than k pass,
    so that few are compared with each other; where it was too high, all are."""
    sample = sizes[::STRIDE]
    expected = k / len(sizes) * len(sample)
    place = math.ceil(expected + MARGIN * math.sqrt(expected) + MARGIN)  # from the largest down
    passed = np.arange(len(sizes))
    if place <= len(sample):
        above = np.flatnonzero(sizes >= np.partition(sample, -place)[-place])
        passed = above if len(above) >= k else passed
    if k == len(passed):
        return passed
    return np.sort(passed[np.argpartition(sizes[passed], len(passed) - k)[len(passed) - k :]])
