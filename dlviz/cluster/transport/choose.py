"""Which transport the ranks of a run take: the fastest that all of them can use."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from typing import Any

import torch

from dlviz.cluster.control.board import PID, PROBE, UNREAD, Board
from dlviz.cluster.parent.start import on_disk
from dlviz.cluster.transport import Transport
from dlviz.cluster.transport.files import Files
from dlviz.cluster.transport.gloo import Gloo
from dlviz.cluster.transport.memory import Memory

ASKED = "DLVIZ_TRANSPORT"  # in the environment: memory, files or gloo
KNOWN = 0x646C76697A  # what a rank finds in its neighbour's memory
ENOUGH = 512 * 2**20  # bytes free in shared memory, for files there


def choose(folder: str, rank: int, board: Board, group: Any, sync: Callable[[], None]) -> Transport:
    """Called by all ranks; `sync` returns when all have called it. ValueError for an unknown
    transport."""
    asked = os.environ.get(ASKED, "memory")
    if asked not in ("memory", "files", "gloo"):
        raise ValueError(f"{ASKED}={asked!r} is no transport: use memory, files or gloo.")
    if asked == "memory":
        memory = _try_memory(rank, board, sync)
        if memory is not None:
            return memory
    if asked != "gloo":
        return Files(place_of_files(folder), rank)
    return Gloo(group)


def _try_memory(rank: int, board: Board, sync: Callable[[], None]) -> Memory | None:
    """Every rank reads eight bytes of its neighbour's memory; None where one of them may not."""
    memory = Memory(lambda peer: board.get(peer, PID)) if sys.platform == "linux" else None
    known, found = torch.tensor([KNOWN]), torch.zeros(1, dtype=torch.int64)
    board.put(rank, PID, os.getpid())
    board.put(rank, PROBE, known.data_ptr())
    sync()
    neighbour = (rank + 1) % board.ranks
    try:
        if memory is not None:
            memory.pull(neighbour, 0, board.get(neighbour, PROBE), found)
    except OSError:
        pass
    board.put(rank, UNREAD, int(found.item() != KNOWN))
    sync()
    refused = any(board.get(each, UNREAD) for each in range(board.ranks))
    return None if refused else memory


def place_of_files(folder: str) -> str:
    """The run's folder, or one beside it on the disk where shared memory is small."""
    if shutil.disk_usage(folder).free >= ENOUGH:
        return folder
    os.makedirs(on_disk(folder), mode=0o700, exist_ok=True)
    return on_disk(folder)
