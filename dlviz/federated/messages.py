"""What server and clients send each other, and who lives where.

tag 0   a rank's clients   to the server   how many examples each has, once, before round 0
tag 1   invitation         to a rank       the round, and for each of its clients: is it selected
tag 2   weights            to a client     the server's, a row
tag 3   update             to the server   what its training has changed, a row
tag 4   answer             to the server   which update that was: round, client, examples, ...
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
    of; `computed`: the examples that its training took, each time that it took one; `loss` is the
    mean over these."""

    number: int  # of the round for which the client was asked
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
    """Why a row that came is no update in the form of `form`; "" where it is one."""
    if (row.shape, row.dtype) != (form.shape, form.dtype):
        return (
            f"sent {tuple(row.shape)} of {row.dtype}, an update has {tuple(form.shape)} of "
            f"{form.dtype}"
        )
    if not row.isfinite().all():
        return "sent NaN or Inf"
    return "" if answer.weight > 0 else f"says that it weighs {answer.weight:g}"


def home(client: int, ranks: int) -> int:
    """The rank that a client lives on: client i on rank 1 + i % (ranks - 1)."""
    return 1 + client % (ranks - 1)


def residents(rank: int, ranks: int, clients: int) -> list[int]:
    """The clients that live on `rank`."""
    return [k for k in range(clients) if home(k, ranks) == rank]


def phase(comm: Comm, place: int, number: int, more: str = "") -> Any:
    """The span of phase `place` (from 0) of round `number`; `more` is added to its name."""
    return comm.span("phase", PHASES[place] + more, step=number)
