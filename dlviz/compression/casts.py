"""Half of the bits: float16 and bfloat16, the codes that are added on the way.

    float32     8 bits of exponent, 23 of fraction
    float16     5 and 10: from 6e-8 to 65,504; 1e-8 becomes 0 and 70,000 infinite
    bfloat16    8 and 7: all of float32's range, three digits

A sum in few bits stands still once an addend is below half of its last bit: 2048 + 1 = 2048 in
float16, 256 + 1 = 256 in bfloat16. So values are scaled into the range before (`scale`), and
divided before they are added, not after: DDP codes each rank's share of the mean.

In PyTorch: fp16_compress_hook, bf16_compress_hook.
"""

from __future__ import annotations

import math

import torch

from dlviz.compression.compressor import Compressor, values_of
from dlviz.compression.packing import Code


class Cast(Compressor):
    """Values times `scale` in `dtype`, and back."""

    linear = True
    dtype = torch.float32

    def __init__(self, scale: float = 1.0):
        if not 0 < scale < math.inf:
            raise ValueError(f"scale={scale!r} has to be a finite number above 0.")
        super().__init__(scale=scale)

    def encode(self, flat: torch.Tensor) -> Code:
        return [(values_of(flat) * self.options["scale"]).to(self.dtype)]

    def decode(self, code: Code, n: int) -> torch.Tensor:
        return code[0].float() / self.options["scale"]

    def nbytes(self, n: int) -> int:
        return 2 * n


class FP16(Cast):
    """float16."""

    name = "fp16"
    dtype = torch.float16


class BF16(Cast):
    """bfloat16."""

    name = "bf16"
    dtype = torch.bfloat16
