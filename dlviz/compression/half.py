"""16 bits a value: IEEE's fp16, or bfloat16, which has float32's range and 8 bits of precision.

             sign  exponent  fraction     smallest above 0   largest     1 is lost when added to
    fp16       1       5        10            6.0e-8         65,504           2048
    bf16       1       8         7            9.2e-41        3.4e38            256

In fp16 1e-8 becomes 0 and 70,000 inf: `scale` multiplies before the values are rounded, and divides
what the code stands for. Codes may be added on their path, in 16 bits, where a sum stagnates: what
is small beside it changes nothing more. So divide before adding, where a mean is wanted.

Sources: P. Micikevicius et al., "Mixed Precision Training", ICLR 2018 (scaling). In PyTorch:
`fp16_compress_hook`, `bf16_compress_hook`.
"""

from __future__ import annotations

import torch

from dlviz.compression.compressor import Code, Compressor
from dlviz.counts import check_amounts


class Half(Compressor):
    """Values rounded to `dtype`: 2n bytes. A value that it cannot hold becomes inf."""

    linear = True
    dtype = torch.float16

    def __init__(self, scale: float = 1.0):
        check_amounts(scale=scale)
        if not scale:
            raise ValueError(
                f"scale={scale!r} has to be above 0: it multiplies values and divides codes."
            )
        super().__init__(scale=scale)

    def _encode(self, flat: torch.Tensor) -> Code:
        scale = self.options["scale"]
        return [(flat if scale == 1 else flat * scale).to(self.dtype)]

    def decode(self, code: Code, n: int) -> torch.Tensor:
        out = torch.empty(n)
        self.decode_to(code, out)
        return out

    def decode_to(self, code: Code, out: torch.Tensor) -> None:
        out.copy_(code[0])
        if self.options["scale"] != 1:
            out /= self.options["scale"]

    def nbytes(self, n: int) -> int:
        return 2 * n


class FP16(Half):
    name = "fp16"


class BF16(Half):
    name = "bf16"
    dtype = torch.bfloat16
