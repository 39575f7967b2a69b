"""The pipeline that is written out by hand, beside the general one and beside one process."""

import pytest
import torch
from torch import nn
from torch.nn import functional

import dlviz
from dlviz import metrics, schedules
from dlviz.machine import Link, Machine, Topology, classroom
from dlviz.parallel.pipeline import gpipe_by_hand, train_step

WIDTH, MICROBATCHES = 5, (1, 3, 8)


def network(stages):
    torch.manual_seed(0)
    return [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()).double() for _ in range(stages)]


def batch(microbatches):
    generator = torch.Generator().manual_seed(microbatches)
    return torch.randn(2, 2 * microbatches, WIDTH, generator=generator, dtype=torch.float64)


def gradients(stage):
    return [p.grad for p in stage.parameters()]


def compare_three_methods(comm):
    """How far loss and gradients by hand are from `train_step` and from one process, at most."""
    apart = []
    for microbatches in MICROBATCHES:
        x, y = batch(microbatches)
        by_hand, general, alone = (network(comm.size) for _ in range(3))
        loss = gpipe_by_hand.step(comm, by_hand[comm.rank], x, y, functional.mse_loss, microbatches)
        schedule = schedules.make("gpipe", comm.size, microbatches)
        losses = [train_step(comm, general, schedule, x, y, functional.mse_loss)]
        value = functional.mse_loss(nn.Sequential(*alone)(x), y)
        value.backward()
        losses.append(value.item())
        for other in (general[comm.rank], alone[comm.rank]):
            pairs = zip(gradients(by_hand[comm.rank]), gradients(other), strict=True)
            apart += [(mine - its).abs().max().item() for mine, its in pairs]
        apart += [abs(loss - other) for other in losses]
    return max(apart)


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_gpipe_by_hand_is_what_train_step_and_one_process_compute(ranks):
    assert max(dlviz.launch(compare_three_methods, ranks).results) < 1e-12


@pytest.mark.filterwarnings("ignore:the run was up to")  # device time is what it is
def test_gpipe_by_hand_has_the_bubble_of_gpipe():
    def worker(comm):
        x, y = batch(8)
        comm.barrier()  # else the first rank may have begun before
        gpipe_by_hand.step(comm, network(comm.size)[comm.rank], x, y, functional.mse_loss, 8)

    free = Topology.switch(4, Link(0.0, 1e30))
    trace = dlviz.launch(worker, 4, machine=Machine(classroom(4).device, free, 0.02)).trace
    assert metrics.bubble_ratio(trace, "device") == pytest.approx(3 / 8, rel=1e-6)
    assert metrics.peak_in_flight(trace).tolist() == [8] * 4
