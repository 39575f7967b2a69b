"""What every compressor has: a vector of floats to a code, a list of small tensors, and back.

    flat (n,) -> encode -> code, what is sent -> decode -> what the code stands for (n,)

A compressor holds no communication: collectives/coded.py sends its codes. `unbiased`: the expected
value of what the code stands for is the vector. `linear`: codes may be added on their path, so an
all-reduce can sum them. `fixed`: the code's bytes depend on n alone, else `nbytes` is the most.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

Code = list[torch.Tensor]
BLOCK = 2**16  # values coded at a time


class Compressor(ABC):
    """The base: a subclass gives `_encode`, `decode` and `nbytes`, and takes its options as keyword
    arguments, which it passes on. One with an option `seed` draws from `rng`."""

    name = ""
    unbiased = linear = False
    exact = False  # codes float64 as it is, not as float32
    fixed = True
    codes = 1  # that `rounds` has the caller sum, one after the other

    def __init__(self, **options: Any):
        self.options = options
        self.length: int | None = None  # of the bucket that it is for
        self.rng = _generator(options.get("seed", 0))

    def __str__(self) -> str:
        return f"{self.name}({', '.join(f'{key}={value}' for key, value in self.options.items())})"

    def encode(self, flat: torch.Tensor) -> Code:
        """The code of `flat`, (n,) of float32 or float64. Raises ValueError for another dtype or
        shape, and for a value that is not finite, which it names."""
        return self.of_finite(self.checked(flat))

    def of_finite(self, flat: torch.Tensor) -> Code:
        """`encode` of values that are known to be finite."""
        row = flat.contiguous()
        return self._encode(row if self.exact else row.float())

    @abstractmethod
    def _encode(self, flat: torch.Tensor) -> Code:
        """The code of finite values."""

    @abstractmethod
    def decode(self, code: Code, n: int) -> torch.Tensor:
        """What the code of n values stands for, (n,) float32."""

    @abstractmethod
    def nbytes(self, n: int) -> int:
        """Bytes of the code of n values."""

    def for_bucket(self, shapes: Sequence[Sequence[int]], rank: int, index: int) -> Compressor:
        """A compressor with the same options for bucket number `index` of that rank, which holds
        parameters of these shapes: its draws are its own, as ranks that round alike would err
        alike."""
        own = type(self)(**self.options)
        own.length = sum(map(math.prod, shapes))
        own.rng = _generator(self.options.get("seed", 0), rank, index)
        return own

    def state_dict(self) -> dict[str, Any]:
        """What the next code depends on besides its vector: where the draws are."""
        state = self.rng.bit_generator.state
        return {**state, "state": torch.from_numpy(state["state"]["state"].view(np.int64).copy())}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on as the compressor of that `state_dict` would."""
        words = {"state": state["state"].numpy().view(np.uint64)}
        self.rng.bit_generator.state = {
            "bit_generator": state["bit_generator"],
            "state": words,
            "has_uint32": state["has_uint32"],
            "uinteger": state["uinteger"],
        }

    def decode_to(self, code: Code, out: torch.Tensor) -> None:
        """Write what the code stands for into `out`, (n,)."""
        out.copy_(self.decode(code, len(out)))

    def subtract(self, v: torch.Tensor, code: Code) -> None:
        """v <- v - what the code stands for, in place."""
        v -= self.decode(code, len(v))

    def rounds(self, v: torch.Tensor, out: torch.Tensor) -> Iterator[torch.Tensor]:
        """The sum over ranks of `v`, whose values are finite, by codes that can be added: yields
        `codes` of them, each of which the caller sums over ranks in place, and writes the sum into
        `out`. Of `v` is left what its own code loses, unless `out` is `v` itself."""
        if not self.linear:
            raise ValueError(f"codes of {self.name!r} cannot be added: gather and decode them.")
        code = self.of_finite(v)
        if out is not v:
            self.subtract(v, code)
        yield code[0]
        self.decode_to(code, out)

    def checked(self, flat: torch.Tensor) -> torch.Tensor:
        if flat.dtype not in (torch.float32, torch.float64):
            raise ValueError(
                f"{self.name} codes float32 and float64, and flat is of {flat.dtype}: convert it."
            )
        if flat.dim() != 1 or not flat.numel():
            raise ValueError(f"flat, of shape {tuple(flat.shape)}, has to be one row of values.")
        flat = flat.detach()
        if (index := first_infinite(flat)) is not None:
            raise ValueError(
                f"flat[{index}]={flat[index]:g} has no code by {self.name}: gradients have to be "
                "finite. Lower the rate, or clip."
            )
        return flat


def first_infinite(row: torch.Tensor) -> int | None:
    """The index of the first value that is not finite, if there is one."""
    if row.sum().isfinite() or (finite := row.isfinite()).all():  # a sum of finite ones overflows
        return None
    return int(finite.logical_not().nonzero()[0])


def in_rows(values: np.ndarray, per: int) -> np.ndarray:
    """Buckets of `per` values as rows, the last one filled up with zeros."""
    rows = -(-len(values) // per)
    if len(values) < rows * per:
        values = np.concatenate([values, np.zeros(rows * per - len(values), values.dtype)])
    return values.reshape(rows, per)


def in_blocks(values: np.ndarray, per: int) -> Iterator[np.ndarray]:
    """Those rows, as many at a time as stay in a core's cache: several times as fast."""
    step = per * max(1, BLOCK // per)
    for start in range(0, len(values), step):
        yield in_rows(values[start : start + step], per)


def packed_size(n: int, per: int, bits: int) -> int:
    """Bytes of n values in `bits` bits each, where each bucket begins with a byte of its own."""
    full, rest = divmod(n, per)
    return full * -(-per * bits // 8) + -(-rest * bits // 8)


def pack(words: np.ndarray, bits: int) -> np.ndarray:
    """Each row's words, of uint8 or uint32, in `bits` bits each: (rows, bytes), high bits first."""
    rows, wide = len(words), 8 * words.itemsize
    if bits == 8:
        return words
    if bits == 4 and words.shape[1] % 2 == 0:  # the same, several times as fast
        return words[:, ::2] << 4 | words[:, 1::2]
    big = words.astype(words.dtype.newbyteorder(">")).view(np.uint8)
    each = np.unpackbits(big, axis=1).reshape(rows, -1, wide)[..., wide - bits :]
    return np.packbits(each.reshape(rows, -1), axis=1)


def unpack(packed: np.ndarray, count: int, bits: int) -> np.ndarray:
    """The first `count` words of each row of `packed`, of uint8 up to 8 bits, or uint32."""
    rows, wide = len(packed), 8 if bits <= 8 else 32
    if bits == 8:
        return packed[:, :count]
    if bits == 4:
        words = np.empty((rows, 2 * packed.shape[1]), np.uint8)
        words[:, ::2], words[:, 1::2] = packed >> 4, packed & 15
        return words[:, :count]
    each = np.zeros((rows, count, wide), np.uint8)
    each[..., wide - bits :] = np.unpackbits(packed, axis=1, count=count * bits).reshape(
        rows, count, bits
    )
    words = np.packbits(each.reshape(rows, -1), axis=1)
    return words if wide == 8 else words.view(">u4").astype(np.uint32)


def _generator(*seeds: int) -> np.random.Generator:
    return np.random.Generator(np.random.SFC64(seeds))  # numpy's fastest
