"""Copies of one model: before training every rank holds the same network, with rank 0's values.

The graph of an earlier forward may hold a model's tensors, and autograd counts every write into
them as a change, even of equal values. So only tensors that differ are written: a parameter in
place, as by an optimizer, while a buffer is replaced in its module by a new tensor. Rank 0, and a
single rank, change nothing. A reference to a buffer, rather than to its module, becomes stale.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from dlviz.cluster import Comm, dtype_name
from dlviz.parallel.step.hooks import Hook


def start_alike(comm: Comm, model: nn.Module) -> None:
    """Give `model` of every rank rank 0's parameters and buffers.

    Raises ValueError if the ranks hold different models, naming two ranks and where they differ;
    and for a parameter or buffer that cannot be written or sent.
    """
    check_memory(model)
    check_same_model(comm, model)
    take(model, differing(comm, [*model.parameters(), *model.buffers()]))


def check_memory(model: nn.Module) -> None:
    """Raise ValueError for a parameter made by `expand`, whose values share memory, and for a
    sparse parameter or buffer."""
    named = [("parameter", *each) for each in model.named_parameters()]
    for what, name, tensor in named + [("buffer", *each) for each in model.named_buffers()]:
        if tensor.layout is not torch.strided:
            raise ValueError(
                f"{what} {name} is {tensor.layout}, which ranks cannot send each other: make it "
                "dense (.to_dense()), or hold it outside the parameters and buffers."
            )
        if what == "parameter" and any(
            size > 1 and not step for size, step in zip(tensor.shape, tensor.stride(), strict=True)
        ):
            raise ValueError(
                f"parameter {name} of {tuple(tensor.shape)} is expanded from fewer values, which "
                "no update can move one by one: make it nn.Parameter(tensor.clone()), or expand it "
                "in forward."
            )


def watch_replica(comm: Comm, model: nn.Module, weights: int = 500) -> None:
    """Record the weights of `model` whenever its forward begins, for `metrics.disagreement`: call
    it on every rank before a strategy trains. Of a larger model only `weights` of them, drawn at
    random, the same on all ranks."""
    many = sum(p.numel() for p in model.parameters())
    chosen = torch.randperm(many, generator=torch.Generator().manual_seed(0))[:weights]

    def held() -> torch.Tensor:
        return torch.cat([p.detach().flatten() for p in model.parameters()])[chosen]

    start = held()
    record = torch.cat([start.new_full((1,), -1), start])  # the step of the forward, then weights
    comm.watch(record, "replica")

    def update_record(*_: Any) -> None:
        record[1:] = held()
        record[0] = comm.step
        comm.snapshot()

    model.register_forward_pre_hook(Hook(update_record))


def check_same_model(comm: Comm, model: nn.Module) -> None:
    """Raise ValueError on every rank unless all hold the same modules, parameters and buffers, by
    name, kind, shape and dtype; their values may differ."""
    check_same(comm, outline(model), "models", "build the same model on every rank")


def check_same(comm: Comm, mine: list[str], what: str, advice: str) -> None:
    """Raise ValueError on every rank unless all have the same lines, naming two ranks and the first
    line in which they differ."""
    digest = hashlib.sha256("\n".join(mine).encode()).digest()
    own = torch.frombuffer(bytearray(digest), dtype=torch.int64)  # (4,)
    digests = own.new_empty(comm.size, len(own))
    comm.all_gather(digests, own)
    others = [rank for rank, each in enumerate(digests) if not torch.equal(each, digests[0])]
    if not others:
        return
    zero, other = (comm.broadcast_object(mine, rank) for rank in (0, others[0]))
    place = next(
        (i for i, pair in enumerate(zip(zero, other, strict=False)) if pair[0] != pair[1]),
        min(len(zero), len(other)),
    )
    has = [lines[place] if place < len(lines) else "nothing more" for lines in (zero, other)]
    first, second = comm.members[0], comm.members[others[0]]
    raise ValueError(
        f"rank {first} and rank {second} hold different {what}: rank {first} has {has[0]} where "
        f"rank {second} has {has[1]}; {advice}."
    )


def check_replicas(
    comm: Comm, what: str, tensors: Mapping[str, torch.Tensor], advice: str, about: str = ""
) -> None:
    """Raise ValueError on every rank, naming two ranks, unless all hold the same values in each of
    `tensors`, and describe their holder by the same `about`.

    Cost: one all-gather of 32 bytes, by the backend."""
    if comm.size == 1:
        return
    lines = [f"{name} = {stated(tensor)}" for name, tensor in tensors.items()]
    check_same(comm, [about, *lines] if about else lines, what, advice)


def stated(tensor: torch.Tensor) -> str:
    """Its dtype, shape and first values, and a digest of all."""
    values = tensor.detach().cpu().contiguous().flatten()
    shown = ", ".join(f"{value:.4g}" for value in values[:3].tolist())
    return (
        f"{dtype_name(tensor.dtype)}{tuple(tensor.shape)} [{shown}, ...] (sha256 {digest(tensor)})"
    )


def outline(model: nn.Module) -> list[str]:
    """A model's modules, then its parameters and buffers, a line each."""
    modules = [f"{type(module).__name__} {name}".strip() for name, module in model.named_modules()]
    tensors = [
        f"{what} {name} of {dtype_name(each.dtype)}{tuple(each.shape)}"
        for name, each, what in [
            *((n, p, "parameter" if p.requires_grad else "frozen parameter")
              for n, p in model.named_parameters()),
            *((n, b, "buffer") for n, b in model.named_buffers()),
        ]
    ]  # fmt: skip
    return modules + tensors


def check_same_trained(comm: Comm, model: nn.Module, known: Iterable[nn.Parameter]) -> None:
    """Raise ValueError on every rank unless all train the same parameters of `model`, and have the
    same values of those that are not `known`."""
    known = {*known}
    lines = [
        f"{name} of {dtype_name(p.dtype)}{tuple(p.shape)}"
        + ("" if p in known else f" with values of digest {digest(p)}")
        for name, p in model.named_parameters()
        if p.requires_grad
    ]
    advice = "freeze, unfreeze, add or replace them alike on every rank, with the same values"
    check_same(comm, lines, "parameters to train", advice)


def digest(tensor: torch.Tensor) -> str:
    """A short hash of the values."""
    values = tensor.detach().cpu().contiguous().flatten().view(torch.uint8)
    return hashlib.sha256(values.numpy().tobytes()).hexdigest()[:12]


def copy_from(comm: Comm, tensors: Sequence[torch.Tensor], root: int = 0) -> None:
    """Write the values of `root` into `tensors` of every rank, one message per dtype."""
    for tensor, values in differing(comm, tensors, root):
        tensor.detach().copy_(values)


def differing(
    comm: Comm, tensors: Sequence[torch.Tensor], root: int = 0
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """The tensors whose values differ from `root`'s, each with `root`'s values: one message per
    dtype."""
    for alike, flat in flat_by_dtype(tensors) if comm.size > 1 else ():
        comm.broadcast(flat, root)
        if comm.rank != root:
            yield from changed(flat, alike)


def changed(
    flat: torch.Tensor, tensors: Sequence[torch.Tensor]
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """The tensors whose values differ from `flat`, each with the values in `flat`."""
    parts = flat.split([tensor.numel() for tensor in tensors])
    for tensor, part in zip(tensors, parts, strict=True):
        values = part.view(tensor.shape)
        if not torch.equal(tensor, values):
            yield tensor, values


def take(model: nn.Module, pairs: Iterable[tuple[torch.Tensor, torch.Tensor]]) -> None:
    """Give parameters and buffers of `model` new values, as described above."""
    new = {}
    for tensor, values in pairs:
        if isinstance(tensor, nn.Parameter):
            tensor.detach().copy_(values)
        else:
            new[tensor] = values.clone()
    for module in model.modules() if new else ():
        for name, buffer in module.named_buffers(recurse=False):
            if buffer in new:
                setattr(module, name, new[buffer])


def flat_by_dtype(
    tensors: Sequence[torch.Tensor],
) -> list[tuple[list[torch.Tensor], torch.Tensor]]:
    """The tensors of each dtype, and a flat copy of all their values."""
    groups = []
    for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
        alike = [tensor for tensor in tensors if tensor.dtype == dtype]
        groups.append((alike, torch.cat([tensor.detach().flatten() for tensor in alike])))
    return groups


def spread(flat: torch.Tensor, tensors: list[torch.Tensor]) -> None:
    """Copy the values of `flat` back into the tensors that they came from."""
    parts = flat.split([tensor.numel() for tensor in tensors])
    for tensor, values in zip(tensors, parts, strict=True):
        tensor.detach().copy_(values.view_as(tensor))
