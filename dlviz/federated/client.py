"""A rank's clients: they wait to be asked, train on their own data, and send their updates.

    server   1 select | 2 w to k | 3 wait .............. | 4 take Δ_k | 5 aggregate |
    client   1 asked  | 2 w      | 3 E epochs of SGD     | 4 Δ_k      | 5 wait ..... |

Their data never leave the rank. With `always` the clients that were not asked train as well, each
from its own weights, as in the lecture: nothing of that is sent, and all of it is counted.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from dlviz.cluster import Comm
from dlviz.federated.local import Data, LocalTraining, alone, check_mean
from dlviz.federated.messages import (
    ANSWER,
    INVITATION,
    LEDGER,
    SIZES,
    UPDATE,
    WEIGHTS,
    Answer,
    phase,
    residents,
)
from dlviz.federated.selection import draws_of
from dlviz.federated.stacked import can_stack, together
from dlviz.federated.weights import Layout

Tensor = torch.Tensor
# (update (parameters,), client, round) -> what is sent in its place
Outgoing = Callable[[Tensor, int, int], Tensor]
Callback = Callable[[int, float, nn.Module], Any]
Found = Sequence[tuple[Tensor, float]]  # of each client its update (parameters,) and its loss

UNASKED = "3 not asked"  # the phase of a training that nobody uses


class Clients:
    """The clients on this rank, each with its own data, weights and model: what a forward changes
    there (a batch norm's counter, a layer's generator) affects no other client. Before an update is
    sent, `outgoing` clips, noises or falsifies it, and `fp16` rounds it to 16 bits a value."""

    def __init__(
        self,
        comm: Comm,
        layout: Layout,
        clients: Sequence[Data],
        how: LocalTraining,
        outgoing: Outgoing | None = None,
        fp16: bool = False,
    ):
        self.comm, self.layout, self.how = comm, layout, how
        self.outgoing, self.fp16 = outgoing, fp16
        self.numbers = residents(comm.rank, comm.size, len(clients))
        self.data = {
            k: (clients[k][0].to(comm.device), clients[k][1].to(comm.device)) for k in self.numbers
        }
        self.weights = {k: layout.read() for k in self.numbers}  # unasked training goes on from it
        self.counts = {k: how.weigh(k, *data) for k, data in self.data.items()}  # n_k
        if len(clients) > 1 or how.batch:  # otherwise there is one batch, and no part of it
            check_mean(layout, how, self.data.values())
        self.last = layout  # the model of the client that was asked and trained last
        some = [data for data in self.data.values() if len(data[1])]
        self._own: dict[int, tuple[Layout, LocalTraining]] = {}
        self._stacks = len(some) > 1 and how.weight is None
        self._stacks = self._stacks and can_stack(copy.deepcopy(layout), some[0], how)

    def train(self, chosen: Sequence[int], number: int) -> Found:
        """Train the `chosen`."""
        starts = torch.stack([self.weights[k] for k in chosen])  # (chosen, parameters)
        if self._stacks and len(chosen) > 1:
            data = [self.data[k] for k in chosen]
            ends, losses = together(self.comm, self.layout, starts, data, self.how, number, chosen)
            found = list(zip(ends, losses, strict=True))
        else:
            found = [
                alone(self.comm, start, self.data[k], *self.own(k), number, k)
                for k, start in zip(chosen, starts, strict=True)
            ]
        self.weights |= {k: end for k, (end, _) in zip(chosen, found, strict=True)}
        # Δ_k = w_k - w_t: what is clipped, noised or masked is the change, not the weights.
        return [(end - start, loss) for start, (end, loss) in zip(starts, found, strict=True)]

    def own(self, client: int) -> tuple[Layout, LocalTraining]:
        """The model and the loss of a client trained alone."""
        if client not in self._own:
            self._own[client] = copy.deepcopy((self.layout, self.how))
        return self._own[client]

    def call_back(
        self, callback: Callback, chosen: Sequence[int], found: Found, number: int
    ) -> None:
        """Call `callback` after a round in which the `chosen` trained and have `found` updates."""
        seen = sum(self.counts[k] for k in chosen)
        total = sum(self.counts[k] * loss for k, (_, loss) in zip(chosen, found, strict=True))
        for k in chosen[-1:]:
            self.last, _ = self.own(k)
            self.last.write(self.weights[k])
        callback(number, total / seen if seen else math.nan, self.last.model)

    def examples(self, client: int) -> int:
        """How many examples the client has; 0 where all of them are padding."""
        return len(self.data[client][1]) if self.counts[client] else 0

    def work(self, client: int) -> int:
        """The examples that this client computes in a round, counted once per epoch."""
        return self.how.epochs * self.examples(client)

    def changed(self, update: Tensor, client: int, number: int) -> Tensor:
        """What is sent in place of `update`."""
        if self.outgoing is None:
            return update
        with draws_of(self.how.seed, "outgoing", number, client):
            return self.outgoing(update, client, number)

    def send(self, chosen: Sequence[int], found: Found, number: int) -> None:
        """Send the updates `found`, each followed by its `Answer`."""
        requests = []
        for k, (update, loss) in zip(chosen, found, strict=True):
            answer = Answer(number, k, self.counts[k], self.work(k), loss)
            update = self.changed(update, k, number)
            row = (update.half() if self.fp16 else update).contiguous()
            requests.append(self.comm.isend(row, 0, UPDATE))
            self.comm.send(answer.packed(), 0, ANSWER)  # it ends when the server takes them
        self.comm.wait_sent(requests)


def take_part(
    clients: Clients, rounds: int, always: bool, callback: Callback | None = None
) -> None:
    """The clients' side of a training of so many rounds."""
    comm, own = clients.comm, clients.numbers
    comm.send(torch.tensor([clients.examples(k) for k in own], dtype=torch.int64), 0, SIZES)
    ledger = torch.zeros(rounds, len(own), dtype=torch.int64)
    number, invited = 0, None
    while number < rounds:
        with phase(comm, 0, number):
            invited = hear(comm, own) if invited is None else invited
            chosen = [k for k, asked in zip(own, invited[1:].tolist(), strict=True) if asked]
        found: Found = []
        if chosen:
            with phase(comm, 1, number):
                for k in chosen:
                    comm.recv(clients.weights[k], 0, WEIGHTS)  # sent in this order
            with phase(comm, 2, number):
                found = clients.train(chosen, number)
            with phase(comm, 3, number):
                clients.send(chosen, found, number)
        others = [k for k in own if always and k not in chosen and clients.examples(k)]
        if others:
            with comm.span("phase", UNASKED, step=number):
                clients.train(others, number)
        for k in [*chosen, *others]:
            ledger[number, own.index(k)] = clients.work(k)
        if callback is not None:
            clients.call_back(callback, chosen, found, number)
        with phase(comm, 4, number):
            invited = hear(comm, own)
        number = int(invited[0])  # a slow rank may find the server rounds ahead
    comm.send(ledger, 0, LEDGER)


def hear(comm: Comm, own: Sequence[int]) -> Tensor:
    """Wait for the server's next invitation (1 + clients of this rank,)."""
    word = torch.empty(1 + len(own), dtype=torch.int64)
    comm.recv(word, 0, INVITATION)
    return word
