"""Costs of a layer under each cut beside four real ranks that compute it, held to a machine: the
seconds of a step by the device clock, and the elements in its messages."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import dlviz
from dlviz.analysis.steps import step_seconds
from dlviz.machine import Device, Link, Machine, Topology
from dlviz.parallel.convolution import Distribution
from dlviz.parallel.convolution.layers import DistributedConv2d
from dlviz.parallel.step.layers import LayerSpans
from dlviz.sim import LayerShape, cut_name, layer_cost

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:the run:RuntimeWarning"),  # a busy machine
]

AXES = {"N": "n", "H": "h", "W": "w", "C": "c", "F": "f"}
LINK = Link(latency=5e-3, bandwidth=1e6)
MACHINE = Machine(Device("slow", 2e7, 1e9, 1e9), Topology.switch(4, LINK), step=None)
LAYER = LayerShape(4, 8, 16, 16, 16, padding=1)
CUTS = [
    {"N": 4}, {"H": 4}, {"H": 2, "W": 2}, {"C": 4}, {"F": 4}, {"C": 2, "F": 2}, {"F": 2, "C": 2},
    {"N": 2, "H": 2}, {"N": 2, "F": 2}, {"H": 2, "C": 2}, {"H": 2, "F": 2},
]  # fmt: skip


def train(comm, keep_gathered):
    """Two steps of the layer under each cut, the first one to settle names and groups."""
    whole = nn.Conv2d(LAYER.channels, LAYER.filters, LAYER.kernel, padding=LAYER.padding)
    for number, cut in enumerate(CUTS):
        mesh = comm.mesh(**{AXES[dim]: parts for dim, parts in cut.items()})
        held = Distribution(**{dim: AXES[dim] for dim in cut})
        conv = DistributedConv2d(mesh, whole, held, LAYER.input, keep_gathered=keep_gathered)
        LayerSpans(comm, conv)
        part = [end.stop - end.start for end in held.x.block(mesh, LAYER.input)]
        for again in range(2):
            x = torch.randn(part).requires_grad_()
            conv.zero_grad()
            comm.barrier()
            with comm.span("step", step=2 * number + again):
                y = conv(x)
                y.backward(torch.ones_like(y))


@pytest.mark.parametrize("kept", [False, True])
def test_a_layer_takes_and_sends_what_its_cost_says(kept):
    trace = dlviz.launch(train, 4, MACHINE, args=(kept,)).trace
    spans, seconds = trace.spans, step_seconds(trace)
    sends = (spans.kind == "send") & (spans.flow >= 0)
    for step, cut in enumerate(CUTS):
        own = np.flatnonzero(sends & (spans.step == 2 * step + 1))
        sent = np.bincount(spans.rank[own], trace.messages.nbytes[spans.flow[own]])
        cost = layer_cost(LAYER, cut, MACHINE, keep_gathered=kept)
        assert sent.max() / 4 == cost.words, cut_name(cut)
        message = LINK.seconds(4 * 4 * 8 * 8) if len({*"HW"} & {*cut}) == 2 else 0.0
        late = seconds[2 * step + 1] - cost.seconds  # of three messages one may wait at a port
        assert abs(late) <= message + 0.01 * cost.seconds, cut_name(cut)
