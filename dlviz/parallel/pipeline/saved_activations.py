"""The bytes that a stage's forward keeps for its backward: what autograd saves, each once."""

from __future__ import annotations

import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks


class SavedActivations(saved_tensors_hooks):
    """Sees what the forward inside keeps for the backward of `stage`, its weights aside."""

    def __init__(self, stage: nn.Module):
        self.held: dict[int, int] = {}  # bytes by storage, in the order in which they were saved
        tensors = [*stage.parameters(), *stage.buffers()]
        self._weights = {tensor.untyped_storage().data_ptr() for tensor in tensors}
        super().__init__(self.see, lambda tensor: tensor)

    def see(self, tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage().data_ptr()  # views of one storage cost its bytes once
        if storage not in self._weights:
            self.held[storage] = max(tensor.nbytes, self.held.get(storage, 0))
        return tensor

    @property
    def nbytes(self) -> int:
        return sum(self.held.values())
