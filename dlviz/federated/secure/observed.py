"""A secure sum with a look at the server's desk: which masked vector came from whom.

The server of `secure_sum` has each masked vector in its hands, adds it and forgets it. Here it
returns them too, so that one can see that they say nothing. And a client may drop out in the middle
of the round, after a number of exchanges: its pairwise masks are then in the others' vectors.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch

from dlviz.cluster import Comm
from dlviz.federated.secure.aggregate import RoundChannel, agreed, next_round, run_round
from dlviz.federated.secure.messages import HEAD, MASKED
from dlviz.federated.secure.terms import Terms


class DroppedOut(RuntimeError):
    """Raised on a rank that drops out as it was asked to: the run has to allow its loss
    (`launch`, `may_lose`)."""


@dataclass(frozen=True)
class Observed:
    """What rank 0 has after a secure sum: the sum, and the masked vectors, flat, as they came: for
    each client, 1 or more, its residues. `terms.code` makes residues of values, and values of
    residues."""

    total: torch.Tensor
    masked: dict[int, np.ndarray]
    terms: Terms


@dataclass
class WatchedChannel(RoundChannel):
    """Stores what it takes; ends the rank after so many messages (`leaves_after`)."""

    leaves_after: int | None = None
    taken: list[tuple[int, bytes]] = field(default_factory=list)  # from which rank

    def take(self, src: int, closes: float | None) -> bytes | None:
        message = super().take(src, closes)
        if message is not None:
            self.taken.append((src, message))
        if len(self.taken) == self.leaves_after:
            raise DroppedOut(f"rank {self.comm.rank} drops out after {self.leaves_after} exchanges")
        return message


def observed_sum(
    comm: Comm,
    vector: torch.Tensor,
    *,
    threshold: int,
    clip: float,
    bits: int = 32,
    leaves_after: int | None = None,
) -> Observed | None:
    """As `secure_sum`; rank 0 also returns the masked vectors. With `leaves_after` this rank, a
    client, drops out after so many exchanges, 1 to 3, by a DroppedOut."""
    terms = agreed(comm, vector, threshold, clip, bits)
    ranks = range(1, comm.size)
    channel = WatchedChannel(comm, next_round(comm), ranks, leaves_after=leaves_after)
    total = run_round(channel, terms, vector)
    if total is None:
        return None
    masked = {
        src: np.frombuffer(message, terms.code.word, offset=HEAD.size)
        for src, message in channel.taken
        if HEAD.unpack_from(message)[0] == MASKED
    }
    return Observed(total, masked, terms)
