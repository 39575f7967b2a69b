"""What a server records of a round: while it is open, and when it is closed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import torch

from dlviz.federated.aggregation import weighted_mean
from dlviz.federated.messages import Answer

Tensor = torch.Tensor


class Round(NamedTuple):
    """What became of a round. Clients are numbers, in increasing order."""

    number: int
    selected: list[int]
    answered: list[int]  # in time, with an update
    late: list[int]  # selected, and not back when the round closed
    lost: list[int]  # their rank was lost since the previous round
    rejected: dict[int, str]  # client: why its update is not in the new weights
    taken: list[int]  # late in an earlier round; their updates came now, and count
    dropped: list[int]  # late in an earlier round; their updates came now and were discarded
    nbytes: int  # of weights and updates
    loss: float  # of the answers, mean over their examples, or by `weight`; nan without one
    unchanged: str  # why the weights stayed unchanged; "" where they moved
    seconds: float  # from its start to the new weights, by the run's clock
    modelled: bool  # whether `seconds`, and who was late, are a model's (arrivals.py)
    computed: int = 0  # examples that clients trained on in this round, once for each epoch
    unused: int = 0  # of these, those of updates that are in no weights
    score: float = float("nan")  # what `evaluate` says of the new weights
    epsilon: float = float("nan")  # spent by rounds 0 to this one; nan: none is claimed


@dataclass
class Open:
    """An open round. `waiting`: selected clients whose answers have not arrived."""

    number: int
    weights: Tensor  # (parameters,), as sent out
    closes: float | None  # s of the run's clock; None: when all have answered
    selected: list[int] = field(default_factory=list)
    waiting: set[int] = field(default_factory=set)
    busy: set[int] = field(default_factory=set)  # by a model of times: selected, and not back yet
    answers: dict[int, tuple[Answer, Tensor]] = field(default_factory=dict)
    taken: dict[int, tuple[Answer, Tensor]] = field(default_factory=dict)
    dropped: list[int] = field(default_factory=list)
    lost: list[int] = field(default_factory=list)
    rejected: dict[int, str] = field(default_factory=dict)
    nbytes: int = 0

    def file(self, answer: Answer, row: Tensor, fault: str, keep: bool) -> None:
        """Record an answer that has arrived; `keep`: a late one counts."""
        if fault:
            self.rejected[answer.client] = fault
        elif answer.number == self.number:
            self.answers[answer.client] = answer, row
        elif keep:
            self.taken[answer.client] = answer, row
        else:
            self.dropped.append(answer.client)
        if answer.number == self.number:
            self.waiting.discard(answer.client)

    def closed(self, unchanged: str, seconds: float, modelled: bool) -> Round:
        """The round's record."""
        summary = [(answer.loss, answer.weight) for _, (answer, _) in sorted(self.answers.items())]
        losses, weights = torch.tensor(summary, dtype=torch.float64).view(-1, 2).unbind(1)
        return Round(
            number=self.number,
            selected=self.selected,
            answered=sorted(self.answers),
            late=sorted(self.waiting | self.busy),
            lost=sorted(self.lost),
            rejected=dict(sorted(self.rejected.items())),
            taken=sorted(self.taken),
            dropped=sorted(self.dropped),
            nbytes=self.nbytes,
            loss=weighted_mean(losses, weights).item() if summary else float("nan"),
            unchanged=unchanged,
            seconds=seconds,
            modelled=modelled,
        )


@dataclass
class Examples:
    """The examples that clients trained on, as reported, by round and client; and whose updates are
    in the weights."""

    computed: dict[tuple[int, int], int] = field(default_factory=dict)
    used: set[tuple[int, int]] = field(default_factory=set)

    def of(self, number: int, unused: bool = False) -> int:
        """The examples of a round; with `unused` only those that are in no weights."""
        return sum(
            examples
            for key, examples in self.computed.items()
            if key[0] == number and not (unused and key in self.used)
        )
