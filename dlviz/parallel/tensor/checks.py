"""What must be equal on the ranks of a tensor-parallel axis, checked before it is used."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence

import torch

from dlviz.cluster import Comm, dtype_name
from dlviz.parallel.step.batches import Batch, Batches, batches_of
from dlviz.parallel.step.replicas import check_same


def check_divides(name: str, value: int, ranks: int, whole: str) -> None:
    """Raise ValueError unless `ranks` divides `value`."""
    if value % ranks:
        *others, last = (str(n) for n in range(1, 17) if value % n == 0)
        fits = f"{', '.join(others)} or {last}" if others else last
        raise ValueError(
            f"{name}={value} cannot be split over {ranks} ranks: each rank needs a whole number of "
            f"{whole}. Use {fits} ranks."
        )


def check_names(layer: str, state: Collection[str], names: Collection[str]) -> None:
    """Raise ValueError unless `state` has exactly the `names` of the layer's parameters."""
    if set(state) != set(names):
        raise ValueError(
            f"the state of {layer} holds {', '.join(state) or 'nothing'}: give "
            f"{' and '.join(names)}."
        )


def check_shape(name: str, value: torch.Tensor, shape: Sequence[int]) -> None:
    """Raise ValueError unless `value` has the `shape` of the whole parameter."""
    if value.shape != tuple(shape):
        raise ValueError(f"{name} is {tuple(value.shape)}: give the whole one, {tuple(shape)}.")


def check_replicas(
    comm: Comm, what: str, tensors: Mapping[str, torch.Tensor], advice: str, about: str = ""
) -> None:
    """Raise ValueError on every rank, naming two ranks, unless all hold the same values in each of
    `tensors`, and describe their holder by the same `about`.

    Cost: one all-gather of 32 bytes, by the backend."""
    if comm.size == 1:
        return
    lines = [f"{name} = {_stated(tensor)}" for name, tensor in tensors.items()]
    check_same(comm, [about, *lines] if about else lines, what, advice)


def _stated(tensor: torch.Tensor) -> str:
    values = tensor.detach().cpu().contiguous().view(-1)
    digest = hashlib.sha256(values.view(torch.uint8).numpy().tobytes()).hexdigest()
    shown = ", ".join(f"{value:.4g}" for value in values[:3].tolist())
    return f"{dtype_name(tensor.dtype)}{tuple(tensor.shape)} [{shown}, ...] (sha256 {digest[:12]})"


def same_batches(comm: Comm, batches: Batches, whose: str) -> list[Batch]:
    """The batches, as `batches_of` has them. Raises ValueError unless all ranks have the same."""
    pairs = batches_of(batches, whose)
    given = {
        f"{what} of batch {number}": part
        for number, batch in enumerate(pairs)
        for what, part in zip(("inputs", "labels"), batch, strict=True)
    }
    check_replicas(comm, "batches", given, "give all ranks the same batches")
    return pairs
