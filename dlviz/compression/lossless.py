"""Lossless: byte planes and zlib. How much of a gradient is redundant, without losing a bit?

    float32   s eeeeeee | e mmmmmmm | mmmmmmmm | mmmmmmmm      all first bytes, all second, ...

The byte with sign and exponent repeats itself and packs well; those of the fraction are noise, and
go as they are. So a vector of Gaussian values shrinks to about 6 of 7 bytes, no more.

Sources: the shuffle filter of HDF5 and Blosc; RFC 1950 (zlib).
"""

from __future__ import annotations

import zlib

import numpy as np
import torch

from dlviz.compression.compressor import Code, Compressor


class Lossless(Compressor):
    """As many planes as a value has bytes, each packed where that is shorter. It decodes to the
    dtype that was coded; `nbytes` is for float32."""

    name = "lossless"
    exact = True
    unbiased = True
    fixed = False

    def __init__(self):
        super().__init__()

    def _encode(self, flat: torch.Tensor) -> Code:
        values = flat.numpy()
        planes = values.view(np.uint8).reshape(len(values), -1).T
        return [torch.from_numpy(_packed(np.ascontiguousarray(plane))) for plane in planes]

    def decode(self, code: Code, n: int) -> torch.Tensor:
        planes = [part.numpy() if len(part) == n else _unpacked(part.numpy()) for part in code]
        values = np.stack(planes, axis=1).view(f"f{len(code)}")  # (n, 1)
        return torch.from_numpy(values.reshape(n))

    def nbytes(self, n: int) -> int:
        return 4 * n


def _packed(plane: np.ndarray) -> np.ndarray:
    packed = np.frombuffer(bytearray(zlib.compress(plane.tobytes(), 1)), np.uint8)
    return packed if len(packed) < len(plane) else plane


def _unpacked(packed: np.ndarray) -> np.ndarray:
    return np.frombuffer(zlib.decompress(packed.tobytes()), np.uint8)
