"""`secure_sum`: the coroutines of a round on the ranks of a Comm.

    server      |keys      |shares      |masked vectors |unmasking   |
    client 1    | > keys < | > shares < | > vector <    | > shares < |
    client 2    | > keys < | > shares < | > vector ✕  is lost: the others reveal its mask key
    client 3    | > keys < | ...................... late: the same, and it gets a refusal

In each exchange the server first takes every client's message, then reads them, then answers all,
so that everybody is at the same place if the round has to end. Each round has its own tag: a
message that comes too late does not disturb the next round.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from typing import Any
from weakref import WeakKeyDictionary

import torch

from dlviz.cluster import Comm, RankLost, RunError
from dlviz.federated.secure.client import client
from dlviz.federated.secure.messages import EXCHANGES, MASKED, SERVER, reason, refusal
from dlviz.federated.secure.server import Messages, server
from dlviz.federated.secure.terms import Terms

_rounds: WeakKeyDictionary[Comm, count[int]] = WeakKeyDictionary()  # number of the next round


class RoundAborted(RunError):
    """Raised on every remaining rank where a round of `secure_sum` ends without a sum: nobody knows
    any vector, and the ranks can go on, with another round for example. Also raised on a late
    client that the round went on without."""


def secure_sum(
    comm: Comm,
    vector: torch.Tensor,
    *,
    threshold: int,
    clip: float,
    bits: int = 32,
    deadline: float | None = None,
) -> torch.Tensor | None:
    """On rank 0, the server, the sum of the other ranks' vectors, and nothing else about them;
    None on the others, the clients. Of rank 0's own `vector` only shape and dtype matter.

    Each value is clipped to ±`clip` and rounded to a step of 2^-16 or finer: as fine as n · clip
    allows modulo 2^`bits` (62 at most; above 32 a value takes 8 bytes). For a mean weighted by n_k
    examples send torch.cat([n_k * update, n_k]); clip bounds both.

    Clients may drop out in any exchange: one that the run may lose (`launch`, `may_lose`), and one
    whose message has not arrived `deadline` seconds of the run's clock after the exchange began.
    The sum is of those whose masked vector has arrived, as long as `threshold` of the n clients,
    more than half, are left. All must call it with the same arguments.

    Raises ValueError for fewer than 2 clients, a threshold that is not above n/2, a deadline that
    lets nobody answer, and values whose sum the modulus cannot hold. Raises RoundAborted, which
    names the client, where too few are left, a vector is not finite or has another shape, a share
    does not verify, or a message comes twice, out of turn, for somebody else or of another round;
    on a late client it names the exchange that it missed.

    Cost: 4 exchanges. Of L values in words of w bytes a client sends w L + 179 n + 148 + t bytes
    and gets 216 n + 84, where t is the length of the terms' text, about 55. Without masks it would
    send w L. A client makes n masks of L words; so does the server, and as many again for each
    client lost after its shares. On a paced run the arithmetic takes no device time.
    """
    terms = agreed(comm, vector, threshold, clip, bits)
    if deadline is not None and not 0 < deadline < float("inf"):
        raise ValueError(f"deadline={deadline!r} lets nobody answer: use seconds above 0, or None.")
    channel = RoundChannel(comm, next_round(comm), range(1, comm.size), deadline)
    return run_round(channel, terms, vector)


@dataclass
class RoundChannel:
    """The `tag` of a round's messages on a Comm. On the server also the `ranks` of the clients 1,
    2, ..., how many seconds it waits in each exchange, and the bytes so far."""

    comm: Comm
    tag: int
    ranks: Sequence[int] = ()
    deadline: float | None = None
    nbytes: int = 0

    def send(self, answers: Mapping[int, bytes]) -> None:
        """Send each client its answer, if it is not lost; do not wait for a stopped one."""
        for each, answer in answers.items():
            with suppress(RankLost):  # the next exchange goes on without it
                self.comm.isend(as_tensor(answer), self.ranks[each - 1], self.tag)
                self.nbytes += len(answer)

    def gather(self, present: Collection[int], closes: float | None) -> Messages:
        """The messages of the clients in `present` that are neither lost nor late."""
        messages = {}
        for each in present:
            with suppress(RankLost):
                message = self.take(self.ranks[each - 1], closes)
                if message is not None:
                    messages[each] = message
                    self.nbytes += len(message)
        return messages

    def take(self, src: int, closes: float | None) -> bytes | None:
        """The next message from a rank, of any length; None where it is late."""
        message = self.comm.probe(src, self.tag, deadline=closes)  # the header says how long it is
        if message is None:
            return None
        self.comm.recv(message, src, self.tag)
        return message.cpu().numpy().tobytes()


def agreed(comm: Comm, vector: torch.Tensor, threshold: int, clip: float, bits: int) -> Terms:
    """The terms of a sum of the ranks' vectors. Raises ValueError for impossible ones."""
    dtype = str(vector.dtype).removeprefix("torch.")
    terms = Terms(tuple(vector.shape), dtype, comm.size - 1, threshold, float(clip), bits)
    terms.check()
    return terms


def next_round(comm: Comm) -> int:
    """The round's tag: every rank counts the same."""
    return next(_rounds.setdefault(comm, count()))


def run_round(channel: RoundChannel, terms: Terms, vector: torch.Tensor) -> torch.Tensor | None:
    """This rank's part of the round: on rank 0 the sum."""
    if channel.comm.rank == SERVER:
        return serve(channel, terms)[0].to(vector).view(terms.shape)
    take_part(channel, terms, {channel.comm.rank: vector})
    return None


def serve(channel: RoundChannel, terms: Terms) -> tuple[torch.Tensor, list[int]]:
    """The server's part: the sum, flat, and the clients whose vectors are in it."""
    machine, present = server(terms), [*range(1, terms.clients + 1)]
    comm, stayed, total = channel.comm, present, None
    next(machine)  # to its first yield
    for exchange in EXCHANGES:
        with comm.span("phase", exchange):
            closes = None if channel.deadline is None else comm.now() + channel.deadline
            messages = channel.gather(present, closes)
            # A late client finds this where it waits for the answer.
            channel.send({each: missed(each, exchange) for each in present if each not in messages})
            try:
                for each, message in messages.items():
                    if why := reason(message):
                        raise ValueError(f"client {each} ends the round: {why}")
                answers, total = machine.send(messages)
            except ValueError as error:
                why = str(error)
                channel.send({each: refusal(SERVER, each, why) for each in messages})
                raise RoundAborted(why) from None
            channel.send(answers)
            present = [*answers]  # no more waiting for who has dropped out
            if exchange == EXCHANGES[MASKED]:
                stayed = present
    assert total is not None
    return terms.code.decode(total), stayed


def missed(number: int, exchange: str) -> bytes:
    """The answer that a late client finds."""
    why = f"client {number} was late in the exchange of {exchange}: the round went on without it."
    return refusal(SERVER, number, why)


def take_part(channel: RoundChannel, terms: Terms, vectors: Mapping[int, torch.Tensor]) -> None:
    """The part of this rank's clients, by their numbers. Each has its own secrets."""
    comm = channel.comm
    machines = {number: client(number, terms, vector) for number, vector in vectors.items()}
    answers: dict[int, Any] = dict.fromkeys(machines)  # None starts them
    for exchange in EXCHANGES:
        with comm.span("phase", exchange):
            sending = []
            for number, machine in machines.items():
                try:
                    message = machine.send(answers[number])
                except ValueError as error:  # the server forwards it to all
                    message = refusal(number, SERVER, str(error))
                # It may be too late.
                sending.append(comm.isend(as_tensor(message), SERVER, channel.tag))
            answers = {number: channel.take(SERVER, closes=None) for number in machines}
            for why in filter(None, map(reason, answers.values())):
                raise RoundAborted(why)
            for each in sending:  # not sooner: the server never takes a late one
                each.wait()


def as_tensor(message: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(message), dtype=torch.uint8)
