"""What ranks share about their communication: messages sent and taken, waits, collective calls, the
run's start. No tensor data, except messages short enough to follow their header.

    headers, refusals, losses        pipes.py       collective calls, rendezvous  group.py
    states, completions, the epoch   board.py       registered waits              waiting.py
    receives and their messages      matching.py

To add a control beside `OneHost` (one_host.py), implement `Control`; that of several hosts is in
hosts/ranks.py.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from typing import Any, Protocol

import torch

from dlviz.cluster.control.board import Board
from dlviz.cluster.control.group import Group
from dlviz.cluster.control.matching import Matching
from dlviz.cluster.control.pipes import Pipes
from dlviz.cluster.control.waiting import Waiting
from dlviz.cluster.transport import Transport


class Control(Protocol):
    """Of one rank. `board` has its host's states, completions and epoch; `host` is the host's name,
    "" on a single host; `threads` are those that the control has started."""

    board: Board
    host: str
    threads: frozenset[int]

    @property
    def pipes(self) -> Pipes:
        """They carry message headers to other ranks, and deliver those for this one."""
        ...

    def waiting(self, matching: Matching) -> Waiting:
        """What registers the waits of this rank's threads, and completes messages of others."""
        ...

    def group(
        self,
        path: str,
        members: tuple[int, ...],
        waiting: Waiting,
        transport: Transport,
        left: deque[torch.Tensor],
    ) -> Group:
        """A group of ranks, which publish their calls in that file."""
        ...

    def share_epoch(self, gloo: Any) -> None:
        """Copy the run's epoch from rank 0's board to every host's. All ranks, of which `gloo` is a
        group, call it."""

    def reaches(self, members: Collection[int]) -> bool:
        """Whether all these ranks are on this host."""
        ...

    def host_of(self, member: int) -> int:
        """The number of a rank's host."""
        ...
