"""The whole model where each rank has a part of it: its state on rank 0, and a model to evaluate.

rank 0   0.weight 0.bias                  -->  0.weight 0.bias 2.weight 2.bias
rank 1                    2.weight 2.bias -->
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from dlviz.cluster import Comm

if TYPE_CHECKING:
    from dlviz.parallel.step.training import Options


def gathered_state(comm: Comm, own: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The tensors by name of all ranks, whose `own` are on the CPU, on rank 0; of a name that
    several have the first rank's. Empty on the other ranks. One tensor is sent at a time."""
    whole = dict(own) if comm.rank == 0 else {}
    for rank in range(1, comm.size):
        forms = {name: (tensor.shape, tensor.dtype) for name, tensor in own.items()}
        for name, (shape, dtype) in comm.broadcast_object(forms, rank).items():
            value = own[name] if comm.rank == rank else torch.empty(shape, dtype=dtype)
            comm.broadcast(value, rank)
            if comm.rank == 0:
                whole.setdefault(name, value)
    return whole


def by_stage_names(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """A state whose names begin with the numbers of stages, by the stages' own names where these
    all differ: those of the model that was cut into them."""
    own = {name.split(".", 1)[1]: value for name, value in state.items()}
    return own if len(own) == len(state) else state


class Assembled:
    """The whole model for `evaluate`, where a rank trains a part of `model`, a module or a list of
    its stages. Made on every rank before the model is cut; rank 0 keeps an untrained copy."""

    def __init__(self, comm: Comm, model: Any, options: Options):
        self._plain = None
        if options.get("evaluate") is None or comm.rank != 0:
            return
        if not isinstance(model, nn.Module):
            if not all(isinstance(stage, nn.Module) for stage in model):
                raise ValueError(
                    "evaluate= needs the whole model on rank 0: give it all stages, those of other "
                    "ranks on the meta device, say."
                )
            model = nn.Sequential(*model)
        self._plain = copy.deepcopy(model)

    def model(self, state_of: Callable[[], dict[str, torch.Tensor]]) -> nn.Module | None:
        """A new model with the state that `state_of` assembles; None on ranks other than 0."""
        state = state_of()
        if self._plain is None:
            return None
        model = copy.deepcopy(self._plain)
        # Assigned, as the plain model may lie on the meta device; copies, as training goes on.
        model.load_state_dict({name: t.clone() for name, t in state.items()}, assign=True)
        return model
