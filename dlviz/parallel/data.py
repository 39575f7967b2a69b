"""Data parallelism: every rank holds the whole model and a shard of the batch; gradients are
averaged.

The naive way waits for the whole backward pass and then all-reduces one gradient after the other.
DistributedDataParallel (DDP) puts gradients into buckets, in the reverse order of the parameters,
and all-reduces a bucket on a lane of its own as soon as backward has filled it:

    naive  compute |forward|--------backward--------|ar|ar|ar|ar|ar|ar|update|
    DDP    compute |forward|--------backward--------|wait|update|
           comm               |bucket 0|bucket 1|bucket 2|

The gradient of the mean over the whole batch is the mean of the shards' gradients, weighted by
how many examples n_r each has: g = sum_r n_r g_r / sum_r n_r. It equals that of one process on
the whole batch.

Source: Li et al., "PyTorch Distributed: Experiences on Accelerating Data Parallel Training", VLDB
2020. PyTorch's name for the real thing: torch.nn.parallel.DistributedDataParallel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from dlviz import collectives
from dlviz.cluster import Comm
from dlviz.parallel.buckets import Bucket, fill_buckets
from dlviz.parallel.layers import LayerSpans, at_end_of_backward, tensors_in

BUCKET_BYTES = 25 * 2**20  # as torch's


def average_gradients(
    comm: Comm, model: nn.Module, examples: int | None = None, all_reduce: str = "ring"
) -> None:
    """Replace each gradient of `model` by its mean over all ranks, one all-reduce per parameter.

    `examples` is how many examples this rank's loss is the mean of (None: all ranks weigh the
    same). A parameter that got no gradient on any rank keeps None. Call it after `backward()`.
    Cost: for each parameter of n bytes what the all-reduce of n bytes costs, one after the other.
    """
    reduce = _all_reduce(all_reduce)
    parameters = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    weight = 1 if examples is None else examples
    counts = torch.tensor([weight, *(p.grad is not None for _, p in parameters)]).double()
    with comm.span("collective", "counts", nbytes=counts.nbytes):  # of examples and gradients
        reduce(comm, counts)
    total, *used = counts.tolist()
    for (name, p), users in zip(parameters, used, strict=True):
        if not users:
            continue
        if p.grad is None or not weight:
            p.grad = torch.zeros_like(p)
        p.grad.mul_(weight / total)
        with comm.span("collective", name, nbytes=p.grad.nbytes):
            reduce(comm, p.grad)


class DDP(nn.Module):
    """`model`, called as before; its gradients are averaged over all ranks when `backward()`
    returns.

    All ranks start from rank 0's parameters and buffers, and each training forward from rank 0's
    buffers. A rank's weight is the number of its examples: dim 0 of the first tensor that it is
    called with. `all_reduce` is one of `collectives.ALGORITHMS` (ours) or "backend" (gloo's or
    NCCL's own). Every rank must call backward once for each training forward; a parameter may
    get no gradient on some ranks or on all.

    Cost: the bytes of one all-reduce of all gradients, in ceil(bytes / bucket_bytes) pieces or
    more, hidden behind the backward pass but for the last bucket.
    """

    def __init__(
        self,
        model: nn.Module,
        comm: Comm,
        all_reduce: str = "ring",
        bucket_bytes: int = BUCKET_BYTES,
    ):
        super().__init__()
        if not bucket_bytes > 0:
            raise ValueError(
                f"bucket_bytes={bucket_bytes!r} holds no gradient: use 1 or more bytes."
            )
        self.module = model
        self.comm = comm
        self._reduce = _all_reduce(all_reduce)
        self._lane = comm.lane("comm")
        self._spans = LayerSpans(comm, model)
        self.buckets = fill_buckets(model, bucket_bytes)
        self._bucket_of = {p: bucket for bucket in self.buckets for p in bucket.parameters}
        for parameter in self._bucket_of:
            parameter.register_post_accumulate_grad_hook(self._gradient_ready)
        self._examples = 1
        self._launched = 0
        self._in_backward = False
        _broadcast(comm, [*model.parameters(), *model.buffers()])

    def forward(self, *inputs: Any, **keywords: Any) -> Any:
        if not (self.training and torch.is_grad_enabled()):
            return self.module(*inputs, **keywords)
        _broadcast(self.comm, list(self.module.buffers()))
        self._examples = next(tensors_in([*inputs, keywords])).shape[0]
        output = self.module(*inputs, **keywords)
        for tensor in tensors_in(output):
            if tensor.requires_grad:
                tensor.register_hook(lambda gradient: self._begin_backward())
        return output

    def _begin_backward(self) -> None:
        if not self._in_backward:
            self._in_backward = True
            self._launched = 0
            for bucket in self.buckets:
                bucket.open(self._examples)
            at_end_of_backward(self._finish_backward)

    def _gradient_ready(self, parameter: nn.Parameter) -> None:
        """Hook: `parameter` has its gradient. Launch the buckets that are full, always in order:
        all ranks must all-reduce the same bucket at the same time."""
        self._begin_backward()
        self._bucket_of[parameter].put(parameter)
        while self._launched < len(self.buckets) and not self.buckets[self._launched].missing:
            self._spans.end_backward()  # what the bucket holds was computed before it leaves
            self._launch()

    def _launch(self) -> None:
        bucket = self.buckets[self._launched]
        bucket.handle = self._lane.submit(_reduce_bucket, self._reduce, bucket, self._launched)
        self._launched += 1

    def _finish_backward(self) -> None:
        """Launch the buckets that backward did not fill, wait for all of them and unpack them."""
        while self._launched < len(self.buckets):
            self.buckets[self._launched].close()
            self._launch()
        for number, bucket in enumerate(self.buckets):
            bucket.handle.wait(bucket=number)
            bucket.unpack()
        self._in_backward = False


def _reduce_bucket(comm: Comm, reduce: Callable[..., None], bucket: Bucket, number: int) -> None:
    with comm.span("collective", f"bucket {number}", bucket=number, nbytes=bucket.flat.nbytes):
        reduce(comm, bucket.flat)


def _broadcast(comm: Comm, tensors: list[torch.Tensor]) -> None:
    """Give every rank rank 0's values, one message per dtype."""
    for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
        alike = [tensor for tensor in tensors if tensor.dtype == dtype]
        flat = torch.cat([tensor.detach().flatten() for tensor in alike])
        comm.broadcast(flat, 0)
        for tensor, values in zip(alike, flat.split([t.numel() for t in alike]), strict=True):
            tensor.detach().copy_(values.view_as(tensor))


def _all_reduce(name: str) -> Callable[..., None]:
    if name == "backend":
        return lambda comm, tensor: comm.all_reduce(tensor)
    if name not in collectives.ALGORITHMS:
        raise ValueError(
            f"all_reduce={name!r} is not known: use 'backend', "
            f"{' or '.join(map(repr, collectives.ALGORITHMS))}."
        )
    return collectives.ALGORITHMS[name]


def train(
    comm: Comm,
    model: nn.Module,
    batches: Sequence[tuple[torch.Tensor, torch.Tensor]],
    *,
    lr: float = 0.5,
    way: str = "ddp",
    all_reduce: str = "ring",
    bucket_bytes: int = BUCKET_BYTES,
) -> dict[str, Any]:
    """Train `model` by SGD, one step for each (inputs, labels) of `batches`, whose rows the ranks
    share as evenly as they go. A worker for `launch`.

    `way` is "ddp" or "naive". Returns, on every rank, `losses` (the mean over the whole batch
    before each step's update) and `state` (the trained parameters and buffers, on the CPU).
    """
    if way not in ("ddp", "naive"):
        raise ValueError(f"way={way!r} is no way to train: use 'ddp' or 'naive'.")
    model = model.to(comm.device)
    if way == "ddp":
        net: nn.Module = DDP(model, comm, all_reduce, bucket_bytes)
    else:
        net = model
        LayerSpans(comm, model)
        _broadcast(comm, [*model.parameters(), *model.buffers()])
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    losses = torch.zeros(len(batches), dtype=torch.float64)
    for step, (inputs, labels) in enumerate(comm.progress(batches, "training")):
        with comm.span("phase", f"step {step}", step=step):
            mine, truth = (
                whole.tensor_split(comm.size)[comm.rank].to(comm.device)
                for whole in (inputs, labels)
            )
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(net(mine), truth)
            loss.backward()
            if way == "naive":
                average_gradients(comm, model, len(mine), all_reduce)
            with comm.compute("update"):
                optimizer.step()
            if len(mine):
                losses[step] = loss.item() * len(mine) / len(inputs)
    comm.all_reduce(losses)
    state = {name: value.cpu() for name, value in model.state_dict().items()}
    return {"losses": losses.tolist(), "state": state}
