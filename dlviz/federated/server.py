"""The server: it selects, sends its weights out, and aggregates what comes back.

It receives numbers of examples and updates; it sees no data. The round's record names a client that
is lost, late, or sends an invalid update, and training goes on from the last good weights. Where
rounds have a deadline, the record also names a client that has not reported its number of examples;
it takes part once it has. The messages to and from a rank are in client_ranks.py.
"""

from __future__ import annotations

from contextlib import suppress

import torch

from dlviz.cluster import Comm, RankLost
from dlviz.federated.aggregation import ServerUpdate
from dlviz.federated.arrivals import ModelledClock
from dlviz.federated.client_ranks import ClientRanks
from dlviz.federated.messages import UPDATE, Answer, fault_of, phase
from dlviz.federated.round_record import Examples, Open, Round
from dlviz.federated.selection import Selection

Tensor = torch.Tensor
PATIENCE = 10  # deadlines that the server waits, before the first round and after the last
NEVER = 1e6  # s: with a deadline the device's clock alone decides which answer comes first


class Server:
    """Rank 0; `expect` comes before the first round, shutdown.py after the last."""

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
        self.ranks = ClientRanks(comm, clients)
        self.wanted = selection.wanted(clients) if selection.spare else clients
        self.work = Examples()

    def expect(
        self, fp16: bool, deadline: float | None, late_weight: float, clock: ModelledClock | None
    ) -> None:
        """Set the dtype of updates, the deadline, and the weight of late updates (0: dropped); then
        receive from every rank how many examples its clients have."""
        self.form = self.weights.half() if fp16 else self.weights  # what an update is like
        self.deadline, self.late_weight, self.clock = deadline, late_weight, clock
        closes = None
        if deadline is not None and not clock:
            closes = self.comm.now() + PATIENCE * deadline
        for rank in self.ranks.homes:
            self.ranks.hear_sizes(rank, closes)

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
            self.select(now)
            asked = self.ranks.ask(now)
        with phase(self.comm, 1, number):
            for rank in asked:
                self.ranks.send_weights(rank, now)
        with phase(self.comm, 2, number):
            rank = self.hear(now)
        with phase(self.comm, 3, number):
            self.collect(rank, now)
            seconds = self.close(now)
        with phase(self.comm, 4, number):
            unchanged = self.aggregate(now)
        if seconds is None:
            return now.closed(unchanged, self.comm.now() - begun, modelled=False)
        return now.closed(unchanged, seconds, modelled=True)

    def select(self, now: Open) -> None:
        ranks = self.ranks
        for rank in self.comm.lost:
            ranks.lose(rank, now)
        for rank in [*ranks.unreported]:
            ranks.hear_sizes(rank, self.comm.now())
        present = ranks.of(ranks.owed)  # in one order, whoever was lost when: one seed, one draw
        now.selected = self.selection.choose(now.number, present, ranks.sizes)
        now.rejected |= {k: "has no data" for k in now.selected if not ranks.sizes[k]}
        unreported = {*ranks.of(ranks.unreported)}.intersection(now.selected)
        now.rejected |= dict.fromkeys(unreported, "has not reported how many examples it has")
        now.waiting = {k for k in now.selected if ranks.sizes[k]}
        if self.clock:
            now.busy = now.waiting & self.clock.busy()
            now.waiting -= now.busy

    def hear(self, now: Open) -> int | None:
        """Wait for the next answer. Returns its rank, None when the round is over: all have
        answered, or as many as are wanted, or the deadline has passed."""
        while now.waiting and (self.clock or len(now.answers) < self.wanted):
            with suppress(RankLost):
                return self.ranks.listen(now)
        return None

    def collect(self, rank: int | None, now: Open) -> None:
        """Take the answers, from `rank` first, until the round is over."""
        while rank is not None:
            self.take(rank, now)
            rank = self.hear(now)

    def take(self, rank: int, now: Open) -> None:
        """Take the update that belongs to the `Answer` just received; it was sent before it."""
        answer = Answer.unpacked(self.ranks.word)
        try:
            row = self.comm.probe(rank, UPDATE, deadline=now.closes)  # of whatever shape and dtype
            if row is not None:
                self.comm.recv(row, rank, UPDATE)
        except RankLost:
            self.ranks.lose(rank, now)
            return
        if row is None:  # its rank still owes it
            now.rejected[answer.client] = f"rank {rank} announced an update of it that did not come"
            return
        now.nbytes += row.nbytes
        if self.ranks.asked(rank, answer, now):
            self.work.computed[answer.number, answer.client] = answer.computed
            now.file(answer, row, fault_of(answer, row, self.form), keep=self.late_weight > 0)
            self.ranks.settle(rank, answer, now)

    def close(self, now: Open) -> float | None:
        """End the round. With a model of times: decide who is late, and return its length."""
        if self.clock is None:
            return None
        return self.clock.close(now, self.deadline, self.wanted, self.late_weight > 0)

    def aggregate(self, now: Open) -> str:
        """Apply the updates that arrived. Returns the reason where the weights stay unchanged."""
        came = sorted([*now.answers.values(), *now.taken.values()], key=place)
        rows = [row.to(self.weights.dtype) for _, row in came]  # from fp16 to what is summed
        share = [1.0 if answer.number == now.number else self.late_weight for answer, _ in came]
        weights = torch.tensor(
            [w * answer.weight for w, (answer, _) in zip(share, came, strict=True)],
            dtype=torch.float64,
        )
        # Under Poisson nobody may come, and leaving out the noise would reveal that.
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
    """An answer's place in the sum: in the order of the clients, not of arrival."""
    answer, _ = came
    return answer.client, answer.number
