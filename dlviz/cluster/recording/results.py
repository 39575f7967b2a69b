"""What a worker returned, on its way to the launching process.

A large tensor is left where it is: the launching process copies it out of the rank's memory, which
stays until the run is over.
"""

from __future__ import annotations

import io
import os
from typing import Any

import cloudpickle
import torch

from dlviz.cluster.transport.memory import Memory

LARGE = 1 << 20  # bytes of a tensor that is left


def pack(result: Any, leave: bool) -> bytes:
    """The result, pickled. `leave`: large tensors are left in this process."""
    file = io.BytesIO()
    (Pickler if leave else cloudpickle.Pickler)(file).dump(result)
    return file.getvalue()


class Pickler(cloudpickle.Pickler):
    def reducer_override(self, obj: Any) -> Any:
        if type(obj) is torch.Tensor and obj.layout == torch.strided and obj.is_cpu:
            plain = obj.is_contiguous() and not obj.requires_grad and not obj.is_quantized
            if plain and obj.nbytes >= LARGE:
                return fetch, (os.getpid(), obj.data_ptr(), obj.shape, obj.dtype)
        return super().reducer_override(obj)


def fetch(pid: int, address: int, shape: torch.Size, dtype: torch.dtype) -> torch.Tensor:
    """Copy a tensor that was left in another process."""
    tensor = torch.empty(shape, dtype=dtype)
    Memory(lambda rank: pid).pull(0, 0, address, tensor)
    return tensor
