"""A tensor's dtype, size and shape, packed for other ranks to read."""

from __future__ import annotations

import math
import struct
from functools import lru_cache

import torch

FORM = struct.Struct("=11q")  # dtype, nbytes, dims, 8 sizes
MAX_DIMS = 8
NO_TENSOR = bytes(FORM.size)
DTYPES = [
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32,
    torch.int16, torch.int8, torch.uint8, torch.bool, torch.complex64, torch.complex128,
]  # fmt: skip
CODES = {dtype: code for code, dtype in enumerate(DTYPES)}


@lru_cache(maxsize=4096)
def form_of(shape: tuple[int, ...], dtype: torch.dtype) -> bytes:
    """The form of a tensor. ValueError for a dtype that cannot be sent."""
    if dtype not in CODES:
        raise ValueError(
            f"a tensor of {dtype_name(dtype)} cannot be sent: convert it, to float32 say."
        )
    count = math.prod(shape)
    sizes = tuple(shape) if len(shape) <= MAX_DIMS else (count,)
    nothing = (0,) * (MAX_DIMS - len(sizes))
    return FORM.pack(CODES[dtype], count * dtype.itemsize, len(sizes), *sizes, *nothing)


def size_of(form: bytes) -> int:
    """Bytes of the tensor."""
    return FORM.unpack(form)[1]


def shape_of(form: bytes) -> tuple[int, ...]:
    _, _, dims, *sizes = FORM.unpack(form)
    return tuple(sizes[:dims])


def dtype_of(form: bytes) -> torch.dtype:
    return DTYPES[FORM.unpack(form)[0]]


def fits(sent: bytes, posted: bytes) -> bool:
    """Whether a message fits a posted receive: the same dtype and number of bytes."""
    return sent[:16] == posted[:16]


def describe(form: bytes) -> str:
    return f"shape {shape_of(form)} {dtype_name(dtype_of(form))}"


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def empty(form: bytes, device: torch.device) -> torch.Tensor:
    """An uninitialized tensor of that form."""
    return torch.empty(shape_of(form), dtype=dtype_of(form), device=device)
