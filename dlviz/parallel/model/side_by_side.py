"""Sub-networks that do not need each other's outputs, computed at the same time.

    rank 0   forward a | join   loss   their backward  | backward a
    rank 1   forward b |                               | backward b

`train.py` runs them, and updates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import nn

from dlviz.cluster import Comm
from dlviz.parallel.model.part_messages import Exchange
from dlviz.parallel.pipeline.saved_activations import SavedActivations
from dlviz.parallel.pipeline.stage_backward import Forward
from dlviz.parallel.step.sharded_step import Loss


class SideBySide(nn.Module):
    """Sub-networks that take the same input (B, ...). `join` makes one output from the list of
    theirs; it may be a module with weights. The default, the built-in `sum`, adds them."""

    def __init__(
        self,
        branches: Sequence[nn.Module],
        join: Callable[[list[torch.Tensor]], torch.Tensor] = sum,  # pyright: ignore
    ):
        super().__init__()
        self.branches = nn.ModuleList(branches)
        self.join = join

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.join([branch(x) for branch in self.branches])


def side_by_side(
    exchange: Exchange,
    model: SideBySide,
    rank_of: Sequence[int],
    inputs: torch.Tensor,
    labels: torch.Tensor,
    loss: Loss,
) -> float | None:
    """Forward and backward of one batch through the branches, branch i on rank `rank_of[i]`
    (ascending), and through `model.join`, on rank 0. Rank 0 returns the loss.

    Cost: a branch on another rank than 0 sends its output there, and receives as many bytes back.
    """
    comm, saved, value = exchange.comm, SavedActivations(model), None
    with saved:
        forwards = [
            Forward(branch, inputs, wanted=False)
            for branch, rank in zip(model.branches, rank_of, strict=True)
            if rank == comm.rank
        ]
    outputs = [forward.output.detach() for forward in forwards]
    hold(comm, saved, outputs)
    if comm.rank == 0:
        others = rank_of[len(forwards) :]
        outputs += [exchange.receive("activations", rank) for rank in others]
        value, gradients = join(comm, saved, model.join, outputs, labels, loss)
        for rank, gradient in zip(others, gradients[len(forwards) :], strict=True):
            exchange.send("gradients", gradient, rank)  # first: the others wait for it
    else:
        for output in outputs:
            exchange.send("activations", output, 0)
        gradients = [exchange.receive("gradients", 0) for _ in outputs]
    for forward, gradient in zip(forwards, gradients, strict=False):  # rank 0 has all gradients
        forward.backward(gradient)
    comm.memory("activations", 0)
    return value


def join(
    comm: Comm,
    saved: SavedActivations,
    joined: Callable[[list[torch.Tensor]], torch.Tensor],
    outputs: Sequence[torch.Tensor],
    labels: torch.Tensor,
    loss: Loss,
) -> tuple[float, list[torch.Tensor]]:
    """Rank 0's work between the branches' forward and backward. Returns the loss, and the gradient
    of each branch's output."""
    leaves = [output.requires_grad_() for output in outputs]
    with saved:
        root = loss(joined([leaf.clone() for leaf in leaves]), labels)  # it may work in place
    hold(comm, saved, leaves)
    root.backward()
    gradients = [
        torch.zeros_like(leaf) if leaf.grad is None else leaf.grad  # None: `joined` left it out
        for leaf in leaves
    ]
    return root.item(), gradients


def hold(comm: Comm, saved: SavedActivations, tensors: Sequence[torch.Tensor]) -> None:
    """Record this rank's bytes of activations: those that autograd has saved, and `tensors`."""
    for tensor in tensors:
        saved.see(tensor)
    comm.memory("activations", saved.nbytes)
