"""Whether a prediction has the order of the measurements, pair by pair.

Two things whose predictions, or whose measurements, lie within `ties` of each other are tied; other
pairs either agree or are swapped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations


@dataclass(frozen=True)
class Order:
    """The pairs of names in the predicted order, those that are tied, and those that are swapped;
    in each pair the name with the smaller prediction comes first."""

    agree: tuple[tuple[str, str], ...]
    tied: tuple[tuple[str, str], ...]
    swapped: tuple[tuple[str, str], ...]


def order(
    predicted: Mapping[str, float], measured: Mapping[str, float], ties: float = 0.05
) -> Order:
    """Compare two orders of the same names, from the smallest to the largest number.

    Numbers are positive; they are tied where the larger is at most 1 + `ties` times the smaller.
    Raises ValueError where the names differ.
    """
    if set(predicted) != set(measured):
        odd = sorted(set(predicted) ^ set(measured))
        raise ValueError(f"{odd[0]!r} is only predicted or only measured: give both numbers.")
    agree, tied, swapped = [], [], []
    for pair in combinations(sorted(predicted, key=lambda name: predicted[name]), 2):
        less, more = pair
        if any(
            max(of[less], of[more]) <= (1 + ties) * min(of[less], of[more])
            for of in (predicted, measured)
        ):
            tied.append(pair)
        elif measured[less] < measured[more]:
            agree.append(pair)
        else:
            swapped.append(pair)
    return Order(tuple(agree), tuple(tied), tuple(swapped))
