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
from dlviz.parallel.step.sharded_step import update
from dlviz.parallel.update_rules import Rule


class Ties:
    """The trained parameters that this rank shares with others; `rule` updates those whose first
    rank this is. `parts` are all sub-networks, part i on rank `rank_of[i]`."""

    def __init__(
        self, exchange: Exchange, rule: Rule, parts: Sequence[nn.Module], rank_of: Sequence[int]
    ):
        self._exchange = exchange
        self._rule = rule
        self._rank = exchange.comm.rank
        shared = shared_by_ranks(parts, rank_of)
        self._mine = [(p, ranks) for p, ranks in shared if self._rank in ranks]
        self.parameters = {p for p, _ in self._mine}

    def update(self) -> None:
        """Send gradients to the first rank, which adds them in rank order, updates, and sends the
        values back.

        Cost: for k ranks that share n bytes k-1 messages of n bytes, and k-1 back.
        """
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
        led = [p for p, ranks in self._mine if ranks[0] == self._rank]
        if led:
            update(self._exchange.comm, self._rule, led)
        self.copy()

    def copy(self) -> None:
        """Give all ranks that share a parameter the value of the first of them."""
        for p, (first, *others) in self._mine:
            if self._rank == first:
                for rank in others:
                    self._exchange.send("parameters", p.detach(), rank)
            else:
                p.detach().copy_(self._exchange.receive("parameters", first))
