"""The control of ranks that are all on one host: pipes and memory that they share."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from typing import Any

import torch

from dlviz.cluster.control.board import Board
from dlviz.cluster.control.group import Group
from dlviz.cluster.control.matching import Matching
from dlviz.cluster.control.pipes import Pipes
from dlviz.cluster.control.waiting import Waiting
from dlviz.cluster.transport import Transport


class OneHost:
    host = ""
    threads: frozenset[int] = frozenset()

    def __init__(self, folder: str, rank: int, board: Board):
        self.pipes = Pipes(folder, rank, board.ranks)
        self.board = board
        self._rank = rank

    def waiting(self, matching: Matching) -> Waiting:
        return Waiting(self._rank, self.board, self.pipes, matching)

    def group(
        self,
        path: str,
        members: tuple[int, ...],
        waiting: Waiting,
        transport: Transport,
        left: deque[torch.Tensor],
    ) -> Group:
        return Group(path, members, self._rank, waiting, transport, left)

    def share_epoch(self, gloo: Any) -> None:
        """All ranks share rank 0's board."""

    def reaches(self, members: Collection[int]) -> bool:
        return True

    def host_of(self, member: int) -> int:
        return 0
