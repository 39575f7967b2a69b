"""What must be equal on the ranks of a tensor-parallel axis, checked before it is used."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import torch


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
    if not isinstance(state, Mapping):
        raise ValueError(
            f"{layer} loads a state, and was given a {type(state).__name__}: give its state_dict()."
        )
    if set(state) != set(names):
        raise ValueError(
            f"the state of {layer} holds {', '.join(state) or 'nothing'}: give "
            f"{' and '.join(names)}."
        )


def check_shape(name: str, value: torch.Tensor, shape: Sequence[int]) -> None:
    """Raise ValueError unless `value` has the `shape` of the whole parameter."""
    if value.shape != tuple(shape):
        raise ValueError(f"{name} is {tuple(value.shape)}: give the whole one, {tuple(shape)}.")
