"""What the ranks print, shown line by line with the rank in front, and their progress."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from tqdm import tqdm

from dlviz.cluster.control.board import DONE, TOTAL, Board
from dlviz.cluster.parent.remote import Remote

SHOWN = 100_000  # characters shown live; all are stored


class Output:
    """Stores all that each rank prints and shows it live, up to SHOWN characters."""

    def __init__(self, ranks: int):
        self._printed: list[list[bytes]] = [[] for _ in range(ranks)]
        self._open = [b""] * ranks  # the line that each has begun
        self._room = SHOWN  # characters that may still be shown; -1: no more is

    def add(self, rank: int, data: bytes) -> None:
        self._printed[rank].append(data)
        if self._room >= 0:
            *lines, self._open[rank] = (self._open[rank] + data).split(b"\n")
            if len(self._open[rank]) > self._room:  # too much to wait for its end
                lines.append(self._open[rank])
            self._show(rank, lines)

    def flush(self) -> None:
        """Show the last lines, which no newline ends."""
        for rank, rest in enumerate(self._open):
            if rest:
                self._open[rank] = b""
                self._show(rank, [rest])

    def texts(self) -> list[str]:
        return [b"".join(parts).decode(errors="replace") for parts in self._printed]

    def _show(self, rank: int, lines: list[bytes]) -> None:
        if not lines or self._room < 0:
            return
        text = "".join(f"[rank {rank}] {line.decode(errors='replace')}\n" for line in lines)
        if len(text) > self._room:
            text = text[: self._room] + "\n... more was printed: run.output holds all of it\n"
            self._room = -1
        else:
            self._room -= len(text)
        _write(text)


def _write(text: str) -> None:
    stream = sys.stdout
    if stream is None:  # a program without a console
        return
    encoding = getattr(stream, "encoding", None) or "utf-8"
    stream.write(text.encode(encoding, errors="backslashreplace").decode(encoding))
    stream.flush()


class Progress:
    """One bar for all ranks that call `comm.progress`, then one for results that are large; shown
    when what it counts takes more than half a second."""

    def __init__(self) -> None:
        self._bar: Any = None
        self._fetching: Any = None

    def starting(self, started: int, ranks: int) -> None:
        """So many ranks have been started: nothing to show yet."""

    def show(self, board: Board, ranks: Sequence[Remote]) -> None:
        name = _name(ranks)
        if name is None:
            return
        if self._bar is None:
            self._bar = _bar(1, desc=name or None)
        self._bar.total = sum(board.get(rank.number, TOTAL) for rank in ranks)
        self._bar.update(sum(board.get(rank.number, DONE) for rank in ranks) - self._bar.n)

    def fetching(self, done: int, total: int) -> None:
        """So many bytes of the ranks' results have come."""
        if self._fetching is None:
            self.close()  # the ranks have finished
            options = {"desc": "results", "unit": "B", "unit_scale": True}
            self._bar = self._fetching = _bar(total, **options)
        self._fetching.update(done - self._fetching.n)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()


class ProgressCallback(Progress):
    """Calls a function instead, many times a second, with the name of the bar, how far the last
    rank with a bar is, and of how much; while ranks start, with None, how many have been started,
    and of how many; while large results come, with "MB of results", how many have come, and of how
    many. What the function raises ends the run."""

    def __init__(self, callback: Callable[[str | None, int, int], None]):
        super().__init__()
        self._callback = callback

    def starting(self, started: int, ranks: int) -> None:
        self._callback(None, started, ranks)

    def show(self, board: Board, ranks: Sequence[Remote]) -> None:
        name = _name(ranks)
        if name is None:
            self.starting(len(ranks), len(ranks))
        else:
            totals = [board.get(rank.number, TOTAL) for rank in ranks]
            done = [board.get(r.number, DONE) for r, t in zip(ranks, totals, strict=True) if t]
            self._callback(name, min(done, default=0), max(totals))

    def fetching(self, done: int, total: int) -> None:
        self._callback("MB of results", done // 10**6, total // 10**6)


def _bar(total: int, **options: Any) -> Any:
    file = DisplayedLine() if _in_notebook() else sys.stderr
    return tqdm(total=total, leave=False, delay=0.5, file=file, **options)


class DisplayedLine:
    """One line of a notebook's output, which each write replaces: on stderr a bar that has gone
    leaves an empty red band."""

    encoding = "utf-8"

    def __init__(self) -> None:
        self._handle: Any = None

    def write(self, text: str) -> None:
        from IPython.display import display

        line = text.replace("\r", "").strip()
        content = {"text/plain": line} if line else {"text/html": ""}
        if self._handle is not None:
            self._handle.update(content, raw=True)
        elif line:
            self._handle = display(content, raw=True, display_id=True)

    def flush(self) -> None:
        """Each write is shown immediately."""


def _in_notebook() -> bool:
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return hasattr(shell, "kernel")


def _name(ranks: Sequence[Remote]) -> str | None:
    """The name of the ranks' bar; None where no rank has begun one."""
    return next((rank.progress for rank in ranks if rank.progress is not None), None)
