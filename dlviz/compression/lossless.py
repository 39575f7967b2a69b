"""Without loss: the bytes of all values, plane by plane, by zlib.

A float32 has its sign and exponent in the first byte or two, which are alike in a gradient, and a
fraction that looks random, which nothing makes smaller: a Gaussian vector loses about a tenth.

Source of the byte planes: F. Alted's Blosc, HDF5's shuffle filter.
"""

from __future__ import annotations

import zlib

import numpy as np
import torch

from dlviz.compression.compressor import Compressor, values_of
from dlviz.compression.packing import Code


class Lossless(Compressor):
    """Byte planes and zlib; the plain bytes where those are no more.

    Cost: 4 bytes a value at most.
    """

    name = "lossless"
    fixed = False
    unbiased = True

    def encode(self, flat: torch.Tensor) -> Code:
        plain = values_of(flat).numpy().view(np.uint8)
        planes = plain.reshape(-1, 4).T.tobytes()  # all first bytes, then all second ones
        small = np.frombuffer(zlib.compress(planes, 1), dtype=np.uint8)
        return [torch.from_numpy((small if len(small) < len(plain) else plain).copy())]

    def decode(self, code: Code, n: int) -> torch.Tensor:
        sent = code[0].numpy()
        if len(sent) == 4 * n:
            return torch.from_numpy(sent.copy().view(np.float32))
        planes = np.frombuffer(zlib.decompress(sent.tobytes()), dtype=np.uint8)
        return torch.from_numpy(planes.reshape(4, n).T.copy().view(np.float32).ravel())

    def nbytes(self, n: int) -> int:
        return 4 * n
