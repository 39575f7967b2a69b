"""Elastic averaging SGD: each worker trains its own model, tied to the master's centre W̄.

    W^i ← W^i - η (ΔW^i + ρ (W^i - W̄))        (1)  local updates by workers
    W̄   ← W̄ + η Σ_i ρ (W^i - W̄)               (2)  global updates by the master

α = ηρ is the share of their distance by which worker and centre each move towards the other. Both
equations take W^i from before the update.

    round_robin    the lecture's Algorithm 1: one worker at a time, so four are no faster than one
    synchronous    all workers compute on shards of a batch, and (2) sums over all of them
    asynchronous   each worker exchanges with the centre as soon as it has a gradient

A worker that the run has lost (`launch`, `may_lose`) leaves the centre unchanged: its turns pass,
its shards or batches are not learnt from, and are counted.

On a loss of curvature 1 one round is a matrix, and it is stable while its spectral radius is below
1: for a worker, and round robin with an odd number, α < (4-2η)/(4-η), with an even number a little
more; synchronous with p workers α < (4-2η)/(2+2p-pη).

Lines 1 and 2 of Algorithm 1, normalised inputs and Xavier's weights, are `normalised` and `xavier`:
apply them before `train`, which takes your model and data as they are.

Source: the lecture's Algorithm 1 and equations 1 and 2; Zhang, Choromanska and LeCun, "Deep
Learning with Elastic Averaging SGD", NIPS 2015, section 3 and, on stability, section 4.
"""

from __future__ import annotations

import math
import warnings
from typing import Unpack

import torch
from torch import nn
from torch.utils._pytree import tree_leaves, tree_structure, tree_unflatten

from dlviz.cluster import Comm
from dlviz.parallel.averaging.easgd.messages import Elastic
from dlviz.parallel.averaging.easgd.stability import check_form, spectral_radius, stable_alpha
from dlviz.parallel.server.push_pull import check_workers, dealt, end_alike
from dlviz.parallel.step.batches import Batches, shard
from dlviz.parallel.step.sharded_step import Loss, Weight, begin, no_mean, rows
from dlviz.parallel.step.training import Options, Result, Training
from dlviz.parallel.update_rules import AnyRule

__all__ = ["normalised", "spectral_radius", "stable_alpha", "train", "xavier"]


def normalised(batches: Batches) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Line 1: the inputs of all batches with mean 0 and standard deviation 1."""
    inputs = torch.cat([each.flatten() for each, _ in batches])
    mean, deviation = inputs.mean(), inputs.std(correction=0)
    return [((each - mean) / deviation, labels) for each, labels in batches]


def xavier(model: nn.Module, seed: int = 0) -> nn.Module:
    """Line 2: `model` with its matrices drawn by Xavier's rule and its biases 0."""
    generator = torch.Generator().manual_seed(seed)
    for name, p in model.named_parameters():
        if p.dim() > 1:
            nn.init.xavier_uniform_(p, generator=generator)
        elif name.endswith("bias"):
            nn.init.zeros_(p)
    return model


def round_robin(comm: Comm, one: Elastic) -> int:
    """Lines 6 to 14 of Algorithm 1, as printed; worker G has the turns with t mod G = 0. Returns,
    on rank 0, how many turns of lost workers have passed."""
    missing = 0
    for t in comm.progress(range(1, len(one.batches) + 1), "training"):  # line 6
        j = t % (comm.size - 1) or comm.size - 1  # line 7
        with comm.span("phase", f"step {t - 1}", step=t - 1):
            if comm.rank == 0:
                with comm.span("data", "samples"):  # lines 8 and 9: batch t was picked at random
                    sending = [comm.isend(part, j) for part in tree_leaves(one.batches[t - 1])]
                one.reply(j)  # line 10
                local, _ = one.take([j])  # line 12
                if not local:
                    missing += 1
                    continue
                one.global_update([local], peer=comm.members[j])  # line 14
                comm.wait_sent(sending)
            elif comm.rank == j:
                parts, form = [], tree_structure(one.batches[t - 1])
                with comm.span("data", "samples"):
                    for _ in range(form.num_leaves):
                        parts.append(comm.probe(0))
                        comm.recv(parts[-1], 0)
                batch = tree_unflatten(parts, form)
                centre = one.receive()
                share = one.learn(t - 1, batch)  # line 11
                if not share:
                    no_mean()
                one.send()  # line 12, before
                one.local_update(t - 1, share, centre)  # line 13, equation 1
    return missing


def synchronous(comm: Comm, one: Elastic) -> int:
    """Every worker in every step, on its shard of the batch. Returns, on rank 0, how many models of
    lost workers are missing."""
    workers, missing = [*range(1, comm.size)], 0
    for step, batch in enumerate(comm.progress(one.batches, "training")):
        with comm.span("phase", f"step {step}", step=step):
            if comm.rank == 0:
                for worker in workers:
                    one.reply(worker)
                taken = {worker: one.take([worker])[0] for worker in workers}
                workers = [worker for worker in workers if taken[worker]]
                missing += comm.size - 1 - len(workers)
                one.global_update([taken[worker] for worker in workers])
            else:
                centre = one.receive()
                share = one.learn(step, shard(batch, comm.rank - 1, comm.size - 1), whole=False)
                one.send()
                one.local_update(step, share, centre)
    return missing


def asynchronous(comm: Comm, one: Elastic) -> int:
    """Each worker on its own batches; the master serves one at a time, in order of arrival.
    Returns, on rank 0, how many batches lost workers did not reach."""
    missing, batches = 0, len(one.batches)
    if comm.rank == 0:
        left = {each: len(dealt(comm, each, batches)) for each in range(1, comm.size)}
        for number in comm.progress(range(batches), "training"):
            computing = [each for each in left if left[each]]
            if not computing:
                break  # the other batches were lost workers'
            with comm.span("phase", f"update {number}", step=number):
                local, worker = one.take(computing)
                if not local:
                    missing += left.pop(worker)
                    continue
                left[worker] -= 1
                one.reply(worker)
                one.global_update([local], peer=comm.members[worker])
        return missing
    for number in dealt(comm, comm.rank, batches):
        with comm.span("phase", f"step {number}", step=number):
            share = one.learn(number, one.batches[number])
            if not share:
                no_mean()
            one.send()
            one.local_update(number, share, one.receive())
    return missing


def train(
    comm: Comm,
    model: nn.Module,
    batches: Batches,
    rule: AnyRule = "sgd",
    *,
    loss: Loss = nn.functional.cross_entropy,
    weight: Weight = rows,
    lr: float | None = None,
    alpha: float = 0.1,
    form: str = "round_robin",
    **options: Unpack[Options],
) -> Result:
    """Train by elastic averaging; rank 0 is the master: as `data.train`, but `state` is the centre,
    with the buffers of rank 1, and `losses` are the workers', nan where all that saw a batch are
    lost. Also returns how many gradients are `missing` because their worker was lost.

    Raises ValueError for an unknown form, an alpha below 0, and without a worker; warns of an alpha
    outside the stable range on curvature 1.
    Cost: |w| bytes to a worker and as many back for each gradient, and in round robin its samples.
    """
    check_form(form)
    check_workers(comm, "easgd")
    given = comm, model, rule, lr, options, loss, weight
    training = Training(*given, evaluator=1, whole=lambda: one.centre())
    moves = training.moves
    if not (isinstance(alpha, int | float) and 0 <= alpha < math.inf and moves.lr > 0):
        raise ValueError(
            f"alpha={alpha!r} at lr={moves.lr!r} is invalid: use alpha=0 or more and lr above 0."
        )
    bound = stable_alpha(comm.size - 1, moves.lr, form)
    if alpha > bound and comm.rank == 0:
        warnings.warn(
            f"alpha={alpha:g} is outside the stable range of easgd, {form}, with "
            f"{comm.size - 1} workers at lr={moves.lr:g} on curvature 1, where workers and centre "
            f"swing apart: use less than {bound:.4g}.",
            RuntimeWarning,
            stacklevel=2,
        )
    pairs = training.read_ahead(batches)
    begin(comm, model)  # lines 3 to 5
    one = Elastic(training, pairs, alpha, loss=loss, weight=weight)
    forms = {"round_robin": round_robin, "synchronous": synchronous, "asynchronous": asynchronous}
    missing = forms[form](comm, one)
    return end_alike(training, one.losses, missing=missing)
