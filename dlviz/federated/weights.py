"""A model's weights as one row of numbers, as server and clients send them.

    row    | weight of layer 1 | bias | weight of layer 2 | bias | buffers |
           |<--------------- trained -------------------------->|

Trainable parameters, then the buffers that are not counters (a batch norm's statistics). Counters
are not sent: each client goes on counting from its own last round.
"""

from __future__ import annotations

import torch
from torch import nn

Tensor = torch.Tensor


class Layout:
    """Where in the row each tensor of `model` lies. Raises ValueError for a model with nothing to
    train, and one of two dtypes."""

    def __init__(self, model: nn.Module):
        self.model = model
        for module in model.modules():
            for name, buffer in module.named_buffers(recurse=False):
                setattr(module, name, buffer.contiguous())  # an expanded one cannot be written
        parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
        buffers = {name: b for name, b in model.named_buffers() if b.is_floating_point()}
        self.trained = sum(p.numel() for p in parameters.values())
        self.tensors = {**parameters, **buffers}
        self.parameters = list(parameters.values())
        kinds = {tensor.dtype for tensor in self.tensors.values()}
        if not parameters:
            raise ValueError("the model has no parameter to train: set requires_grad of one.")
        for name, p in parameters.items():
            if 0 in p.stride() and p.numel() > 1:
                raise ValueError(
                    f"parameter {name} of {tuple(p.shape)} is expanded from fewer values, which "
                    "cannot be written: make it nn.Parameter(tensor.clone())."
                )
        if len(kinds) > 1:
            raise ValueError(
                f"the model has weights of {' and '.join(sorted(map(str, kinds)))}: a round sends "
                "one row of one dtype; cast the model with .to(dtype)."
            )

    def read(self) -> Tensor:
        """The model's weights, a new row (parameters,)."""
        return torch.cat([tensor.detach().flatten() for tensor in self.tensors.values()])

    def write(self, row: Tensor) -> None:
        """Set the model's weights to `row`."""
        for tensor, values in zip(self.tensors.values(), self.views(row).values(), strict=True):
            tensor.detach().copy_(values)

    def views(self, rows: Tensor) -> dict[str, Tensor]:
        """The parts of `rows` (..., parameters) by name and in their shapes: views of it."""
        parts = rows.split([tensor.numel() for tensor in self.tensors.values()], dim=-1)
        return {
            name: part.unflatten(-1, tensor.shape) if tensor.dim() else part.squeeze(-1)
            for (name, tensor), part in zip(self.tensors.items(), parts, strict=True)
        }
