"""A Transformer's MLP on several ranks: y = act(x A + a) B + b.

    f   x   up (columns)      act       down (rows)             g
        x · A0 + a0    ->  act(...)  ->  · B0    summand 0
        x · A1 + a1    ->  act(...)  ->  · B1    summand 1       y = sum + b

A is cut by columns: each rank has whole columns of the inner activations, and act works on each
cell alone. Cut by rows, A would leave summands, and act(u + v) is not act(u) + act(v): they would
have to be summed first. B is cut by rows, to which just these columns belong. `NaiveMLP` gathers
after each product.

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
    """Each product is cut by columns and gathered: (B, h) -> (B, h). Read it first.

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
        """Keep this rank's part of the whole MLP's `up` and `down`, by columns both."""
        load_layers(self, up_and_down(state))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(self.activation(self.up(x)))  # (B, h) -> (B, inner) -> (B, h)


class ParallelMLP(nn.Module):
    """The MLP by columns, then by rows: (B, h) -> (B, h), the same on all ranks. x may have more
    dims in front; `activation`, a function or a module, acts on each cell alone. With
    `sequence_parallel` each rank has its tokens: (B, s/t, h) -> (B, s/t, h). Raises ValueError for
    an inner size that t does not divide, and for an activation with parameters.

    Cost: one all-reduce of (B, h) each way, 2(t-1)/t of its bytes from each rank. With
    `sequence_parallel` an all-gather and a reduce-scatter each way, together as many bytes, and
    backward one all-gather more (regather.py).
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
                f"activation={activation!r} has parameters, of whose gradient each rank would know "
                "a part alone: use one without."
            )
        self.activation = activation
        how: Any = {"all_reduce": all_reduce, "sequence_parallel": sequence_parallel}
        self.up = ColumnParallelLinear(comm, hidden, inner, **how)
        self.down = RowParallelLinear(comm, inner, hidden, **how)
        self.up.name, self.down.name = "up", "down"

    def load(self, state: State) -> None:
        """Keep this rank's part of the whole MLP: `up.weight` (inner, h), `up.bias`, `down.weight`
        (h, inner), `down.bias`; or of a Sequential of such layers, whose names are numbers."""
        load_layers(self, up_and_down(state))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner = self.activation(self.up(x))  # (B, inner/t)
        return self.down(inner)  # (B, h)


def up_and_down(state: State) -> State:
    """The state of an MLP by our names; a Sequential calls its linear layers by their places."""
    layers = dict.fromkeys(name.partition(".")[0] for name in state)
    if len(layers) != 2 or not all(layer.isdigit() for layer in layers):
        return state
    up, down = sorted(layers, key=int)
    ours = {up: "up", down: "down"}
    by_layer = {name: name.partition(".") for name in state}
    return {f"{ours[layer]}.{own}": state[name] for name, (layer, _, own) in by_layer.items()}
