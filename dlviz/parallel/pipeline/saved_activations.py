"""The bytes that autograd saves of a stage's forward for its backward, each once."""

from __future__ import annotations

import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks

from dlviz.cluster import pack_saved, unpack_saved


class SavedActivations(saved_tensors_hooks):
    """Sees the tensors that autograd saves of the forward inside for the backward of `stage`, its
    weights aside. `held` maps each storage, in the order of saving, to its first saved byte and the
    one after the last."""

    def __init__(self, stage: nn.Module):
        self.held: dict[int, tuple[int, int]] = {}
        tensors = [*stage.parameters(), *stage.buffers()]
        self._weights = {tensor.untyped_storage().data_ptr() for tensor in tensors}
        super().__init__(lambda tensor: pack_saved(self.see(tensor)), unpack_saved)

    def see(self, tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage().data_ptr()
        if storage not in self._weights:
            first, end = extent(tensor)
            # Views of one storage: shared bytes count once.
            before = self.held.get(storage, (first, end))
            self.held[storage] = min(first, before[0]), max(end, before[1])
        return tensor

    @property
    def nbytes(self) -> int:
        return sum(end - first for first, end in self.held.values())


def extent(tensor: torch.Tensor) -> tuple[int, int]:
    """The range of bytes of a tensor in its storage: the first, and the one after the last."""
    size = tensor.element_size()
    first = int(tensor.storage_offset()) * size
    if not tensor.numel():
        return first, first
    strides = zip(tensor.shape, tensor.stride(), strict=True)
    return first, first + size * (1 + sum((n - 1) * stride for n, stride in strides))
