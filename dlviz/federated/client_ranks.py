"""The ranks that hold clients: what the server knows of them, and sends them.

    rank   homes     owed                    unreported
    1      0, 4, 8   nothing                 no
    2      1, 5, 9   (round 5, client 5)     no       is busy
    3      2, 6      nothing                 yes      has not reported its clients' sizes
    4      3, 7      has no entry            no       is lost

A rank that owes an answer is sent nothing. If one of its clients is selected meanwhile, it gets the
round's weights as soon as the old answer has arrived.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import torch

from dlviz.cluster import Comm, RankLost
from dlviz.federated.messages import ANSWER, INVITATION, SIZES, WEIGHTS, Answer, residents
from dlviz.federated.round_record import Open

Tensor = torch.Tensor


class ClientRanks:
    """The ranks of so many `clients`, as rank 0 sees them."""

    def __init__(self, comm: Comm, clients: int):
        self.comm = comm
        self.homes = {rank: residents(rank, comm.size, clients) for rank in range(1, comm.size)}
        # Of each rank still present, the (round, client) of answers that have not arrived.
        self.owed: dict[int, set[tuple[int, int]]] = {rank: set() for rank in self.homes}
        self.unreported = set(self.homes)
        self.sizes = [0] * clients  # examples
        self.sends: list[Any] = []
        self.word = torch.empty(len(Answer._fields), dtype=torch.float64)

    def hear_sizes(self, rank: int, closes: float | None) -> None:
        """Receive how many examples the clients of a rank have, if it reports by then."""
        clients = self.homes[rank]
        sizes = torch.zeros(len(clients), dtype=torch.int64)
        with suppress(RankLost):
            if self.comm.recv(sizes, rank, SIZES, deadline=closes) is None:
                return
        self.unreported.remove(rank)
        for k, size in zip(clients, sizes.tolist(), strict=True):
            self.sizes[k] = size

    def of(self, ranks: Iterable[int]) -> list[int]:
        """The clients on these ranks, in increasing order."""
        return sorted(k for rank in ranks for k in self.homes[rank])

    def ask(self, now: Open) -> list[int]:
        """Invite each rank that is not busy. Returns these ranks."""
        self.sends = [each for each in self.sends if each.slot and not each.done]  # not taken
        free = [rank for rank, owed in self.owed.items() if not owed]
        for rank in free:
            self.invite(rank, now.number, now.waiting)
        return free

    def invite(self, rank: int, number: int, chosen: set[int]) -> None:
        """Send a rank which of its clients are selected."""
        flags = [k in chosen for k in self.homes[rank]]
        self.start_send(torch.tensor([number, *flags]), rank, INVITATION)

    def send_weights(self, rank: int, now: Open) -> None:
        """Send the weights to each selected client of the rank."""
        for k in sorted(now.waiting.intersection(self.homes[rank])):
            self.start_send(now.weights, rank, WEIGHTS)  # a copy for each of the rank's clients
            self.owed[rank].add((now.number, k))
            now.nbytes += now.weights.nbytes

    def start_send(self, tensor: Tensor, rank: int, tag: int) -> None:
        with suppress(RankLost):  # the next receive reports it
            self.sends.append(self.comm.isend(tensor, rank, tag))

    def listen(self, now: Open) -> int | None:
        """The rank whose answer, of any round, comes next; None where the round closes first."""
        try:
            # From whichever rank is first: in rank order a slow one would hold up the others.
            return self.comm.recv(self.word, list(self.owed), ANSWER, deadline=now.closes)
        except RankLost as error:
            self.lose(self.comm.members.index(error.rank), now)
            raise

    def asked(self, rank: int, answer: Answer, now: Open) -> bool:
        """Whether the rank owes that answer."""
        if (answer.number, answer.client) in self.owed[rank]:
            return True
        now.rejected[answer.client] = f"rank {rank} sent an update of it that nobody asked for"
        return False

    def settle(self, rank: int, answer: Answer, now: Open) -> None:
        """The rank no longer owes that answer; ask it now if it was busy when the round began."""
        self.owed[rank].discard((answer.number, answer.client))
        if not self.owed[rank] and now.waiting.intersection(self.homes[rank]):
            self.invite(rank, now.number, now.waiting)
            self.send_weights(rank, now)

    def lose(self, rank: int, now: Open) -> None:
        """Go on without the clients of a rank."""
        if self.owed.pop(rank, None) is None:
            return
        now.lost += self.homes[rank]
        now.waiting -= set(self.homes[rank])
