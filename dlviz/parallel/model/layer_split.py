"""Which part of a model lives on which rank: runs of layers, the largest as small as possible.

bytes   4 1 1 | 3 3 | 6      three ranks; the most that one holds is 6, and no cut does better
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import nn

from dlviz.cluster import Comm
from dlviz.parallel.pipeline.partition import children_in_order, cut
from dlviz.parallel.step.whole_model import gathered_state


def parts_of(
    model: nn.Module,
    ranks: int,
    cuts: Sequence[int] | None = None,
    branches: list[nn.Module] | None = None,
) -> list[list[nn.Module]]:
    """The sub-networks of each rank: runs of `model`'s layers, or of its `branches`.

    `cuts` are the numbers of the pieces at which the runs of ranks 1, 2, ... begin; without them
    the largest run has as few bytes of weights as possible. Raises ValueError for a model that is
    not a sequence of layers, one with fewer pieces than `ranks`, and invalid cuts.
    """
    pieces = children_in_order(model) if branches is None else branches
    word = "layers" if branches is None else "branches"
    what = f"{type(model).__name__} with {word}={len(pieces)}"
    if len(pieces) < ranks:
        raise ValueError(
            f"{what} cannot be cut over ranks={ranks}: each rank needs one or more. Use "
            f"ranks={len(pieces)} or fewer."
        )
    nbytes = [float(sum(p.nbytes for p in piece.parameters())) for piece in pieces]
    starts = cut(nbytes, ranks) if cuts is None else [0, *cuts]
    if len(starts) != ranks or not all(a < b for a, b in pairwise([*starts, len(pieces)])):
        raise ValueError(
            f"{what} cannot be cut over ranks={ranks} by cuts={cuts!r}: the part of each rank "
            f"after rank 0 begins at one of them. Give {ranks - 1}, ascending, from 1 to "
            f"{len(pieces) - 1}."
        )
    return [pieces[start:end] for start, end in pairwise([*starts, len(pieces)])]


def free_others(model: nn.Module, part: nn.Module) -> None:
    """Free the weights of `model` that are not in `part`: the meta device holds only shapes."""
    own = {model, *part.modules()}
    for module in model.modules():
        if module not in own:
            module.to_empty(device="meta", recurse=False)


def whole_state(comm: Comm, model: nn.Module) -> dict[str, torch.Tensor]:
    """The parameters and buffers of all ranks' parts of `model`, on the CPU of rank 0, in the
    model's order; empty on the others."""
    state = model.state_dict()
    own = {name: value.cpu() for name, value in state.items() if not value.is_meta}
    whole = gathered_state(comm, own)
    return {name: whole[name] for name in state if name in whole}
