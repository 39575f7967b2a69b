"""Parameters that sub-networks on several ranks share: as in the lecture, the first rank updates.

    rank 0   gradient of its use --.           .-- update -- new value --.
                                    >-- adds --                           >-- both have it
    rank 2   gradient of its use --'                                    --'

In pipelines (pipeline/shared_parameters.py) the sum goes back and every rank takes the same update.
Here the value goes back: as many bytes, and only one rank has the rule's state.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from dlviz.parallel.model.part_messages import Exchange
from dlviz.parallel.pipeline.shared_parameters import shared_by_ranks
from dlviz.parallel.step.hooks import dense


class Ties:
    """The trained parameters that this rank shares with others; those of an earlier rank are
    `copied`. `parts` are all sub-networks, part i on rank `rank_of[i]`.

    Cost per step: for k ranks that share n bytes k-1 messages of n bytes, and k-1 back.
    """

    def __init__(self, exchange: Exchange, parts: Sequence[nn.Module], rank_of: Sequence[int]):
        self._exchange = exchange
        self._rank = exchange.comm.rank
        shared = shared_by_ranks(parts, rank_of)
        self._mine = [(p, ranks) for p, ranks in shared if self._rank in ranks]
        self.copied = {p for p, ranks in self._mine if ranks[0] != self._rank}

    def add_up(self) -> None:
        """Send gradients to the first rank, which adds them in rank order."""
        for p, (first, *others) in self._mine:
            if self._rank != first:
                nothing = p.new_empty(0)  # p was not used: not the same as a gradient of zeros
                own = nothing if p.grad is None else dense(p.grad)
                self._exchange.send("parameter_gradients", own, first)
                continue
            for rank in others:
                other = self._exchange.receive("parameter_gradients", rank)
                if other.shape == p.shape:
                    p.grad = other if p.grad is None else p.grad + other

    def copy(self) -> None:
        """Give all ranks that share a parameter the value of the first of them."""
        for p, (first, *others) in self._mine:
            if self._rank == first:
                for rank in others:
                    self._exchange.send("parameters", p.detach(), rank)
            else:
                p.detach().copy_(self._exchange.receive("parameters", first))
