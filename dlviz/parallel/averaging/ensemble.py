"""An ensemble: ranks train separately and average their predictions. Training sends nothing.

    p(y | x) = 1/n Σ_r softmax(f(x; w_r))

This is the far end of the spectrum: one model per rank, none of which learns from the others. Rank
r of n trains on the whole batches r, r + n, ... Members commonly differ in their initial weights: a
cell may give each rank its own.

Source: Ben-Nun and Hoefler, "Demystifying Parallel and Distributed Deep Learning", ACM Computing
Surveys 52(4), 2019, section 6.1; Hansen and Salamon, "Neural Network Ensembles", IEEE TPAMI 12(10),
1990.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Unpack

import torch
from torch import nn

from dlviz.cluster import Comm
from dlviz.parallel.step.batches import Batches
from dlviz.parallel.step.layers import LayerSpans
from dlviz.parallel.step.replicas import check_same_model
from dlviz.parallel.step.sharded_step import Loss, Losses, Weight, learn_whole, rows
from dlviz.parallel.step.training import Options, Result, Training
from dlviz.parallel.update_rules import AnyRule


@torch.no_grad()
def probabilities(
    model: nn.Module, states: Sequence[Mapping[str, torch.Tensor]], inputs: torch.Tensor
) -> torch.Tensor:
    """The ensemble's prediction: the mean over `states` of the softmax of `model`'s logits, classes
    last."""
    member, total = copy.deepcopy(model).eval(), torch.zeros(())
    for state in states:
        member.load_state_dict(state)
        total = total + member(inputs).softmax(-1)
    return total / len(states)


def train(
    comm: Comm,
    model: nn.Module,
    batches: Batches,
    rule: AnyRule = "sgd",
    *,
    loss: Loss = nn.functional.cross_entropy,
    weight: Weight = rows,
    lr: float | None = None,
    **options: Unpack[Options],
) -> Result:
    """Train one model on each rank, from its initial weights there: as `data.train`, but each
    rank's `state` is its own member, and `losses` are each batch's on the member that took it.

    Cost: nothing is sent.
    """
    training = Training(comm, model.to(comm.device), rule, lr, options, loss, weight)
    comm.together(lambda left: check_same_model(left, model))
    pairs = training.read_ahead(batches)
    LayerSpans(comm, model)
    losses = Losses(comm, len(pairs))
    for number in comm.progress(range(comm.rank, len(pairs), comm.size), "training"):
        with comm.span("phase", f"step {number}", step=number):
            mean = learn_whole(comm, model, pairs[number], loss, weight)
            training.update()
            losses.add(number, 1, mean)
            training.end_step(number, 1, mean)
    return training.result(comm.together(losses.means))
