"""What the ranks print, shown line by line with the rank in front, and their progress."""

from __future__ import annotations

import sys
from typing import Any

from tqdm import tqdm

from dlviz.cluster.board import DONE, TOTAL, Board

SHOWN = 100_000  # characters shown live; all is kept


class Output:
    """Keeps all that each rank prints and shows it as it comes, up to SHOWN characters."""

    def __init__(self, ranks: int):
        self._kept: list[list[bytes]] = [[] for _ in range(ranks)]
        self._open = [b""] * ranks
        self._shown = 0

    def add(self, rank: int, data: bytes) -> None:
        self._kept[rank].append(data)
        *lines, self._open[rank] = (self._open[rank] + data).split(b"\n")
        self._show(rank, lines)

    def flush(self) -> None:
        """Show the last lines, which nobody ended."""
        for rank, rest in enumerate(self._open):
            if rest:
                self._show(rank, [rest])
                self._open[rank] = b""

    def texts(self) -> list[str]:
        return [b"".join(parts).decode(errors="replace") for parts in self._kept]

    def _show(self, rank: int, lines: list[bytes]) -> None:
        if not lines or self._shown > SHOWN:
            return
        text = "".join(f"[rank {rank}] {line.decode(errors='replace')}\n" for line in lines)
        self._shown += len(text)
        if self._shown > SHOWN:
            text = text[:SHOWN] + "\n... more was printed: run.output holds all of it\n"
        sys.stdout.write(text)
        sys.stdout.flush()


class Progress:
    """One bar for all ranks that call `comm.progress`; shown when the run takes more than half a second."""

    def __init__(self) -> None:
        self._bar: Any = None

    def begin(self, name: str) -> None:
        if self._bar is None:
            self._bar = tqdm(total=1, desc=name or None, leave=False, delay=0.5, file=sys.stderr)

    def show(self, board: Board, ranks: int) -> None:
        if self._bar is None:
            return
        totals = sum(board.get(rank, TOTAL) for rank in range(ranks))
        self._bar.total = totals
        self._bar.update(sum(board.get(rank, DONE) for rank in range(ranks)) - self._bar.n)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()
