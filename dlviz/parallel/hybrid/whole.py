"""The whole model's state, assembled on rank 0: along tp, then along pp."""

from __future__ import annotations

import json
from typing import Any

import torch

from dlviz.cluster import dtype_name
from dlviz.parallel.hybrid.parts import RankPart
from dlviz.parallel.step.replicas import text_of
from dlviz.parallel.tensor.parameters import whole_state


def state_of(mesh: Any, part: RankPart) -> dict[str, torch.Tensor]:
    """The parameters and buffers of the first replica by name, on rank 0, on the CPU, in the order
    of the whole model; empty on the other ranks. Every rank must call it. One tensor is sent at a
    time.
    """
    # Values outside the layers, a buffer say, are the same on all ranks of tp.
    found = {name: value.cpu() for name, value in part.net.state_dict().items()}
    found |= whole_state(mesh.tp, part.net)
    if mesh.tp.rank or mesh.dp.rank:
        return {}
    whole = dict(found)
    for rank in range(1, mesh.pp.size):
        forms = "\n".join(f"{name} {dtype_name(t.dtype)} {[*t.shape]}" for name, t in found.items())
        for form in text_of(mesh.pp, forms, rank).split("\n"):
            name, dtype, shape = form.split(" ", 2)
            value = found[name] if mesh.pp.rank == rank else None
            if value is None:
                value = torch.empty(json.loads(shape), dtype=getattr(torch, dtype))
            mesh.pp.broadcast(value, rank)
            if mesh.pp.rank == 0:
                whole.setdefault(name, value)
    return {} if mesh.pp.rank else {name: whole[name] for name in sorted(whole, key=part.place)}
