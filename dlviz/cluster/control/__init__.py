"""Facts between ranks: what was sent and taken, who waits for what, which collectives were called,
when the run began. Not a byte of a tensor, unless it is as short as what is said about it.

    envelopes, refusals, losses      pipes.py       collective calls, meetings    group.py
    states, ticks, the epoch         board.py       posted waits                  waiting.py
    receives and their messages      matching.py

A control can be put beside `OneHost` (one_host.py) by answering what `Control` asks; that of
several hosts is in hosts/ranks.py.
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
    """Of one rank. On `board` are its host's states, ticks and epoch; `host` is the name of that
    host, "" where there is but one; `threads` are those that the control has started."""

    board: Board
    host: str
    threads: frozenset[int]

    @property
    def pipes(self) -> Pipes:
        """They carry envelopes to other ranks, and bring those to this one."""
        ...

    def waiting(self, matching: Matching) -> Waiting:
        """What posts the waits of this rank's threads, and ticks off messages of others."""
        ...

    def group(
        self,
        path: str,
        members: tuple[int, ...],
        waiting: Waiting,
        transport: Transport,
        left: deque[torch.Tensor],
    ) -> Group:
        """A group of ranks, which show each other their calls in that file."""
        ...

    def share_epoch(self, gloo: Any) -> None:
        """Have every rank find on its board when the run's clock was 0; rank 0's has it. All ranks,
        of which `gloo` is a group, call it."""

    def reaches(self, members: Collection[int]) -> bool:
        """Whether all these ranks are on this host."""
        ...

    def host_of(self, member: int) -> int:
        """The number of a rank's host."""
        ...
