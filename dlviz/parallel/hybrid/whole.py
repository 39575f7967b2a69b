"""The whole model's state, put together on rank 0: along tp, then along pp."""

from __future__ import annotations

from typing import Any

import torch

from dlviz.parallel.hybrid.parts import Part
from dlviz.parallel.replicas import text_of
from dlviz.parallel.tensor.parameters import whole_state


def state_of(mesh: Any, part: Part) -> dict[str, torch.Tensor]:
    """On rank 0 the parameters and buffers of all ranks' parts by name, on the CPU, in the order of
    the whole model; empty on the others. Every rank must call it.

    The first replica's are taken, and a tensor is sent at a time.
    """
    # What is in no layer, a buffer say, is the same on all ranks of tp.
    found = {name: value.cpu() for name, value in part.net.state_dict().items()}
    found |= whole_state(mesh.tp, part.net)
    if mesh.tp.rank or mesh.dp.rank:
        return {}
    for rank in range(1, mesh.pp.size):
        for name in text_of(mesh.pp, "\n".join(found), rank).split("\n"):
            if mesh.pp.rank == rank:
                mesh.pp.send(found[name], 0)
            elif mesh.pp.rank == 0:
                value = mesh.pp.probe(rank)
                mesh.pp.recv(value, rank)
                found.setdefault(name, value)
    if mesh.pp.rank:
        return {}
    return {name: found[name] for name in sorted(found, key=part.place)}
