"""Hogwild: all ranks train one model in shared memory, without a lock.

    rank 0   |forward backward|read modify write|forward backward|
    rank 1       |forward backward|read modify write|forward backward|
                                   rank 1 reads before rank 0 has written, and overwrites it

    w ← rule(w, g(w'))        w' the weights after this rank's last update, which others moved since

Of two updates that overlap, one is lost. An update reads, moves and writes all weights; a gradient
commonly takes much longer. Of sparse gradients (nn.Embedding(sparse=True)) only the rows that a
batch used are written, so that few weights collide. (PyTorch's example moves each weight in place,
where two overlapping updates lose a few weights. Equally fast ranks of a paced run update at the
same moments, and lose most.) With `lock=True` a rank holds the lock from read to write: that is the
lecture's asynchronous SGD, one worker at a time, and nothing is lost.

Lost updates are counted in the trained memory itself. It holds complex numbers, each read and
written whole: overwriting an update overwrites its count.

    weight + count · i        lost = updates made - Σ count

That moves twice the bytes; with `count=False` the memory holds only the weights, as in PyTorch's
example.

The state of a rule (momentum, say) stays on its rank, as in PyTorch's example. A parameter that a
batch has not used has a gradient of 0. Weights of 16 bits are float32 in shared memory.

Source: the lecture's "Hogwild (lock-free)"; Recht, Ré, Wright and Niu, "Hogwild!: A Lock-Free
Approach to Parallelizing Stochastic Gradient Descent", NIPS 2011. In PyTorch: share_memory() and
torch.multiprocessing, in its example mnist_hogwild.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, Unpack

import torch
from torch import nn

from dlviz.cluster import Comm
from dlviz.counts import check_counts
from dlviz.parallel.step.batches import Batches
from dlviz.parallel.step.replicas import flat_by_dtype
from dlviz.parallel.step.sharded_step import Loss, Weight, begin, learn_whole, rows, trained
from dlviz.parallel.step.training import Options, Result, Training
from dlviz.parallel.update_rules import SGD, AnyRule, Rule, TorchRule


class Words:
    """Parameters of one dtype in shared memory, or one parameter with sparse gradients. `own` is
    this rank's copy, as last read; a rule moves the `weights` in it."""

    def __init__(self, comm: Comm, parameters: Sequence[torch.Tensor], sparse: bool, count: bool):
        self.parameters, self.sparse = parameters, sparse
        ((_, flat),) = flat_by_dtype([*parameters])
        whole = torch.float64 if flat.dtype == torch.float64 else torch.float32
        whole, self.one = (whole.to_complex(), 1j) if count else (whole, 0)
        self.own = flat.view_as(parameters[0] if sparse else flat).to(whole)
        self.weights = self.own.real  # a view: the rule moves own
        parts = self.own.flatten().real.split([p.numel() for p in parameters])
        self.model = [(p.detach(), w.view_as(p)) for p, w in zip(parameters, parts, strict=True)]
        self.shared = comm.shared(self.own).tensor  # rank 0's values, one memory for all ranks
        # A cell for each rank, which no other rank writes: this count loses nothing.
        self.made = comm.shared(torch.zeros(comm.size, dtype=torch.int64)).tensor
        self.mine = self.made[comm.rank]  # updates of a weight by this rank

    def read(self) -> None:
        """Copy the shared weights and their counts."""
        self.own.copy_(self.shared)

    def give(self) -> None:
        """Copy the weights into this rank's model."""
        for p, w in self.model:
            p.copy_(w)

    def gradient(self) -> torch.Tensor | None:
        """The gradient of the `weights`; None where no row has one."""
        if self.sparse:
            (p,) = self.parameters
            return None if p.grad is None else p.grad.coalesce()
        parts = [torch.zeros_like(p) if p.grad is None else p.grad for p in self.parameters]
        return torch.cat([(g.to_dense() if g.is_sparse else g).flatten() for g in parts])

    def write(self, gradient: torch.Tensor | None) -> None:
        """Write the weights (of a sparse parameter, the rows with a gradient) to shared memory, and
        count their updates."""
        if not self.sparse:
            self.mine += len(self.own)  # first: if the rank is lost now, so is its update
            torch.add(self.own, self.one, out=self.shared)  # + i: the count
        elif gradient is not None:
            (rows,) = gradient.indices()
            words = self.own[rows] + self.one
            self.mine += words.numel()
            self.shared[rows] = words

    def lost(self) -> int:
        """How many updates of a weight other ranks have overwritten."""
        # A rank that wrote a weight from an older read wrote its older count with it.
        return int(self.made.sum() - self.shared.imag.sum(dtype=torch.float64))


def share(
    comm: Comm, model: nn.Module, parameters: list[nn.Parameter], rule: Rule, count: bool
) -> list[Words]:
    """Put the parameters of `model` into shared memory, with or without counts of their updates.
    Gradients stay sparse where the rule does not move rows without one."""
    tables = [m for m in model.modules() if isinstance(m, nn.Embedding | nn.EmbeddingBag)]
    by_row = {m.weight for m in tables if m.sparse and isinstance(rule, SGD)}
    whole: list[torch.Tensor] = [p for p in parameters if p not in by_row]
    memory = [Words(comm, alike, False, count) for alike, _ in flat_by_dtype(whole)]
    return memory + [Words(comm, [p], True, count) for p in parameters if p in by_row]


def read_modify_write(training: Training, memory: list[Words]) -> None:
    """Apply this rank's gradients to the current shared weights."""
    comm = training.comm
    gradients = [words.gradient() for words in memory]
    comm.hold()  # on a paced run, until the device reads
    for words in memory:
        words.read()
    training.update(gradients, [w.weights for w in memory], peer=comm.members[comm.rank])
    comm.hold()  # and until it has computed
    for words, gradient in zip(memory, gradients, strict=True):
        words.write(gradient)
        words.give()


def train(
    comm: Comm,
    model: nn.Module,
    batches: Batches,
    rule: AnyRule = "sgd",
    *,
    loss: Loss = nn.functional.cross_entropy,
    weight: Weight = rows,
    lr: float | None = None,
    lock: bool = False,
    count: bool = True,
    **options: Unpack[Options],
) -> Result:
    """Train one model in shared memory, with or without a lock around each update: as `data.train`,
    but rank i of n takes batches i, i + n, ..., `losses` are each batch's at the weights that its
    rank had, and `state` has the rank's own buffers. Also returns how many `updates` of a weight
    were made and, with `count`, how many of them are `lost`.

    Training goes on without a lost rank; the loss of a batch that it had not reached is nan. Raises
    ValueError where the ranks compute on another device than the CPU.
    Cost per batch: nothing is sent; |w| bytes are read and as many written, twice that with counts,
    of a sparse gradient those of its rows.
    """
    if comm.device.type != "cpu":
        raise ValueError(
            f"hogwild trains in memory of the host, and rank {comm.rank} computes on "
            f"{comm.device}: give launch device='cpu'."
        )
    training = Training(comm, model, rule, lr, options, loss, weight)
    if isinstance(training.moves.rule, TorchRule):
        raise ValueError(
            "hogwild moves numbers in memory that all ranks share, and a torch optimizer the "
            "parameters of a rank: name a rule, 'adam' say."
        )
    if any(p.is_complex() for p in model.parameters()):
        raise ValueError(
            "hogwild counts lost updates in the imaginary parts of its memory, and this model has "
            "complex parameters: train it by another strategy."
        )
    pairs = training.read_ahead(batches)
    begin(comm, model)
    memory = share(comm, model, trained(model), training.moves.rule, count)
    losses = comm.shared(torch.full((len(pairs),), math.nan, dtype=torch.float64))
    for number in comm.progress(range(comm.rank, len(pairs), comm.size), "training"):
        with comm.span("phase", f"step {number}", step=number):
            # Forward and backward are outside the lock: the ranks run them at the same time.
            losses.tensor[number] = learn_whole(comm, model, pairs[number], loss, weight)
            with losses.lock() if lock else nullcontext():
                read_modify_write(training, memory)
            training.end_step(number, 1, losses.tensor[number].item())
    comm.together(lambda left: left.barrier())  # all remaining ranks have written
    for words in memory:
        words.read()
        words.give()
    counts: dict[str, Any] = {"updates": sum(int(words.made.sum()) for words in memory)}
    if count:
        counts["lost"] = sum(words.lost() for words in memory)
    return training.result(losses.tensor.tolist(), **counts)


@contextmanager
def pinned(rank: int) -> Iterator[None]:
    """Pin this rank to one of the cores, in turn (Linux)."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {sorted(cores)[rank % len(cores)]})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def increments(comm: Comm, times: int, *, lock: bool = False, pins: bool = False) -> int:
    """Add 1 to a number that all ranks share, `times` times on each rank, by read, modify and
    write; returns how many increments are lost. A worker for `launch`.

    With `pins` each rank is pinned to one core.
    """
    check_counts(0, times=times)
    number = comm.shared(torch.zeros(1, dtype=torch.int64))
    own = torch.zeros_like(number.tensor)
    with pinned(comm.rank) if pins else nullcontext():
        comm.barrier()
        with comm.span("phase", f"{times} increments"):
            for _ in range(times):
                with number.lock() if lock else nullcontext():
                    own.copy_(number.tensor)  # read
                    own += 1  # modify: another rank may write in between
                    number.tensor.copy_(own)  # write, over another rank's value too
        comm.barrier()
    return comm.size * times - int(number.tensor)
