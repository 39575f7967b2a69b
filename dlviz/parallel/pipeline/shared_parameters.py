"""Parameters that stages of several ranks share: an embedding that is the output layer too, say.

    rank 0   embedding   dE of its use --.            .--> their sum
                                          >-- adds --<
    rank 2   output      dE of its use --'            `--> their sum

Each rank has its own copy, with the gradient of its own stages' use. The first of the ranks adds
them in rank order and sends the sum to the others: all take the same update and stay equal.

Source: Narayanan et al., Megatron-LM, SC 2021 (its "embedding group").
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from dlviz.cluster import Comm
from dlviz.parallel.step.hooks import dense


def shared_by_ranks(
    stages: Sequence[nn.Module | None], stage_rank: Sequence[int]
) -> list[tuple[nn.Parameter, list[int]]]:
    """The trained parameters that stages of several ranks share, each with its ranks, ascending.
    Two stages share a parameter if they hold the same object."""
    held: dict[nn.Parameter, set[int]] = {}
    for stage, rank in zip(stages, stage_rank, strict=True):
        for parameter in stage.parameters() if stage is not None else ():
            if parameter.requires_grad:
                held.setdefault(parameter, set()).add(rank)
    return [(parameter, sorted(ranks)) for parameter, ranks in held.items() if len(ranks) > 1]


class SharedParameters:
    """The trained parameters that stages of several ranks share, made before a step. Messages have
    the tags from `first_tag` on."""

    def __init__(
        self,
        comm: Comm,
        stages: Sequence[nn.Module | None],
        stage_rank: Sequence[int],
        first_tag: int,
    ):
        shared = shared_by_ranks(stages, stage_rank)
        self.count = len(shared)
        self.next_tag = first_tag + len(shared)
        self._comm = comm
        self._mine = []
        for tag, (parameter, ranks) in enumerate(shared, first_tag):
            if comm.rank in ranks:
                self._mine.append((parameter, ranks, tag, parameter.grad))
                parameter.grad = None  # that of earlier steps is a sum already

    def add_up(self) -> None:
        """Give each shared parameter the sum of its ranks' gradients of this step.

        Cost: for k ranks that share n bytes 2(k-1) messages of n bytes.
        """
        comm, sends = self._comm, []
        for parameter, (first, *others), tag, before in self._mine:
            gradient = parameter.grad
            own = torch.zeros_like(parameter) if gradient is None else dense(gradient)
            total, other = own.clone(), torch.empty_like(own)  # own is in transit
            if comm.rank == first:
                for rank in others:  # a fixed order, so that the sum repeats to the last bit
                    comm.recv(other, rank, tag)
                    total += other
                sends += [comm.isend(total, rank, tag) for rank in others]
            else:
                sends.append(comm.isend(own, first, tag))
                comm.recv(total, first, tag)
            parameter.grad = total if before is None else before + total
        for send in sends:
            send.wait()
