"""The server: it selects, sends its weights out, and aggregates what comes back.

It is told how many examples each client has, and receives updates; it sees no data. A client that
is lost, late, or sends what is no update is named in the round's record, and training goes on from
the last good weights. Where rounds have a deadline, a client that has not told how much it has is
named too, and takes part from the round on in which it does. A rank that still owes an answer is
sent nothing: it is busy. Where a client of it is selected meanwhile, it gets the round's weights as
soon as its old answer has come.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import torch

from dlviz.cluster import Comm, RankLost
from dlviz.federated.aggregation import ServerUpdate
from dlviz.federated.arrivals import ModelledClock
from dlviz.federated.messages import (
    ANSWER,
    INVITATION,
    SIZES,
    UPDATE,
    WEIGHTS,
    Answer,
    fault_of,
    phase,
    residents,
)
from dlviz.federated.record import Examples, Open, Round
from dlviz.federated.selection import Selection

Tensor = torch.Tensor
PATIENCE = 10  # deadlines that the server waits, before the first round and after the last
NEVER = 1e6  # s: with a deadline the device's clock alone decides whose answer comes first


class Server:
    """Rank 0; `expect` comes before the first round, homecoming.py after the last."""

    def __init__(
        self,
        comm: Comm,
        weights: Tensor,
        clients: int,
        selection: Selection,
        update: ServerUpdate,
    ):
        self.comm, self.weights = comm, weights
        self.selection, self.update = selection, update
        self.homes = {rank: residents(rank, comm.size, clients) for rank in range(1, comm.size)}
        # Of each rank that is left, the (round, client) of answers that have not come.
        self.owed: dict[int, set[tuple[int, int]]] = {rank: set() for rank in self.homes}
        self.untold = set(self.homes)  # ranks that have not told how many examples they have
        self.wanted = selection.wanted(clients) if selection.spare else clients
        self.sizes = [0] * clients
        self.work = Examples()
        self.sends: list[Any] = []
        self.word = torch.empty(len(Answer._fields), dtype=torch.float64)

    def expect(
        self, fp16: bool, deadline: float | None, late_weight: float, clock: ModelledClock | None
    ) -> None:
        """What comes back, by when, and what it counts in a later round (0: it is dropped); and
        hear from every rank how many examples its clients have."""
        self.form = self.weights.half() if fp16 else self.weights  # what an update is like
        self.deadline, self.late_weight, self.clock = deadline, late_weight, clock
        closes = None
        if deadline is not None and not clock:
            closes = self.comm.now() + PATIENCE * deadline
        for rank in self.homes:
            self.hear_sizes(rank, closes)

    def hear_sizes(self, rank: int, closes: float | None) -> None:
        """How many examples the clients of a rank have, if it tells until then."""
        clients = self.homes[rank]
        sizes = torch.zeros(len(clients), dtype=torch.int64)
        with suppress(RankLost):
            if self.comm.recv(sizes, rank, SIZES, deadline=closes) is None:
                return
        self.untold.remove(rank)
        for k, size in zip(clients, sizes.tolist(), strict=True):
            self.sizes[k] = size

    # -- a round -------------------------------------------------------------------------------
    def round(self, number: int) -> Round:
        """The five phases."""
        with phase(self.comm, 0, number):
            begun, closes = self.comm.now(), None
            if self.deadline is not None and not self.clock:
                closes = begun + self.deadline
            elif self.selection.spare and self.comm.machine is not None:
                closes = begun + NEVER
            now = Open(number, self.weights.clone(), closes)
            self.sends = [each for each in self.sends if each.tick and not each.done]  # not taken
            self.select(now)
            asked = [rank for rank, owed in self.owed.items() if not owed]  # the others are busy
            for rank in asked:
                self.invite(rank, number, now.waiting)
        with phase(self.comm, 1, number):
            for rank in asked:
                self.send_weights(rank, now)
        with phase(self.comm, 2, number):
            rank = self.hear(now)
        with phase(self.comm, 3, number):
            self.collect(rank, now)
        with phase(self.comm, 4, number):
            seconds = self.clock and self.clock.close(
                now, self.deadline, self.wanted, self.late_weight > 0
            )
            unchanged = self.aggregate(now)
        if seconds is None:
            return now.closed(unchanged, self.comm.now() - begun, modelled=False)
        return now.closed(unchanged, seconds, modelled=True)

    def select(self, now: Open) -> None:
        for rank in self.comm.lost:
            self.lose(rank, now)
        for rank in [*self.untold]:
            self.hear_sizes(rank, self.comm.now())
        present = sorted(k for rank in self.owed for k in self.homes[rank])  # one seed, one draw
        now.selected = self.selection.choose(now.number, present, self.sizes)
        now.rejected |= {k: "has no data" for k in now.selected if not self.sizes[k]}
        untold = {k for rank in self.untold for k in self.homes[rank]}
        now.rejected |= dict.fromkeys(
            untold.intersection(now.selected), "has not told how many examples it has"
        )
        now.waiting = {k for k in now.selected if self.sizes[k]}
        if self.clock:
            now.busy = now.waiting & self.clock.busy()
            now.waiting -= now.busy

    def invite(self, rank: int, number: int, chosen: set[int]) -> None:
        """Tell a rank which of its clients are selected; it is free."""
        flags = [k in chosen for k in self.homes[rank]]
        self.start_send(torch.tensor([number, *flags]), rank, INVITATION)

    def send_weights(self, rank: int, now: Open) -> None:
        """The weights, for each client of the rank that is selected."""
        for k in sorted(now.waiting.intersection(self.homes[rank])):
            self.start_send(now.weights, rank, WEIGHTS)  # a copy for each of the rank's clients
            self.owed[rank].add((now.number, k))
            now.nbytes += now.weights.nbytes

    def start_send(self, tensor: Tensor, rank: int, tag: int) -> None:
        with suppress(RankLost):  # it is told where it hears next
            self.sends.append(self.comm.isend(tensor, rank, tag))

    def hear(self, now: Open) -> int | None:
        """Wait for the next answer; its rank, None when the round is over: all have answered, or
        as many as are wanted, or its time is."""
        while now.waiting and (self.clock or len(now.answers) < self.wanted):
            with suppress(RankLost):
                return self.listen(now)
        return None

    def collect(self, rank: int | None, now: Open) -> None:
        """Take what has come, from `rank` first, until the round is over."""
        while rank is not None:
            self.take(rank, now)
            rank = self.hear(now)

    def listen(self, now: Open) -> int | None:
        """The rank whose answer comes next, None where the round closes before; of any round."""
        try:
            # From whichever rank is first: in rank order a slow one would hide the others.
            return self.comm.recv(self.word, list(self.owed), ANSWER, deadline=now.closes)
        except RankLost as error:
            self.lose(self.comm.members.index(error.rank), now)
            raise

    def take(self, rank: int, now: Open) -> None:
        """The update that the word just heard is of; it was sent before the word."""
        answer = Answer.unpacked(self.word)
        try:
            row = self.comm.probe(rank, UPDATE, deadline=now.closes)  # of whatever shape and dtype
            if row is not None:
                self.comm.recv(row, rank, UPDATE)
        except RankLost:
            self.lose(rank, now)
            return
        if row is None:  # its rank goes on owing it
            now.rejected[answer.client] = f"rank {rank} announced an update of it that did not come"
            return
        now.nbytes += row.nbytes
        if self.asked(rank, answer, now):
            self.work.computed[answer.number, answer.client] = answer.computed
            now.file(answer, row, fault_of(answer, row, self.form), keep=self.late_weight > 0)
            self.settle(rank, answer, now)

    def asked(self, rank: int, answer: Answer, now: Open) -> bool:
        """Whether the rank owes that answer."""
        if (answer.number, answer.client) in self.owed[rank]:
            return True
        now.rejected[answer.client] = f"rank {rank} sent an update of it that nobody asked for"
        return False

    def settle(self, rank: int, answer: Answer, now: Open) -> None:
        """The rank does not owe that answer any more; ask it now if it was busy when the round
        began."""
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

    def aggregate(self, now: Open) -> str:
        """Move the weights by what came; why not, where they have to stay."""
        came = sorted([*now.answers.values(), *now.taken.values()], key=place)
        rows = [row.to(self.weights.dtype) for _, row in came]  # from fp16 to what is summed
        share = [1.0 if answer.number == now.number else self.late_weight for answer, _ in came]
        weights = torch.tensor(
            [w * answer.examples for w, (answer, _) in zip(share, came, strict=True)],
            dtype=torch.float64,
        )
        # Under Poisson nobody may come, and noise that is left out then would say so.
        if not came and self.selection.rule != "poisson":
            return "no client " + ("answered" if now.selected else "was there to be selected")
        updates = torch.stack(rows) if rows else self.weights[None][:0]  # (clients, parameters)
        try:
            with self.comm.compute("update"):
                self.weights = self.update.moved(self.weights, updates, weights)
        except ValueError as error:
            return str(error)
        self.work.used |= {(answer.number, answer.client) for answer, _ in came}
        return ""


def place(came: tuple[Answer, Tensor]) -> tuple[int, int]:
    """Where an answer stands in the sum: in the order of the clients, not of their arrival."""
    answer, _ = came
    return answer.client, answer.number
