"""Hogwild: all ranks train one model, in memory that they share, and no lock guards it.

    rank 0   |forward backward|read modify write|forward backward|
    rank 1       |forward backward|read modify write|forward backward|
                                   rank 1 reads before rank 0 has written, and overwrites it

    w ← rule(w, g(w'))        w' the weights after the rank's update before, which others moved since

Without the lock some updates are lost. A gradient takes long and an update is short, so few of them
meet; sparse gradients (of nn.Embedding(sparse=True)) meet in fewer weights still, as only the rows
that a batch used are written. With `lock=True` a rank holds the lock from read to write: that is
the lecture's asynchronous SGD, one worker at a time, and loses nothing.

What is lost is counted in the memory that is trained. A word of it holds a weight and the number of
its updates, and is read and written whole: whoever overwrites an update overwrites its count.

    | weight | count |        lost = updates made - Σ count

What a rule remembers (momentum, say) stays with its rank, as in PyTorch's example.

Source: the lecture's "Hogwild (lock-free)"; Recht, Ré, Wright and Niu, "Hogwild!: A Lock-Free
Approach to Parallelizing Stochastic Gradient Descent", NIPS 2011. In PyTorch: share_memory() and
torch.multiprocessing, in its example mnist_hogwild.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress

import torch
from torch import nn

from dlviz.cluster import Comm, RankLost
from dlviz.parallel.layers import LayerSpans
from dlviz.parallel.replicas import flat_by_dtype, spread, start_alike
from dlviz.parallel.shards import (
    Batches,
    Loss,
    Result,
    Weight,
    check_batches,
    learn,
    no_mean,
    result,
    rows,
    trained,
    update,
)
from dlviz.parallel.update_rules import SGD, Rule, as_rule

Gradient = torch.Tensor | None
Place = slice | torch.Tensor


class Words:
    """Parameters of one dtype in memory that ranks share. A word has 8 bytes, or 16 for weights of
    8, which a processor moves in one piece: the weight comes first, its count last."""

    def __init__(self, comm: Comm, parameters: list[nn.Parameter]):
        flat = torch.cat([p.detach().flatten() for p in parameters])
        whole = torch.int64 if flat.itemsize < 8 else torch.complex128
        self.own = torch.zeros(len(flat), dtype=whole)  # what this rank has read
        self.weights = parts_of(self.own, flat.dtype)[:, 0]
        self.weights.copy_(flat)
        self.shared = comm.shared(self.own).tensor
        self.made = comm.shared(torch.zeros(comm.size, dtype=torch.int64)).tensor
        self.mine = self.made[comm.rank]  # updates of a weight by this rank
        self.parameters = parameters

    def read(self) -> None:
        """Give this rank's model the weights that there are."""
        self.own.copy_(self.shared)
        spread(self.weights, self.parameters)

    def write(self, gradients: list[Gradient]) -> None:
        """Put this rank's weights there, those that have a gradient, and count their update."""
        flat = torch.cat([p.detach().flatten() for p in self.parameters])
        counts = parts_of(self.own, torch.int32)[:, -1]
        for place in places_of(self.parameters, gradients):
            self.weights[place] = flat[place]
            counts[place] += 1
            words = self.own[place]
            self.mine += len(words)  # before: if the rank is lost now, its update is
            self.shared[place] = words

    def lost(self) -> int:
        """How many updates of a weight another rank has overwritten."""
        return int(self.made.sum() - parts_of(self.shared, torch.int32)[:, -1].sum())


def parts_of(words: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Each word as several numbers of this dtype: (words, parts)."""
    return words.view(dtype).view(len(words), words.itemsize // dtype.itemsize)


def places_of(parameters: list[nn.Parameter], gradients: list[Gradient]) -> list[Place]:
    """Which weights have a gradient, where all parameters lie in one flat tensor: stretches, and
    for a sparse gradient the rows that it has."""
    found: list[Place] = []
    start = 0
    for p, g in zip(parameters, gradients, strict=True):
        stop = start + p.numel()
        if g is not None and g.is_sparse:
            row = torch.arange(start, start + p[0].numel())
            found.append((g.indices()[0][:, None] * len(row) + row).flatten())
        elif g is not None:
            last = found[-1] if found else None
            if isinstance(last, slice) and last.stop == start:  # one stretch with the one before
                start = last.start
                found.pop()
            found.append(slice(start, stop))
        start = stop
    return found


def gradient_of(p: nn.Parameter, rule: Rule) -> Gradient:
    """Sparse if `p` has one that is and the rule moves no row without a gradient."""
    if p.grad is None or not p.grad.is_sparse:
        return p.grad
    return p.grad.coalesce() if isinstance(rule, SGD) else p.grad.to_dense()


def read_modify_write(comm: Comm, rule: Rule, memory: list[Words]) -> None:
    """Apply this rank's gradients to the weights that there are now."""
    parameters = [p for words in memory for p in words.parameters]
    gradients = {p: gradient_of(p, rule) for p in parameters}
    comm.hold()  # on a paced run, until the device reads
    for words in memory:
        words.read()
    update(comm, rule, parameters, [*gradients.values()], peer=comm.members[comm.rank])
    comm.hold()  # and until it has computed
    for words in memory:
        words.write([gradients[p] for p in words.parameters])


def meet(comm: Comm) -> None:
    """Wait until all ranks that are left have come here."""
    others = [rank for rank in range(comm.size) if rank != comm.rank]
    here = [comm.isend(torch.zeros(1), other) for other in others]
    for other, sending in zip(others, here, strict=True):
        with suppress(RankLost):
            comm.recv(torch.zeros(1), other)
            sending.wait()


def train(
    comm: Comm,
    model: nn.Module,
    batches: Batches,
    rule: str | Rule = "sgd",
    *,
    loss: Loss = nn.functional.cross_entropy,
    weight: Weight = rows,
    lr: float = 0.5,
    lock: bool = False,
) -> Result:
    """Train one model in memory that the ranks share, with the lock around each update or without:
    as `data.train`, but rank i of n takes batches i, i + n, ..., `losses` are each batch's at the
    weights that its rank had, and `state` has the rank's own buffers. Besides, returns how many
    `updates` of a weight were made and how many of them are `lost`.

    It goes on without a rank that the run may lose; the loss of a batch that it had not come to is
    nan. Raises ValueError where the ranks compute on another device than the CPU.
    Cost per batch: nothing is sent; 2|w| bytes are read and as many written, of a sparse gradient
    those of its rows.
    """
    if comm.device.type != "cpu":
        raise ValueError(
            f"hogwild trains in memory of the host, and rank {comm.rank} computes on "
            f"{comm.device}: give launch device='cpu'."
        )
    moves, parameters = as_rule(rule, lr), trained(model.to(comm.device))
    start_alike(comm, model)
    check_batches(batches)
    memory = [Words(comm, alike) for alike, _ in flat_by_dtype(parameters)]
    losses = comm.shared(torch.full((len(batches),), math.nan, dtype=torch.float64))
    LayerSpans(comm, model)
    for number in comm.progress(range(comm.rank, len(batches), comm.size), "training"):
        with comm.span("phase", f"step {number}", step=number):
            share, losses.tensor[number] = learn(comm, model, batches[number], loss, weight)
            if not share:
                no_mean()
            with losses.lock() if lock else nullcontext():
                read_modify_write(comm, moves, memory)
    meet(comm)
    for words in memory:
        words.read()
    made = sum(int(words.made.sum()) for words in memory)
    lost = sum(words.lost() for words in memory)
    return {**result(losses.tensor.tolist(), model), "lost": lost, "updates": made}


@contextmanager
def pinned(rank: int) -> Iterator[None]:
    """Keep this rank on one core: ranks take turns among those that there are (Linux)."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {sorted(cores)[rank % len(cores)]})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def increments(comm: Comm, times: int, *, lock: bool = False, pins: bool = False) -> int:
    """Add 1 to a number that all ranks share, `times` times on each rank, by read, modify and
    write; returns how many of them are lost. A worker for `launch`.

    With `pins` each rank keeps to one core.
    """
    number = comm.shared(torch.zeros(1, dtype=torch.int64))
    own = torch.zeros_like(number.tensor)
    with pinned(comm.rank) if pins else nullcontext():
        comm.barrier()
        with comm.span("phase", f"{times} increments"):
            for _ in range(times):
                with number.lock() if lock else nullcontext():
                    own.copy_(number.tensor)
                    own += 1
                    number.tensor.copy_(own)
        comm.barrier()
    return comm.size * times - int(number.tensor)
