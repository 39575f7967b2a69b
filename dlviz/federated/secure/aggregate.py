"""`secure_sum`: the coroutines of a round on the ranks of a Comm.

    server      |keys      |shares      |masked vectors |unmasking   |
    client 1    | > keys < | > shares < | > vector <    | > shares < |
    client 2    | > keys < | > shares < | > vector ✕  is lost: the others reveal its mask key

In each exchange the server first takes every client's message, then reads them, then answers all,
so that everybody is in the same place when the round has to end.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from typing import Any

import torch

from dlviz.cluster import Comm, RankLost, RunError
from dlviz.federated.secure.client import client
from dlviz.federated.secure.messages import EXCHANGES, SERVER, reason, refusal
from dlviz.federated.secure.server import Messages, server
from dlviz.federated.secure.terms import Terms


class RoundAborted(RunError):
    """Raised on every rank that is left where a round of `secure_sum` ends without a sum: no vector
    is known to anybody, and the ranks can go on, with another round say."""


def secure_sum(
    comm: Comm, vector: torch.Tensor, *, threshold: int, clip: float, bits: int = 32
) -> torch.Tensor | None:
    """On rank 0, the server, the sum of the other ranks' vectors, of which it learns nothing else;
    None on the others, the clients. Of rank 0's own `vector` shape and dtype alone count.

    Each value is clipped to ±`clip` and rounded to a step of 2^-16 or finer: as fine as n · clip
    allows modulo 2^`bits` (62 at most; above 32 a value takes 8 bytes). What is weighted with n_k
    examples is sent with its weight, torch.cat([n_k * update, n_k]), and clip bounds both.

    Clients may drop out in any exchange where the run may lose them (`launch`, `may_lose`): the sum
    is of those whose masked vector has come, as long as `threshold` of the n clients are left,
    more than half. All must call it with the same arguments.

    Raises ValueError for fewer than 2 clients, a threshold that is not above n/2, and values whose
    sum the modulus cannot hold. Raises RoundAborted, which names the client, where too few are
    left, a vector is not finite or has another shape, a share does not verify, or a message comes
    twice, out of turn, for somebody else or of another round.

    Cost: 4 exchanges. Of L values in words of w bytes a client sends w L + 179 n + 148 + t bytes
    and gets 216 n + 84, where t is the length of the terms' text, about 55. Without masks it would
    be w L. A client makes n masks of L words; so does the server, and as many again for each client
    that was lost after its shares. On a paced run the arithmetic takes no device time.
    """
    shape = tuple(vector.shape)
    dtype = str(vector.dtype).removeprefix("torch.")
    terms = Terms(shape, dtype, comm.size - 1, threshold, float(clip), bits)
    terms.check()
    if comm.rank == SERVER:
        return serve(comm, terms).to(vector).view(shape)
    take_part(comm, terms, vector)
    return None


def serve(comm: Comm, terms: Terms) -> torch.Tensor:
    """The server's part."""
    machine, present, total = server(terms), [*range(1, comm.size)], None
    next(machine)
    for exchange in EXCHANGES:
        with comm.span("phase", exchange):
            messages = gather(comm, present)
            try:
                for each, message in messages.items():
                    if why := reason(message):
                        raise ValueError(f"client {each} ends the round: {why}")
                answers, total = machine.send(messages)
            except ValueError as error:
                why = str(error)
                tell(comm, {each: refusal(SERVER, each, why) for each in messages})
                raise RoundAborted(why) from None
            tell(comm, answers)
            present = [*answers]
    assert total is not None
    return terms.code.decode(total)


def take_part(comm: Comm, terms: Terms, vector: torch.Tensor) -> None:
    """A client's part."""
    machine: Any = client(comm.rank, terms, vector)
    answer = None  # starts it
    for exchange in EXCHANGES:
        with comm.span("phase", exchange):
            try:
                message = machine.send(answer)
            except ValueError as error:  # the server tells all
                message = refusal(comm.rank, SERVER, str(error))
            comm.send(as_tensor(message), SERVER)
            answer = take(comm, SERVER)
            if why := reason(answer):
                raise RoundAborted(why)


def gather(comm: Comm, present: Collection[int]) -> Messages:
    """The messages of those of `present` that are not lost."""
    messages = {}
    for each in present:
        with suppress(RankLost):
            messages[each] = take(comm, each)
    return messages


def tell(comm: Comm, answers: Messages) -> None:
    """Send each client its answer, if it is not lost."""
    for each, answer in answers.items():
        with suppress(RankLost):  # the next exchange goes on without it
            comm.send(as_tensor(answer), each)


def take(comm: Comm, src: int) -> bytes:
    """The next message from `src`, as long as it is."""
    message = comm.probe(src)
    comm.recv(message, src)
    return message.cpu().numpy().tobytes()


def as_tensor(message: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(message), dtype=torch.uint8)
