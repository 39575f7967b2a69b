"""Two images on eight paced ranks: what cutting their rows gains, and what a switch takes, is what
`sim` says. (tests/sim/test_sim_layer_costs_paced.py has the other cuts.)"""

from __future__ import annotations

from functools import cache

import pytest
import torch
from torch import nn

import dlviz
from dlviz.machine import Device, Link, Machine, Topology
from dlviz.parallel.convolution import Distribution, redistribute
from dlviz.parallel.convolution.layers import DistributedConv2d
from dlviz.parallel.step.layers import LayerSpans
from dlviz.sim import LayerShape, layer_cost, switch_cost

pytestmark = pytest.mark.filterwarnings("ignore:the run:RuntimeWarning")  # a busy machine
RANKS, LINK = 8, Link(1e-3, 1e8)
LAYER = LayerShape(2, 8, 8, 32, 32, kernel=3, padding=1)
CUTS = [{"N": 8}, {"N": 2, "H": 4}]
MACHINE = Machine(Device("slow", 4e6, 1e9, 1e9), Topology.switch(RANKS, LINK), None)


def worker(comm):
    conv = nn.Conv2d(LAYER.channels, LAYER.filters, 3, padding=1)
    nn.functional.conv2d(torch.ones(1, 8, 4, 4), conv.weight).sum().backward()  # loads its library
    work = []
    for cut in CUTS:
        mesh = comm.mesh(**{dim.lower(): parts for dim, parts in cut.items()})
        held = Distribution(**{dim: dim.lower() for dim in cut})
        layer = DistributedConv2d(mesh, conv, held, LAYER.input)
        LayerSpans(comm, layer)
        work.append((mesh, held, layer))
    src, dst = held, Distribution(C=("n", "h"))
    work.append((mesh, src, lambda x: redistribute(x, mesh, src, dst, LAYER.input)))
    for step, (mesh, held, act) in enumerate(work):
        x = torch.zeros(LAYER.input)[held.block(mesh, LAYER.input)].contiguous().requires_grad_()
        comm.start_line()
        with comm.span("phase", "work", step=step):
            y = act(x)
            y.backward(torch.zeros_like(y))


@cache
def seconds():
    """Of each step, from the first rank's start to the last one's end."""
    spans = dlviz.launch(worker, RANKS, machine=MACHINE).trace.spans.frame()
    steps = spans[(spans.kind == "phase") & (spans.name == "work")].groupby("step")
    return (steps.end.max() - steps.start.min()).tolist()


def test_rows_gain_what_sim_says_where_samples_have_run_out():
    by_sample, by_rows = (layer_cost(LAYER, cut, MACHINE).seconds for cut in CUTS)
    assert seconds()[:2] == pytest.approx([by_sample, by_rows], abs=LINK.latency, rel=0.001)
    assert seconds()[0] / seconds()[1] == pytest.approx(by_sample / by_rows, rel=0.01)
    assert 3.5 < by_sample / by_rows < 4


def test_a_switch_takes_what_sim_says():
    expected = switch_cost(LAYER, {"N": 2, "H": 4}, {"C": 8}, MACHINE).seconds
    assert seconds()[2] == pytest.approx(expected, abs=LINK.latency, rel=0.001)
