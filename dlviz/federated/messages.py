"""The messages between server and clients, and which rank holds which client.

tag 0   a rank's clients   to the server   how many examples each has, once, before round 0
tag 1   invitation         to a rank       the round, and for each of its clients: is it selected
tag 2   weights            to a client     the server's, a row
tag 3   update             to the server   its new weights - those sent, a row
tag 4   answer             to the server   what the update is: round, client, examples, ...
tag 5   ledger             to the server   the examples that a rank's clients computed, at the end

The rows are what a round costs, 2 |θ| bytes for each client; the rest is some bytes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from dlviz.cluster import Comm

SIZES, INVITATION, WEIGHTS, UPDATE, ANSWER, LEDGER = range(6)  # tags
PHASES = ("1 selection", "2 weights out", "3 local training", "4 updates back", "5 aggregation")


class Answer(NamedTuple):
    """What goes with an update. `weight`: how many examples, or target tokens, its loss is the mean
    of; `computed`: the examples that its training computed, counted once per epoch; `loss`: the
    mean over these."""

    number: int  # the round that the client was asked for
    client: int
    weight: float
    computed: int
    loss: float

    def packed(self) -> torch.Tensor:
        return torch.tensor(self, dtype=torch.float64)

    @classmethod
    def unpacked(cls, word: torch.Tensor) -> Answer:
        number, client, weight, computed, loss = word.tolist()
        return cls(int(number), int(client), weight, int(computed), loss)


def fault_of(answer: Answer, row: torch.Tensor, form: torch.Tensor) -> str:
    """Why a row is not an update like `form`, "" where it is."""
    if (row.shape, row.dtype) != (form.shape, form.dtype):
        return (
            f"sent {tuple(row.shape)} of {row.dtype}, an update has {tuple(form.shape)} of "
            f"{form.dtype}"
        )
    if not row.isfinite().all():
        return "sent NaN or Inf"
    return "" if answer.weight > 0 else f"says that it weighs {answer.weight:g}"


def home(client: int, ranks: int) -> int:
    """The rank of a client: client i is on rank 1 + i % (ranks - 1)."""
    return 1 + client % (ranks - 1)


def residents(rank: int, ranks: int, clients: int) -> list[int]:
    """The clients of `rank`."""
    return [k for k in range(clients) if home(k, ranks) == rank]


def phase(comm: Comm, place: int, number: int) -> Any:
    """The span of phase `place` (from 0) of round `number`."""
    return comm.span("phase", PHASES[place], step=number)
