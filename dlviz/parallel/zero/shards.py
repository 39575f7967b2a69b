"""A layer's parameters as one flat vector, cut into equal shards, one a rank.

    parameters   weight 3 x 2          bias 3      9 values
    flat         w w w w w w           b b b  0    padded to 10, for 2 ranks
    shards       rank 0: w w w w w     rank 1: w b b b 0

Shards are equal, so that every rank sends as much as any other; the padding is sent with the rest.
A shard has pieces of parameters, which the update rule moves one by one: it moves each value on its
own, so that it need not see a parameter as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import nn

from dlviz.cluster import Comm
from dlviz.counts import check_counts


def shard(length: int, ranks: int) -> tuple[int, int]:
    """How many of `length` values each of `ranks` ranks holds, and how many values of padding the
    last ranks hold beside them.

    shard(9, 2) = (5, 1). Raises ValueError for ranks below 1, and a length below 0."""
    check_counts(ranks=ranks)
    check_counts(0, length=length)
    each = -(-length // ranks)
    return each, each * ranks - length


class Piece(NamedTuple):
    """The values `start` to `stop` of a flattened parameter, which lie on this rank at `at` of its
    layer's shard."""

    parameter: nn.Parameter
    start: int
    stop: int
    at: slice


class FlatLayer:
    """The trained parameters of a layer in one flat vector, as rank `rank` of `ranks` holds it.

    `flat` has all values, and the parameters are views of it; `shard` has this rank's, which the
    update rule moves: a view of `flat`, or memory of its own if the shard is `apart` (stage 3), or
    a float32 `master` beside a bfloat16 `flat`. `rounded` is what all ranks gather: the shard,
    or beside an `apart` master its values in bfloat16, which `round` makes. `gradient` is this
    rank's shard of the gradient's sum over all ranks, None between steps.
    """

    def __init__(
        self,
        name: str,
        parameters: list[nn.Parameter],
        rank: int,
        ranks: int,
        apart: bool = False,
        master: bool = False,
    ):
        first = parameters[0]
        sizes = [p.numel() for p in parameters]
        self.name, self.parameters = name, parameters
        self.each, self.padding = shard(sum(sizes), ranks)
        dtype = torch.bfloat16 if master else first.dtype
        # A buffer of its own: stage 3 frees it.
        self.flat = torch.zeros(self.each * ranks, dtype=dtype, device=first.device)
        self.parts = [*self.flat.split(self.each)]  # one a rank
        values = torch.cat([p.detach().flatten() for p in parameters])
        self.flat[: len(values)] = values
        self.own = self.shard = self.parts[rank]
        if apart or master:
            own = values[rank * self.each : (rank + 1) * self.each]
            self.shard = self.own.to(torch.float32 if master else dtype, copy=True)
            self.shard[: len(own)] = own
        self.rounded = self.own.clone() if apart and master else self.shard
        self.starts = [sum(sizes[:i]) for i in range(len(sizes))]
        views = self.flat.split([*sizes, self.padding])
        self.views = [v.view(p.shape) for v, p in zip(views, parameters, strict=False)]
        self.pieces = [*self._pieces(rank)]
        self.gradient: torch.Tensor | None = None
        self.show()

    def _pieces(self, rank: int) -> Iterator[Piece]:
        low, high = rank * self.each, (rank + 1) * self.each
        for p, at in zip(self.parameters, self.starts, strict=True):
            start, stop = max(low, at), min(high, at + p.numel())
            if start < stop:
                yield Piece(p, start - at, stop - at, slice(start - low, stop - low))

    def show(self) -> None:
        """Let the parameters be views of `flat`."""
        for p, view in zip(self.parameters, self.views, strict=True):
            p.data = view
        self.versions = [p._version for p in self.parameters]

    def round(self) -> None:
        """Let `rounded` have the values of the shard that the update has moved."""
        if self.rounded is not self.shard:
            self.rounded.copy_(self.shard)

    def whole(self, comm: Comm, own: torch.Tensor) -> list[torch.Tensor]:
        """What all ranks have in vectors such as `own`, of a shard's length, by parameter."""
        row = own.new_empty(len(own) * comm.size)
        comm.all_gather(row, own)
        return [
            row[start : start + p.numel()].view(p.shape)
            for p, start in zip(self.parameters, self.starts, strict=True)
        ]

    def check_unchanged(self, names: dict[nn.Parameter, str]) -> None:
        """Raise ValueError for a parameter that the program has changed since `show`."""
        for p, version in zip(self.parameters, self.versions, strict=True):
            if p._version != version:
                changed(names[p])


def changed(name: str) -> None:
    """Refuse a change that the owners of the shards do not see."""
    raise ValueError(
        f"{name} was changed outside the update, while its layer was gathered or freed: it would "
        "be lost, as only what the update does to a rank's shard lasts. Change parameters before "
        "training, or by the update rule."
    )


def parameters_by_layer(model: nn.Module) -> dict[str, list[nn.Parameter]]:
    """The trained parameters of each layer by its name: a module with parameters of its own, with
    all modules inside it; of the whole model only its own. One that several layers have belongs to
    the first, and parameters of different types lie in different vectors."""
    found: dict[str, list[nn.Parameter]] = {}
    seen: set[nn.Parameter] = set()

    def add(name: str, parameters: Iterator[nn.Parameter]) -> None:
        for p in parameters:
            if p.requires_grad and p not in seen:
                seen.add(p)
                alike = found.setdefault(name, [p])
                if alike[0].dtype != p.dtype:
                    alike = found.setdefault(f"{name} ({str(p.dtype).removeprefix('torch.')})", [p])
                if alike[-1] is not p:
                    alike.append(p)

    def walk(prefix: str, module: nn.Module) -> None:
        for name, child in module.named_children():
            if any(True for _ in child.parameters(recurse=False)):
                add(prefix + name, child.parameters())
            else:
                walk(f"{prefix}{name}.", child)

    add(type(model).__name__, model.parameters(recurse=False))
    walk("", model)
    if not found:
        raise ValueError("the model has no parameter to train: set requires_grad of one.")
    return found
