"""Layers that are cut on a paced machine: what a step takes is what `sim` says, to the latency of
a message."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from torch import nn

import dlviz
from dlviz.machine import Device, Link, Machine, Topology
from dlviz.parallel.convolution import Distribution, redistribute
from dlviz.parallel.convolution.general import DistributedConv2d
from dlviz.parallel.step.layers import LayerSpans
from dlviz.sim.layer_costs import layer_cost, switch_cost
from dlviz.sim.layer_shapes import LayerShape

RANKS = 8
LAYER = LayerShape(2, 8, 8, 32, 32, kernel=3, padding=1)
CUTS = [{"N": 8}, {"N": 2, "H": 4}, {"N": 2, "H": 2, "W": 2}, {"F": 8}, {"C": 4, "F": 2}]
LINK = Link(1e-3, 1e8)
MACHINE = Machine(
    Device("slow", flops=4e6, memory=1e9, memory_bandwidth=1e9), Topology.switch(RANKS, LINK), None
)


def distribution(cut):
    return Distribution(**{dim: dim.lower() for dim in cut})


def worker(comm):
    meshes = [comm.mesh(**{dim.lower(): parts for dim, parts in cut.items()}) for cut in CUTS]
    conv = nn.Conv2d(LAYER.channels, LAYER.filters, 3, padding=1)
    shape, layers = (2, 8, 32, 32), []
    for cut, mesh in zip(CUTS, meshes, strict=True):
        layers.append(DistributedConv2d(mesh, conv, distribution(cut), shape))
        LayerSpans(comm, layers[-1])
    both = comm.mesh(n=2, h=4)
    nn.functional.conv2d(torch.ones(1, 8, 4, 4), conv.weight).sum().backward()  # loads its library
    for step, (mesh, layer) in enumerate(zip(meshes, layers, strict=True)):
        x = torch.zeros(shape)[layer.takes.block(mesh, shape)].contiguous().requires_grad_()
        comm.start_line()
        with comm.span("phase", "layer", step=step):
            y = layer(x)
            y.backward(torch.zeros_like(y))
    src, dst = Distribution(N="n", H="h"), Distribution(C=("n", "h"))
    x = torch.zeros(shape)[src.block(both, shape)].contiguous().requires_grad_()
    comm.start_line()
    with comm.span("phase", "switch", step=len(CUTS)):
        y = redistribute(x, both, src, dst, shape)
        y.backward(torch.zeros_like(y))


@cache
def seconds():
    """Of each step, from its first rank's start to its last one's end."""
    spans = dlviz.launch(worker, RANKS, machine=MACHINE).trace.spans.frame()
    steps = spans[spans.kind == "phase"].query("name in ('layer', 'switch')").groupby("step")
    return (steps.end.max() - steps.start.min()).tolist()


@pytest.mark.parametrize("number", range(len(CUTS)), ids=map(str, CUTS))
def test_a_step_of_a_layer_takes_what_sim_says(number):
    expected = layer_cost(LAYER, CUTS[number], MACHINE).seconds
    assert seconds()[number] == pytest.approx(expected, abs=LINK.latency, rel=0.001)


def test_a_switch_takes_what_sim_says():
    expected = switch_cost(LAYER, {"N": 2, "H": 4}, {"C": 8}, MACHINE).seconds
    assert seconds()[-1] == pytest.approx(expected, abs=LINK.latency, rel=0.001)


def test_two_images_on_eight_ranks_gain_by_rows_what_sim_says():
    by_sample, by_rows, *_ = (layer_cost(LAYER, cut, MACHINE).seconds for cut in CUTS)
    measured = seconds()[0] / seconds()[1]
    assert 2 < measured == pytest.approx(by_sample / by_rows, rel=0.01)
