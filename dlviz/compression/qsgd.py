"""QSGD: a few levels a value, to one of which it is rounded by chance so that the mean is exact.

    |v_i| / |v| * s = 2.3   ->  2 with probability 0.7, 3 with 0.3      E = 2.3
    code:  the norm |v| of a bucket of `per` values (float32), sign and level of each in `bits` bits

With s = 2^(bits-1) - 1 levels E|v - C(v)|^2 <= min(n/s^2, sqrt(n)/s) |v|^2 for a bucket of n. It is
above |v|^2 for few levels: then error feedback, which needs a contraction, diverges.

`elias`: most levels are 0, so what is not is sent as gap to the one before, sign and level, in
Elias' gamma code, which has short words for small numbers: floor(log2 x) in unary, then its digits
below the first one.  1 -> 1,  2 -> 01 0,  3 -> 01 1,  4 -> 001 00. Here the unary parts of all
gaps and levels come first, then all digits, then all signs, as whole arrays are decoded at once.

Sources: D. Alistarh et al., "QSGD: Communication-Efficient SGD via Gradient Quantization and
Encoding", NeurIPS 2017; P. Elias, "Universal codeword sets", IEEE Trans. Inf. Theory 21, 1975.
"""

from __future__ import annotations

import numpy as np
import torch

from dlviz.compression.compressor import Code, Compressor, in_rows, pack, packed_size, unpack
from dlviz.counts import check_counts


class QSGD(Compressor):
    """`bits` a value, of which one is the sign, in buckets of `per` values."""

    name = "qsgd"
    unbiased = True

    def __init__(self, bits: int = 4, per: int = 512, elias: bool = False, seed: int = 0):
        check_bits(bits)
        check_counts(per=per)
        super().__init__(bits=bits, per=per, elias=elias, seed=seed)
        self.bits, self.per, self.fixed = bits, per, not elias
        self.levels = 2 ** (bits - 1) - 1

    def _encode(self, flat: torch.Tensor) -> Code:
        n, values = flat.numel(), in_rows(flat.numpy(), self.per)
        norms = norms_of(values)
        levels = rounded(values, norms, self.levels, self.rng)
        sent = [torch.from_numpy(norms)]
        if self.options["elias"]:
            return sent + elias_code(levels.reshape(-1)[:n], values.reshape(-1)[:n] < 0)
        codes = pack(signed(levels, values, self.bits), self.bits).reshape(-1)
        return [*sent, torch.from_numpy(codes[: packed_size(n, self.per, self.bits)])]

    def decode(self, code: Code, n: int) -> torch.Tensor:
        norms = code[0].numpy()
        if self.options["elias"]:
            levels = in_rows(elias_levels(code[1:], n), self.per)
        else:
            rows = in_rows(code[1].numpy(), -(-self.per * self.bits // 8))
            levels = unsigned(unpack(rows, self.per, self.bits), self.bits)
        return torch.from_numpy(scaled(levels, norms, self.levels).reshape(-1)[:n])

    def nbytes(self, n: int) -> int:
        norms = 4 * -(-n // self.per)
        if not self.options["elias"]:
            return norms + packed_size(n, self.per, self.bits)
        each = 2 + 2 * self.levels.bit_length() - 1  # a gap of 1, sign, level
        return norms + -(-n * each // 8) + 2  # three parts, each of whole bytes


def check_bits(bits: int) -> None:
    check_counts(2, bits=bits)
    if bits > 8:
        raise ValueError(f"bits={bits!r} has to be a whole number from 2 to 8.")


def norms_of(rows: np.ndarray) -> np.ndarray:
    """The Euclidean norm of each row, (rows,) float32; of huge values the largest float32."""
    norms = torch.linalg.vector_norm(torch.from_numpy(rows), dim=1, dtype=torch.float64).numpy()
    return np.minimum(norms, np.finfo(np.float32).max).astype(np.float32)


def rounded(
    rows: np.ndarray, norms: np.ndarray, levels: int, rng: np.random.Generator
) -> np.ndarray:
    """Each value's level, 0 to `levels` of its row's norm, rounded by chance: uint8."""
    steps = np.abs(rows)
    steps /= np.where(norms > 0, norms, 1)[:, None]
    steps *= levels
    steps += rng.random(rows.shape, dtype=np.float32)
    return np.minimum(steps, levels, out=steps).astype(np.uint8)


def rounding_variance(values: torch.Tensor, levels: int) -> float:
    """E|v - C(v)|^2, exactly, of one bucket rounded to that many levels: a value a fraction f of a
    level above the one below has variance f (1 - f) in squares of a level."""
    v = values.double()
    level = v.norm() / levels
    fraction = (v.abs() / level).frac() if level else torch.zeros_like(v)
    return float((fraction * (1 - fraction)).sum() * level**2)


def signed(levels: np.ndarray, values: np.ndarray, bits: int) -> np.ndarray:
    """The level below the sign's bit."""
    return levels | (values < 0).view(np.uint8) << bits - 1


def unsigned(words: np.ndarray, bits: int) -> np.ndarray:
    """The levels, negative where the sign's bit is set: int8."""
    sign = words >> bits - 1
    levels = (words & (1 << bits - 1) - 1).view(np.int8)
    return np.negative(levels, out=levels, where=sign.view(bool))


def scaled(levels: np.ndarray, norms: np.ndarray, most: int) -> np.ndarray:
    return levels.astype(np.float32) * (norms / most)[:, None]


def elias_code(levels: np.ndarray, negative: np.ndarray) -> Code:
    """The levels that are not 0, as gaps, levels and signs."""
    at = np.flatnonzero(levels)
    numbers = np.concatenate([np.diff(at, prepend=-1), levels[at]]).astype(np.int64)
    digits = np.frexp(numbers)[1] - 1  # floor(log2)
    unary = np.zeros(int((digits + 1).sum()), bool)
    unary[np.cumsum(digits + 1) - 1] = True
    owner = np.repeat(np.arange(len(numbers)), digits)
    below = numbers[owner] >> _places(digits) & 1
    parts = unary, below.astype(bool), negative[at]
    return [torch.from_numpy(np.packbits(part)) for part in parts]


def elias_levels(code: Code, n: int) -> np.ndarray:
    """The n levels with their signs, int16."""
    unary, below, negative = (np.unpackbits(part.numpy()) for part in code)
    digits = np.diff(np.flatnonzero(unary), prepend=-1) - 1
    numbers = np.left_shift(1, digits)
    owner, places = np.repeat(np.arange(len(digits)), digits), _places(digits)
    bits = below[: len(owner)].astype(np.int64) << places
    numbers += np.bincount(owner, bits, minlength=len(numbers)).astype(np.int64)
    gaps, sizes = np.split(numbers, 2)
    levels = np.zeros(n, np.int16)
    levels[np.cumsum(gaps) - 1] = np.where(negative[: len(sizes)], -sizes, sizes)
    return levels


def _places(digits: np.ndarray) -> np.ndarray:
    """For each number its places digits-1 ... 0, one number after the other."""
    return np.repeat(np.cumsum(digits), digits) - np.arange(digits.sum()) - 1
