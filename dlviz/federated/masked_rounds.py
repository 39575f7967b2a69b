"""Rounds in which the server learns the sum of the clients' updates, and no single update.

    client   3 E epochs of SGD | ready  | n_k Δ_k and n_k under masks |  5 wait ...
    server   3 wait .......... | who is | Σ n_k Δ_k and Σ n_k         |  5 w += Σ n_k Δ_k / Σ n_k

Phase 4 is a secure sum (secure/) over the clients that are ready: one lost or late before it is not
asked for shares, and one that drops out of it is not in the sum. A client reports only that it is
ready: neither how many examples it has nor its loss. Clients that share a process have their own
keys, shares and masks in it; the server's process has none of them.

Source: Bonawitz et al., "Practical Secure Aggregation for Privacy-Preserving Machine Learning",
CCS 2017, section 2 (weighted averaging by a sum of n_k Δ_k and n_k).
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from dlviz.counts import check_counts
from dlviz.federated.client import Clients, Found
from dlviz.federated.messages import ANSWER, LEDGER, Answer, home
from dlviz.federated.round_record import Open
from dlviz.federated.secure.aggregate import RoundAborted, RoundChannel, serve, take_part
from dlviz.federated.secure.terms import Terms
from dlviz.federated.selection import Selection
from dlviz.federated.server import Server

if TYPE_CHECKING:
    from dlviz.federated.arrivals import Arrivals

Tensor = torch.Tensor
PLACE = LEDGER + 1  # tag: a client's number in a secure sum (0: not in it), and how many are in it
SUMS = PLACE + 1  # tag of the sum of round 0; a round has a tag of its own
BEYOND = "combine", "late_weight", "fp16"  # arguments that need single updates


@dataclass(frozen=True)
class Secure:
    """`threshold`: how many clients have to be ready, and stay until the sum is known: more than
    half of those asked. None: more than half of those that are ready, and at least two. `clip`
    bounds n_k and each value of n_k Δ_k, `bits` the sum (secure/)."""

    threshold: int | None
    clip: float
    bits: int = 32

    def __post_init__(self) -> None:
        """Raises ValueError for an invalid count."""
        check_counts(threshold=self.threshold, bits=self.bits)

    def check(
        self,
        values: Tensor,
        ranks: int,
        clients: int,
        select: Selection,
        given: Sequence[Any],
        deadline: float | None,
        arrivals: Arrivals | None,
    ) -> None:
        """Raise ValueError where a round would hide nothing, or could not be summed. `given`: the
        values of the arguments in BEYOND."""
        if clients > ranks - 1 and arrivals is None and (deadline is not None or select.spare):
            raise ValueError(
                f"{'spare' if deadline is None else 'deadline'}= with secure= and {clients} "
                f"clients on {ranks} ranks: those of one rank answer one after the other, and none "
                f"is late alone; use {clients + 1} ranks, or arrivals=, a model of their times."
            )
        asked = [name for name, value in zip(BEYOND, given, strict=True) if value]
        if asked or select.rule == "size":
            raise ValueError(
                f"{(asked or ['selection'])[0]}= asks for more of a client than the sum of all "
                "that secure= gives the server: leave one of them out."
            )
        most = clients if select.rule == "poisson" else select.wanted(clients) + select.spare
        self.terms(values, min(most, clients)).check()

    def terms(self, values: Tensor, clients: int) -> Terms:
        """The terms of a sum of so many clients' `values` (parameters,), with their weights."""
        dtype = str(values.dtype).removeprefix("torch.")
        shape = (len(values) + 1,)
        threshold = clients // 2 + 1 if self.threshold is None else self.threshold
        return Terms(shape, dtype, clients, threshold, float(self.clip), self.bits)

    def clients(self, *mine: Any) -> Clients:
        """As `Clients`."""
        return MaskedClients(self, *mine)

    def server(self, *parts: Any) -> Server:
        """As `Server`."""
        return SumServer(self, *parts)


class MaskedClients(Clients):
    """A rank's clients, whose updates the server does not see. Raises ValueError for a client of
    weight above `clip`."""

    def __init__(self, secure: Secure, *others: Any):
        super().__init__(*others)
        self.secure = secure
        for k, count in self.counts.items():
            if count > secure.clip:
                raise ValueError(
                    f"client {k} weighs {count:g}, and clip={secure.clip:g} bounds how much it "
                    f"counts: use clip={count:g} or more."
                )

    def examples(self, client: int) -> int:
        """1 if it has any: the server learns no more."""
        return min(1, super().examples(client))

    def work(self, client: int) -> int:
        return 0

    def send(self, chosen: Sequence[int], found: Found, number: int) -> None:
        """Report that the updates are ready; then take part in the sum."""
        comm, updates = self.comm, {}
        for k, (update, _) in zip(chosen, found, strict=True):
            updates[k] = self.changed(update, k, number)
            answer = Answer(number, k, self.examples(k), self.work(k), math.nan)
            comm.send(answer.packed(), 0, ANSWER)
        word, vectors = torch.zeros(2, dtype=torch.int64), {}
        for k, update in updates.items():
            comm.recv(word, 0, PLACE)  # sent in this order
            if place := int(word[0]):
                weight = update.new_tensor([self.counts[k]])
                vectors[place] = torch.cat([weight * update, weight])
        if vectors:
            terms = self.secure.terms(update, int(word[1]))
            with suppress(RoundAborted):  # the server records why
                take_part(RoundChannel(comm, SUMS + number), terms, vectors)


class SumServer(Server):
    """A server that gets only the clients' sum."""

    sum: Tensor | None = None  # (parameters + 1,), float64
    why = ""  # why `sum` is None

    def __init__(self, secure: Secure, *others: Any):
        super().__init__(*others)
        self.secure = secure

    def take(self, rank: int, now: Open) -> None:
        """A client is ready. A late one gets place 0: it is not in the sum."""
        answer = Answer.unpacked(self.ranks.word)
        if self.ranks.asked(rank, answer, now):
            now.file(answer, self.weights[:0], "", keep=False)
            if answer.number != now.number:
                self.ranks.start_send(torch.tensor([0, 0]), rank, PLACE)
            self.ranks.settle(rank, answer, now)

    def close(self, now: Open) -> float | None:
        """Announce who is in the sum, and add up."""
        came = sorted(now.answers)
        seconds = super().close(now)
        ready, self.sum = sorted(now.answers), None
        needed = max(2, self.secure.terms(self.weights, len(ready)).threshold)
        places = {k: place for place, k in enumerate(ready, 1) if len(ready) >= needed}
        for k in came:
            word = torch.tensor([places.get(k, 0), len(ready)])
            self.ranks.start_send(word, home(k, self.comm.size), PLACE)
        if places:
            self.add_up(ready, now)
        else:
            self.why = f"{len(ready)} of the clients were ready, and {needed} have to be"
        return seconds

    def add_up(self, ready: list[int], now: Open) -> None:
        """The sum of the clients that are `ready`. One that drops out counts as not answered."""
        ranks = [home(k, self.comm.size) for k in ready]
        deadline = None if self.clock else self.deadline
        channel = RoundChannel(self.comm, SUMS + now.number, ranks, deadline)
        try:
            self.sum, places = serve(channel, self.secure.terms(self.weights, len(ready)))
        except RoundAborted as error:  # it numbers the clients from 1
            self.why = re.sub(
                r"client (\d+)", lambda m: f"client {ready[int(m[1]) - 1]}", f"{error}"
            )
            places = [place for place, rank in enumerate(ranks, 1) if rank not in self.comm.lost]
        now.nbytes += channel.nbytes
        for rank in self.comm.lost:
            self.ranks.lose(rank, now)
        for k in {*ready}.difference(ready[place - 1] for place in places):
            del now.answers[k]
            now.waiting |= {k}.difference(now.lost)

    def aggregate(self, now: Open) -> str:
        """Apply the mean. Returns the reason where the weights stay unchanged."""
        if self.sum is None:
            return self.why
        mean = (self.sum[:-1] / self.sum[-1]).to(self.weights)
        try:
            with self.comm.compute("update"):
                self.weights = self.update.moved(self.weights, mean[None], mean.new_ones(1))
        except ValueError as error:
            return str(error)
        return ""
