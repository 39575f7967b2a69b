"""The whole model's state, assembled on rank 0: along tp, then along pp."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from dlviz.parallel.hybrid.parts import RankPart
from dlviz.parallel.step.whole_model import by_stage_names, gathered_state
from dlviz.parallel.tensor.parameters import whole_state


def state_of(mesh: Any, part: RankPart, model: Any = None) -> dict[str, torch.Tensor]:
    """The parameters and buffers of the first replica by name, on rank 0, on the CPU, in the order
    of the whole model; empty on the other ranks. Every rank must call it. One tensor is sent at a
    time. If `model` is a list of stages, by their names in these (`by_stage_names`).
    """
    # Values outside the layers, a buffer say, are the same on all ranks of tp.
    found = {name: value.cpu() for name, value in part.net.state_dict().items()}
    found |= whole_state(mesh.tp, part.net)
    if mesh.tp.rank or mesh.dp.rank:
        return {}
    whole = gathered_state(mesh.pp, found)
    whole = {name: whole[name] for name in sorted(whole, key=part.place)}
    return by_stage_names(whole) if isinstance(model, Sequence) else whole
