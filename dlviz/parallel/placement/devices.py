"""The ranks of a run as devices, and the graph of a model on all of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import nn

from dlviz.cluster import Comm
from dlviz.machine import Chance, Link
from dlviz.models.graph import graph_of
from dlviz.models.operator_graph import OperatorGraph
from dlviz.parallel.step.prices import pricing
from dlviz.sim.placement import Devices

HERE = Link(1e-4, 1e9)  # between processes of one computer, about


def devices_of(comm: Comm, link: Link | None = None, device_bytes: int | None = None) -> Devices:
    """The ranks as devices: with the machine's link and factors on a paced run."""
    machine = comm.machine
    factors = None
    if machine is not None and comm.size > 1 and link is None:
        path = machine.topology.path(0, 1)
        link = Link(path.latency, path.bandwidth)
    if machine is not None and machine.factors is not None:
        factors = [1.0 if isinstance(each, Chance) else each for each in machine.factors]
    return Devices(comm.size, link or HERE, factors, device_bytes)


def operators_of(
    comm: Comm, model: nn.Module, inputs: torch.Tensor, by: str, like: OperatorGraph | None
) -> OperatorGraph:
    """The graph that rank 0 makes of `model`, on every rank; ValueError on every rank if it
    cannot."""
    found: Any = None
    if comm.rank == 0:
        try:
            batch = inputs if like is None else inputs.to("meta")
            found = graph_of(model, batch, by=by, device=pricing(comm), like=like)
        except ValueError as error:
            found = error
    found = comm.broadcast_object(found)
    if isinstance(found, ValueError):
        raise found
    machine = comm.machine
    if machine is None or machine.step is None:
        return found
    forward = (machine.seconds("forward"),) * len(found)
    has = (found.has_backward(group) for group in range(len(found)))
    backward = tuple(machine.seconds("backward") if each else 0.0 for each in has)
    return replace(found, forward=forward, backward=backward)
