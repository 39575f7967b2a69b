"""GPipe by hand: one step, a stage on each of p ranks, m microbatches. Read this one first.

    rank 0   F0 F1 F2 F3                   B3--- B2--- B1--- B0---
    rank 1      F0 F1 F2 F3          B3--- B2--- B1--- B0---
    rank 2         F0 F1 F2 F3 B3--- B2--- B1--- B0---

A forward: receive, compute, send. A backward: receive, compute, send. The last microbatch goes back
first. `train_step` (run.py) runs the same step, and that of any other schedule, from its list of
actions.

Source: Huang et al., GPipe, NeurIPS 2019, section 2.3.
"""

from __future__ import annotations

import torch
from torch import nn

from dlviz.cluster import Comm
from dlviz.models.mean_of import Loss, Weight
from dlviz.parallel.pipeline.microbatches import Microbatches
from dlviz.parallel.step.sharded_step import rows


def step(
    comm: Comm,
    stage: nn.Module,
    inputs: torch.Tensor,
    targets: torch.Tensor,
    loss: Loss,
    microbatches: int,
    weight: Weight = rows,
) -> float:
    """Add the gradients of one batch to those of this rank's `stage`; returns the batch's mean
    loss, on every rank. `inputs` and `targets`, (B, ...), are cut into `microbatches` of equal
    length; `loss` is the mean over one of them, and counts by `weight` (run.py)."""
    before, after = comm.rank - 1, comm.rank + 1
    is_first, is_last = comm.rank == 0, after == comm.size
    cut = inputs.chunk(microbatches), targets.chunk(microbatches)
    batch = Microbatches(*cut, loss, weight)
    saved, sends, mean = [], [], torch.zeros(1, dtype=torch.float64)

    for number, x in enumerate(cut[0]):
        if not is_first:
            x = comm.probe(before)  # an empty tensor of the message's shape
            comm.recv(x, before)
            x.requires_grad_()  # the previous rank waits for its gradient
        with comm.compute("forward", stage=comm.rank, microbatch=number):
            output = stage(x)
            if is_last:
                # The mean over the batch is the weighted mean of the microbatches' means.
                output = batch.loss(number, output) * batch.share(number)
        if not is_last:
            sends.append(comm.isend(output.detach(), after))  # in transit during the next forward
        saved.append((number, x, output))  # all m of them, for the backward: GPipe's price

    for number, x, output in reversed(saved):
        gradient = None  # the loss is where the gradient starts
        if not is_last:
            gradient = torch.empty_like(output)
            comm.recv(gradient, after)
        with comm.compute("backward", stage=comm.rank, microbatch=number):
            output.backward(gradient)  # adds to the gradients of the weights, and fills x.grad
        if not is_first:
            sends.append(comm.isend(x.grad, before))

    for send in sends:
        send.wait()
    if is_last:
        mean += batch.mean()
    comm.broadcast(mean, src=comm.size - 1)  # only the last rank has the loss
    return mean.item()
