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
from dlviz.parallel.convolution import Distribution, redistribute
from dlviz.parallel.convolution.layers import DistributedConv2d
from dlviz.parallel.step.layers import LayerSpans
from dlviz.sim import LayerShape, cut_name, layer_cost, switch_cost

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:the run:RuntimeWarning"),  # a busy machine
]

AXES = {"N": "n", "H": "h", "W": "w", "C": "c", "F": "f"}
MACHINE = Machine(
    Device("slow", 2e7, 1e9, 1e9), Topology.switch(4, Link(latency=5e-3, bandwidth=1e6)), step=None
)
EVEN, UNEVEN = LayerShape(4, 8, 16, 16, 16, padding=1), LayerShape(2, 4, 8, 17, 15, 5, 2, 1)
CUTS = [
    {"N": 4}, {"H": 4}, {"H": 2, "W": 2}, {"C": 4}, {"F": 4}, {"C": 2, "F": 2}, {"F": 2, "C": 2},
    {"N": 2, "H": 2}, {"N": 2, "F": 2}, {"H": 2, "C": 2}, {"H": 2, "F": 2},
]  # fmt: skip
LATER = 0.1  # where ranks begin an all-reduce at different times, of which a cost knows nothing


def distribution(cut):
    return Distribution(**{dim: AXES[dim] for dim in cut})


def train(comm, layer, keep_gathered=False):
    """Two steps of the layer under each cut, the first one to settle names and groups."""
    for number, cut in enumerate(CUTS):
        mesh = comm.mesh(**{AXES[dim]: parts for dim, parts in cut.items()})
        whole = nn.Conv2d(layer.channels, layer.filters, layer.kernel, layer.stride, layer.padding)
        held = distribution(cut)
        conv = DistributedConv2d(mesh, whole, held, layer.input, keep_gathered=keep_gathered)
        LayerSpans(comm, conv)
        part = [end.stop - end.start for end in held.x.block(mesh, layer.input)]
        for again in range(2):
            x = torch.randn(part).requires_grad_()
            conv.zero_grad()
            comm.barrier()
            with comm.span("step", step=2 * number + again):
                y = conv(x)
                y.backward(torch.ones_like(y))


CHANGES = [("n", "h"), ("n", "c"), ("h", "c"), ("c", "h")]


def change(comm, layer):
    """The layer's input from one cut to another, and its gradient back."""
    mesh = comm.mesh(p=4)
    for number, (before, after) in enumerate(CHANGES):
        src, dst = (Distribution(**{dim.upper(): "p"}) for dim in (before, after))
        part = [end.stop - end.start for end in src.block(mesh, layer.input)]
        for again in range(2):
            x = torch.randn(part).requires_grad_()
            comm.barrier()
            with comm.span("step", step=2 * number + again):
                y = redistribute(x, mesh, src, dst, layer.input)
                y.backward(torch.ones_like(y))


def measured(trace):
    """Of each second step its seconds, and the elements sent by the rank that sent most."""
    spans, seconds = trace.spans, step_seconds(trace)
    for step in range(1, len(seconds), 2):
        sends = np.flatnonzero((spans.kind == "send") & (spans.flow >= 0) & (spans.step == step))
        sent = np.bincount(spans.rank[sends], trace.messages.nbytes[spans.flow[sends]])
        yield seconds[step], sent.max() / 4


@pytest.mark.parametrize(("layer", "kept"), [(EVEN, False), (EVEN, True), (UNEVEN, False)])
def test_a_layer_takes_and_sends_what_its_cost_says(layer, kept):
    trace = dlviz.launch(train, 4, MACHINE, args=(layer, kept)).trace
    exact = 0
    for cut, (seconds, words) in zip(CUTS, measured(trace), strict=True):
        cost, name = layer_cost(layer, cut, MACHINE, keep_gathered=kept), cut_name(cut)
        assert 0.99 * cost.seconds < seconds < (1 + LATER) * cost.seconds, name
        exact += seconds < 1.01 * cost.seconds
        # The most that a rank sends in each part need not be the same rank's.
        assert words == cost.words if layer is EVEN else 0.9 * cost.words < words <= cost.words, (
            name
        )
    assert exact >= len(CUTS) - 1


def test_a_change_of_cut_takes_and_sends_what_its_cost_says():
    trace = dlviz.launch(change, 4, MACHINE, args=(EVEN,)).trace
    for (before, after), (seconds, words) in zip(CHANGES, measured(trace), strict=True):
        cost = switch_cost(EVEN, {before.upper(): 4}, {after.upper(): 4}, MACHINE)
        assert words == cost.words == 2 * 3 / 4**2 * 4 * 8 * 16 * 16, (before, after)
        assert seconds == pytest.approx(cost.seconds, rel=0.01), (before, after)
