"""Phase 1: which clients take part in a round.

    uniform       C K of them, any as likely as any other
    size          C K of them; twice the data is twice as likely (to be drawn first)
    availability  C K of them; twice as often available is twice as likely (to be drawn first)
    round_robin   C K of them, the next ones in turn
    poisson       each on its own with probability C: sometimes nobody; required by `epsilon`

K clients, C `fraction`. Every rule draws among the clients present: not lost and, where `available`
gives the probability that client k is there in a round, drawn as there. By availability these
probabilities are the weights, and absence is not drawn in addition.

Source: McMahan et al. 2017, algorithm 1 (uniform); Bonawitz et al., "Towards Federated Learning at
Scale", MLSys 2019, section 2 (who is there, and asking for more than are needed).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from dlviz.federated.privacy import poisson


def generator(seed: int, *place: object) -> torch.Generator:
    """Random numbers that depend only on the seed and the place in the program, (round, client,
    epoch) for example, not on what others have drawn."""
    return torch.Generator().manual_seed(random.Random(f"{seed} {place}").getrandbits(63))


@contextmanager
def draws_of(seed: int, *place: object) -> Iterator[None]:
    """Inside, the global generator gives the numbers of `generator`; afterwards it continues as if
    nothing had been drawn."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(generator(seed, *place).initial_seed())
        yield


@dataclass(frozen=True)
class Pool:
    """The clients to draw from in a round."""

    number: int  # of the round
    there: list[int]  # in increasing order
    count: int  # how many are wanted
    fraction: float
    sizes: Sequence[int]  # examples, of all clients
    available: Sequence[float]  # of all clients
    draw: torch.Generator

    def weighted(self, weights: Sequence[float]) -> list[int]:
        """`count` of the clients present, drawn one by one in proportion to their weights."""
        mine = torch.tensor([weights[k] for k in self.there], dtype=torch.float64)
        most = min(self.count, int((mine > 0).sum()))
        if not most:
            return []
        drawn = torch.multinomial(mine, most, generator=self.draw)
        return [self.there[place] for place in drawn.tolist()]


def uniform(pool: Pool) -> list[int]:
    order = torch.randperm(len(pool.there), generator=pool.draw)
    return [pool.there[place] for place in order[: pool.count].tolist()]


def by_size(pool: Pool) -> list[int]:
    return pool.weighted(pool.sizes)


def by_availability(pool: Pool) -> list[int]:
    return pool.weighted(pool.available)


def round_robin(pool: Pool) -> list[int]:
    turn = pool.number * pool.count % len(pool.sizes)
    return sorted(pool.there, key=lambda k: (k - turn) % len(pool.sizes))[: pool.count]


def by_poisson(pool: Pool) -> list[int]:
    drawn = poisson(len(pool.there), pool.fraction, pool.draw)
    return [pool.there[place] for place in drawn.tolist()]


SELECTIONS: dict[str, Callable[[Pool], list[int]]] = {
    "uniform": uniform,
    "size": by_size,
    "availability": by_availability,
    "round_robin": round_robin,
    "poisson": by_poisson,
}


@dataclass(frozen=True)
class Selection:
    """How a server selects the clients of a round. `spare`: how many are asked beyond C K."""

    rule: str
    fraction: float
    spare: int
    available: Sequence[float] | None
    seed: int

    def __post_init__(self) -> None:
        """Raises ValueError for an unknown rule, and for numbers that select nobody."""
        if self.rule not in SELECTIONS:
            raise ValueError(f"selection={self.rule!r} is not known: use {', '.join(SELECTIONS)}.")
        if not (isinstance(self.fraction, int | float) and 0 < self.fraction <= 1):
            raise ValueError(
                f"fraction={self.fraction!r} of the clients cannot take part in a round: use a "
                "number above 0, and 1 for all."
            )
        if not (isinstance(self.spare, int) and self.spare >= 0):
            raise ValueError(f"spare={self.spare!r} clients cannot be asked beyond: use 0 or more.")
        if self.rule == "availability" and self.available is None:
            raise ValueError(
                "selection='availability' needs available=, the probability of each client."
            )
        for k, chance in enumerate(self.available or ()):
            if not 0 <= chance <= 1:
                raise ValueError(f"available[{k}]={chance!r} is not a probability: use 0 to 1.")

    def wanted(self, clients: int) -> int:
        """C K, at least one: the answers that complete a round."""
        return max(1, round(self.fraction * clients))

    def choose(self, number: int, present: list[int], sizes: Sequence[int]) -> list[int]:
        """The clients of round `number`, in increasing order, of those `present`."""
        draw, available = generator(self.seed, "selection", number), self.available
        if available is not None and self.rule != "availability":
            there = torch.rand(len(sizes), generator=draw, dtype=torch.float64)
            present = [k for k in present if there[k] < available[k]]
        count = self.wanted(len(sizes)) + self.spare
        everybody = available or [1.0] * len(sizes)
        pool = Pool(number, present, count, self.fraction, sizes, everybody, draw)
        return sorted(SELECTIONS[self.rule](pool))
