"""A Transformer's MLP on several ranks: y = act(x A + a) B + b.

    f   x   up (columns)      act       down (rows)             g
        x · A0 + a0    ->  act(...)  ->  · B0    partial sum 0
        x · A1 + a1    ->  act(...)  ->  · B1    partial sum 1   y = sum + b

A is cut by columns: each rank has whole columns of the inner activations, and act works cell by
cell. Cut by rows, A would leave partial sums, and act(u + v) is not act(u) + act(v): they would
have to be summed first. B is cut by rows, to match these columns. `NaiveMLP` gathers after each
product.

Source: M. Shoeybi et al., "Megatron-LM", 2019, section 3.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from dlviz.cluster import Comm
from dlviz.counts import check_counts
from dlviz.parallel.tensor.checks import check_divides
from dlviz.parallel.tensor.linear import ColumnParallelLinear, RowParallelLinear, State, load_layers

Activation = Callable[[torch.Tensor], torch.Tensor]


class NaiveMLP(nn.Module):
    """Cuts each product by columns and gathers it: (B, h) -> (B, h). Read it first.

    Cost: forward two all-gathers, backward two all-reduces; every rank computes the whole act.
    """

    def __init__(
        self, comm: Comm, hidden: int, inner: int, activation: Activation = nn.functional.gelu
    ):
        super().__init__()
        check_counts(hidden=hidden, inner=inner)
        self.activation = activation
        self.up = ColumnParallelLinear(comm, hidden, inner, gather=True)
        self.down = ColumnParallelLinear(comm, inner, hidden, gather=True)
        self.up.name, self.down.name = "up", "down"

    def load(self, state: State) -> None:
        """Take this rank's part of the whole MLP's `up` and `down`, both by columns."""
        load_layers(self, up_and_down(state))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(self.activation(self.up(x)))  # (B, h) -> (B, inner) -> (B, h)


class ParallelMLP(nn.Module):
    """The MLP by columns, then by rows: (B, h) -> (B, h), the same on all ranks. x may have more
    leading dims; `activation`, a function or a module, acts cell by cell. With `sequence_parallel`
    each rank has its tokens: (B, s/t, h) -> (B, s/t, h). Raises ValueError for an inner size that t
    does not divide, and for an activation with parameters.

    Cost: one all-reduce of (B, h) per direction, 2(t-1)/t of its bytes from each rank. With
    `sequence_parallel` an all-gather and a reduce-scatter per direction, together as many bytes,
    and backward one more all-gather (regather.py).
    """

    def __init__(
        self,
        comm: Comm,
        hidden: int,
        inner: int,
        activation: Activation = nn.functional.gelu,
        *,
        all_reduce: str = "ring",
        sequence_parallel: bool = False,
    ):
        super().__init__()
        check_counts(hidden=hidden, inner=inner)
        check_divides("inner", inner, comm.size, "inner activations")
        if isinstance(activation, nn.Module) and any(True for _ in activation.parameters()):
            raise ValueError(
                f"activation={activation!r} has parameters, of whose gradient each rank would only "
                "know a part: use one without."
            )
        self.activation = activation
        how: Any = {"all_reduce": all_reduce, "sequence_parallel": sequence_parallel}
        self.up = ColumnParallelLinear(comm, hidden, inner, **how)
        self.down = RowParallelLinear(comm, inner, hidden, **how)
        self.up.name, self.down.name = "up", "down"

    def load(self, state: State) -> None:
        """Take this rank's part of the whole MLP: `up.weight` (inner, h), `up.bias`, `down.weight`
        (h, inner), `down.bias`; or of a Sequential of such layers, whose names are numbers."""
        load_layers(self, up_and_down(state))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner = self.activation(self.up(x))  # (B, inner/t)
        return self.down(inner)  # (B, h)


def up_and_down(state: State) -> State:
    """The state of an MLP by our names; in a Sequential the names of layers are their places."""
    layers = dict.fromkeys(name.partition(".")[0] for name in state)
    if len(layers) != 2 or not all(layer.isdigit() for layer in layers):
        return state
    up, down = sorted(layers, key=int)
    ours = {up: "up", down: "down"}
    by_layer = {name: name.partition(".") for name in state}
    return {f"{ours[layer]}.{own}": state[name] for name, (layer, _, own) in by_layer.items()}
