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

from dlviz.compression.compressor import (
    Code,
    Compressor,
    in_blocks,
    in_rows,
    pack,
    packed_size,
    unpack,
)
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
        n, norms, words, elias = flat.numel(), [], [], self.options["elias"]
        for rows in in_blocks(flat.numpy(), self.per):
            norms.append(norms_of(rows))
            word = signed(rounded(rows, norms[-1], self.levels, self.rng), rows, self.bits)
            words.append((word if elias else pack(word, self.bits)).reshape(-1))
        sent, row = torch.from_numpy(np.concatenate(norms)), np.concatenate(words)
        if elias:
            return [sent, *elias_code(row[:n], self.bits)]
        return [sent, torch.from_numpy(row[: packed_size(n, self.per, self.bits)])]

    def decode(self, code: Code, n: int) -> torch.Tensor:
        norms = code[0].numpy()
        if self.options["elias"]:
            words = in_rows(elias_words(code[1:], n, self.bits), self.per)
        else:
            rows = in_rows(code[1].numpy(), -(-self.per * self.bits // 8))
            words = unpack(rows, self.per, self.bits)
        return torch.from_numpy(values_of(words, norms, self.bits).reshape(-1)[:n])

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


def values_of(words: np.ndarray, norms: np.ndarray, bits: int) -> np.ndarray:
    """What the words of each row stand for, from a table of all words: float32."""
    table = np.arange(2 ** (bits - 1), dtype=np.float32)
    table = np.concatenate([table, -table]) / (len(table) - 1)
    values = table.take(words, mode="clip")
    return np.multiply(values, norms[:, None], out=values)


def elias_code(words: np.ndarray, bits: int) -> Code:
    """The words whose level is not 0, as gaps, levels and signs."""
    levels, negative = words & 2 ** (bits - 1) - 1, words >> bits - 1
    at = np.flatnonzero(levels)
    numbers = np.concatenate([np.diff(at, prepend=-1), levels[at]]).astype(np.int64)
    digits = np.frexp(numbers)[1] - 1  # floor(log2)
    unary = np.zeros(int((digits + 1).sum()), bool)
    unary[np.cumsum(digits + 1) - 1] = True
    owner = np.repeat(np.arange(len(numbers)), digits)
    below = (numbers[owner] >> _places(digits) & 1).astype(np.uint8)
    parts = unary, below, negative[at]
    return [torch.from_numpy(np.packbits(part)) for part in parts]


def elias_words(code: Code, n: int, bits: int) -> np.ndarray:
    """The n words."""
    unary, below, negative = (np.unpackbits(part.numpy()) for part in code)
    digits = np.diff(np.flatnonzero(unary), prepend=-1) - 1
    numbers = np.left_shift(1, digits)
    owner, places = np.repeat(np.arange(len(digits)), digits), _places(digits)
    np.add.at(numbers, owner, below[: len(owner)].astype(np.int64) << places)
    gaps, levels = np.split(numbers, 2)
    words = np.zeros(n, np.uint8)
    words[np.cumsum(gaps) - 1] = negative[: len(levels)] << bits - 1 | levels
    return words


def _places(digits: np.ndarray) -> np.ndarray:
    """For each number its places digits-1 ... 0, one number after the other."""
    return np.repeat(np.cumsum(digits), digits) - np.arange(digits.sum()) - 1
