"""Phase 1: which clients take part in a round.

    uniform       C K of them, any as likely as any other
    size          C K of them, one with twice the data twice as likely (the first to be drawn)
    availability  C K of them, one that is twice as often there twice as likely (the first drawn)
    round_robin   C K of them, the next ones in turn
    poisson       each on its own with probability C: sometimes nobody; what `epsilon` asks for

K clients, C `fraction`. Every rule draws among those that are there: not lost, and, where
`available` says with which probability client k is there in a round, drawn to be. By availability
these probabilities are the weights, and nobody is drawn to be away as well.

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
    """Random numbers that follow from the seed and the place in the program alone: (round, client,
    epoch), say. What others have drawn meanwhile changes nothing."""
    return torch.Generator().manual_seed(random.Random(f"{seed} {place}").getrandbits(63))


@contextmanager
def draws_of(seed: int, *place: object) -> Iterator[None]:
    """What is drawn inside, from the generator that all share, is `generator`'s as well; those who
    draw after it find the shared one as it was."""
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
        """`count` of those that are there, one after the other, in proportion to their weights."""
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
    """How a server selects: `choose` for a round. `spare` are asked beyond C K."""

    rule: str
    fraction: float
    spare: int
    available: Sequence[float] | None
    seed: int

    def __post_init__(self) -> None:
        """Raises ValueError for a rule that there is not, and for numbers that choose nobody."""
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
                "selection='availability' needs available=, how likely each client is there."
            )
        for k, chance in enumerate(self.available or ()):
            if not 0 <= chance <= 1:
                raise ValueError(f"available[{k}]={chance!r} is no probability: use 0 to 1.")

    def wanted(self, clients: int) -> int:
        """C K, one at least: how many answers a round is over with."""
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
