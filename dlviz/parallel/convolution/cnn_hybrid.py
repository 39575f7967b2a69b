"""One weird trick: convolutions are data parallel, dense layers are cut over the same ranks.

Convolutions have most of the multiplications and few of the parameters: each of K workers convolves
its b rows of the batch, and their gradients are averaged in buckets (data/ddp.py). Dense layers
have most of the parameters: each worker has 1/K of every one, and computes its part for all rows.
So D activations a row cross from their worker to the others, their gradients cross back and are
added:

    crossing    crossings    together they hold           who sends
    "all"       1            all workers' rows, K b       every worker
    "one"       K            one worker's rows, b         one worker to K-1 others, in turn
    "slices"    K            1/K of each worker's, b      every worker, 1/K as much each time

    compute    |convolutions|x 0|F 0|B 0|x 1 |F 1|    |B 1| ... |backward of the convolutions|
    crossing                            |  dx 0   |        |dx 1|         buckets |0|1|

The gradient dx of a crossing goes home, on lane "crossing", while the next one's x comes and its
dense forward runs. So a rank holds two tensors of one crossing: x and dx, or dx and the next x; of
"all" they are K times as large. As a single port sends in "one", its x takes K times as long.

Of two dense layers the first is cut by its outputs, the second by its inputs, and between them
nothing is sent. The partial sums of the last one's outputs go to the worker of each row, which
computes their loss.

Source: A. Krizhevsky, "One weird trick for parallelizing convolutional neural networks", 2014: its
schemes (a), (b) and (c). In PyTorch: DistributedDataParallel and parallelize_module, each on its
part of the model; the crossings are left to the user.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Unpack

import torch
from torch import nn
from torch.utils._pytree import tree_map

from dlviz.cluster import Comm
from dlviz.models.mean_of import MeanOverRows, of_batch
from dlviz.models.options import squares
from dlviz.parallel.convolution.crossings import CROSSINGS, gather, parts_of, scatter
from dlviz.parallel.convolution.dense_blocks import DenseBlock, first_dense
from dlviz.parallel.data.ddp import BUCKET_BYTES, DDP
from dlviz.parallel.step.batches import Batch, Batches, on
from dlviz.parallel.step.layers import LayerSpans
from dlviz.parallel.step.replicas import check_same, start_alike
from dlviz.parallel.step.sharded_step import Loss, Weight, counting, no_mean, rows, trained, weigh
from dlviz.parallel.step.training import Options, Result, Training, joint_norm
from dlviz.parallel.step.whole_model import Assembled, gathered_state
from dlviz.parallel.update_rules import AnyRule


def train(
    comm: Comm,
    model: nn.Module,
    batches: Batches,
    rule: AnyRule = "sgd",
    *,
    loss: Loss = nn.functional.cross_entropy,
    weight: Weight = rows,
    lr: float | None = None,
    crossing: str = "slices",
    all_reduce: str = "ring",
    bucket_bytes: int = BUCKET_BYTES,
    **options: Unpack[Options],
) -> Result:
    """Train `model`, an `nn.Sequential` whose layers from the first `nn.Linear` on are dense, and
    are cut and left empty. The ranks share the rows of a batch as evenly as possible, and the
    outputs of a dense layer; `crossing` is one of CROSSINGS, alike on all ranks. Returns `losses`
    on every rank, and as `state` that of the plain model: on rank 0, empty on the others.

    Raises ValueError, before training, for a model that cannot be cut, and where two ranks'
    `crossing`, models or batches differ.

    Cost, of K ranks with b rows each and D inputs of the first dense layer: the crossings send
    2(K-1) b D elements a rank, whichever they are, those of n outputs 2(K-1) b n, and the
    parameters θ before the first dense layer an all-reduce, 2(K-1)/K |θ|.
    """
    if crossing not in CROSSINGS:
        known = ", ".join(map(repr, CROSSINGS))
        raise ValueError(f"crossing={crossing!r} is not known: use {known}.")
    check_same(comm, [f"crossing={crossing!r}"], "crossings", "give all ranks the same")
    whole = Assembled(comm, model, options)
    hybrid = Hybrid(comm, model, crossing, all_reduce, bucket_bytes)
    state = partial(whole.model, hybrid.whole_state)
    training = Training(comm, hybrid.net, rule, lr, options, loss, weight, whole=state)
    training.moves.norm = lambda _: hybrid.gradient_norm()
    training.record_weights()
    comm.start_line()  # the ranks took unequal times to cut the model
    return training.run(
        batches,
        lambda _: training.update(),
        learn=hybrid.learn,
        state=hybrid.whole_state,
        whose="a model with dense layers that are cut",
    )


class Hybrid:
    """`model` on this rank: its `convolutions`, and its blocks of the dense layers; `net` has both,
    by the names of `model`."""

    def __init__(
        self, comm: Comm, model: nn.Module, crossing: str, all_reduce: str, bucket_bytes: int
    ):
        layers = dict(model.named_children()) if isinstance(model, nn.Sequential) else {}
        first = first_dense(layers, model)
        start_alike(comm, model)  # dense layers too: each rank has another block of the same ones
        self.comm, self.crossing = comm, crossing
        self.net, self.dense, convolutions = (nn.Sequential() for _ in range(3))
        linear = [name for name, layer in layers.items() if type(layer) is nn.Linear]
        for number, (name, layer) in enumerate(layers.items()):
            if type(layer) is nn.Linear:
                after = len(linear) - 1 - linear.index(name)  # the last one is cut by its inputs
                layer = DenseBlock(comm, layer, 1 - after % 2, name == linear[0], not after)
            self.net.add_module(name, layer)
            (convolutions if number < first else self.dense).add_module(name, layer)
        # All ranks need the same graph, and a bias that alone is trained may be on rank 0 only.
        dense = [p for layer in [*layers.values()][first:] for p in layer.parameters()]
        self._all_trained = all(p.requires_grad for p in dense)
        self._share = 0.0  # the weight of this rank's rows
        self.net.to(comm.device)
        self.convolutions: nn.Module = convolutions
        if trained(convolutions):
            how: Any = {"bucket_bytes": bucket_bytes, "weight": lambda *_: self._share}
            self.convolutions = DDP(convolutions, comm, all_reduce, **how)
        LayerSpans(comm, self.dense)
        self._lane = comm.lane("crossing")

    def learn(
        self, comm: Comm, net: nn.Module, batch: Batch, loss: Loss, weight: Weight
    ) -> tuple[float, float]:
        """Forward and backward on this rank's (inputs, labels), which leaves the gradients of the
        whole batch in `net`; returns the weight of the shard and its loss. Raises ValueError where
        all shards weigh nothing, and for a loss that is weighed by its rows, but is not their
        mean."""
        inputs, labels = on(comm.device, batch)  # (b, ...) each
        weight = counting(loss, weight)
        weighs = partial(weigh, comm, of_batch(weight))
        self._share = weighs(inputs, labels)
        every = torch.empty(comm.size, 2, dtype=torch.float64)
        comm.all_gather(every, torch.tensor([len(labels), self._share], dtype=torch.float64))
        counts, total = [int(count) for count in every[:, 0]], every[:, 1].sum().item()
        if not total:
            no_mean()
        tried = MeanOverRows(loss) if weight is rows and comm.size > 1 else None
        net.zero_grad()
        x = self.convolutions(inputs)  # (b, D)
        home, returning = torch.zeros_like(x), None  # this rank's dx
        seen = 0.0
        for number, part in enumerate(parts_of(self.crossing, counts, comm.rank)):
            target = tree_map(lambda each, own=part.own: each[own], labels)
            share = weighs(inputs[part.own], target)
            every_x = gather(comm, f"x {number}", x.detach()[part.own], part.counts)  # (Σ b, D)
            every_x.requires_grad_(x.requires_grad or not self._all_trained)
            sums = self.dense(every_x)  # (Σ b, n), of which each rank has a part of every sum
            y = sums.new_empty(len(x[part.own]), *sums.shape[1:])  # (b, n)
            scatter(comm, f"outputs {number}", sums.detach(), part.counts, y)
            if returning is not None:
                returning.wait()  # before this backward makes another dx
                returning = None
            slope = torch.zeros_like(y)
            if share:  # the mean of no row is NaN
                value = (tried or loss)(y.requires_grad_(), target)
                slope = torch.autograd.grad(value, y)[0] * (share / total)  # of Σ w L / Σ w
                seen += share * value.item()
            sums.backward(gather(comm, f"gradients {number}", slope, part.counts))
            if x.requires_grad:
                back = f"dx {number}", every_x.grad, part.counts, home[part.own]
                returning = self._lane.submit(scatter, *back)
                del back
            del every_x, sums  # x is freed now, dx when it is home
        if returning is not None:
            returning.wait()
        if x.requires_grad:  # DDP weighs the gradients of this rank's mean by its share
            x.backward(home * (total / self._share) if self._share else home)
        if tried is not None:
            tried.check()
        return self._share, seen / self._share if self._share else torch.nan

    def gradient_norm(self) -> float:
        """The joint norm of all gradients; each value of the dense layers is on one rank."""
        dense = joint_norm(self.comm, [p.grad for p in trained(self.dense)])
        return (squares([p.grad for p in trained(self.convolutions)]) + dense**2) ** 0.5

    def whole_state(self) -> dict[str, torch.Tensor]:
        """The state of the plain model, on the CPU, on rank 0; empty on the others. Every rank must
        call it."""
        own = {
            f"{self.comm.rank} {name}": value.detach().cpu()
            for name, value in self.dense.state_dict().items()
        }
        every = gathered_state(self.comm, own)
        if self.comm.rank:
            return {}
        parts: dict[str, list[torch.Tensor]] = {}
        for name, value in every.items():  # in rank order
            parts.setdefault(name.partition(" ")[2], []).append(value)
        state = {name: value.cpu() for name, value in self.net.state_dict().items()}
        for name, values in parts.items():
            layer, _, kind = name.rpartition(".")
            block: Any = self.dense.get_submodule(layer)
            state[name] = torch.cat(values, block.dim if kind == "weight" else 0)
        return state
