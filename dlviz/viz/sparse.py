"""The rounds of a sparse all-reduce (collectives/sparse.py), as the player draws them: the entries
that each rank holds at their places in the vector, from the tensor in which it held them.

    rank 0   | |a| | |c| | |b|    3 of 8       a cell without an entry is empty, and not sent
    rank 1   |0|d|0|0|c|e|b|f|    dense        a dense vector has all cells, those with 0 too

A run has this Scene where the vector was watched: `comm.watch(vector)` before the call.
"""

from __future__ import annotations

from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dlviz.analysis.contributions import UNKNOWN
from dlviz.viz.scene import OtherContents, held_by

if TYPE_CHECKING:
    from dlviz.analysis.frames import Frame

SHOWN = 128  # cells of a long vector: the first
EMPTY = -2  # the origin of a cell that has no entry
FEW = 8  # entries of a cell, of as many ranks, that are distinguished in their sum


class SparseVector(NamedTuple):
    """What a rank holds: `cells` (SHOWN at most; NaN without an entry), and of how many elements
    (of the part that it has, while the vector is split) how many are entries; all if `dense`."""

    cells: np.ndarray
    nnz: int
    length: int
    dense: bool


class SparseScene(OtherContents):
    """A Scene whose buffers hold the vectors of a sparse all-reduce: `arrays` are their first cells
    and `counts` say whose entries a cell is the sum of, found by trying all sums of those that the
    ranks had there at the start."""

    whole = "its vector"

    @cached_property
    def vectors(self) -> dict[int, SparseVector]:
        """What each snapshot holds."""
        shots = {place for frame in self.frames for place in frame.snapshots.values()}
        found = {}
        for place in sorted(shots):
            shot = self.trace.buffers[place]
            found[place] = self._vector(shot["array"], self._step(shot["rank"], shot["wall"])[1])
        return found

    @cached_property
    def _steps(self) -> dict[int, list[tuple[float, str, dict[str, Any]]]]:
        """Of each rank when it began each step, its name, and what it held."""
        spans, found = self.trace.spans, {}
        for row in np.argsort(spans.wall_start, kind="stable").tolist():
            if spans.kind[row] == "phase" and is_of(spans.fields[row], self.buffer):
                own = float(spans.wall_start[row]), spans.name[row], spans.fields[row]
                found.setdefault(int(spans["rank"][row]), []).append(own)
        return found

    def _step(self, rank: int, wall: float) -> tuple[str, dict[str, Any] | None]:
        """The step in which a rank is at that time."""
        past = [own[1:] for own in self._steps.get(rank, []) if own[0] <= wall]
        return past[-1] if past else ("", None)

    def _vector(self, held: np.ndarray, fields: dict[str, Any] | None) -> SparseVector:
        cells = np.full(min(self._whole_length, SHOWN), np.nan)
        dense = bool(fields and fields["dense"])
        if held.dtype.kind == "f":
            index = np.arange(len(held)) if dense else np.flatnonzero(held)
            values = held[index]
        else:  # rows of int32: the bits of the values, then the indices
            index = held.reshape(self._rows, -1)[-1]
            values = held[: -len(index) or None].view(self._dtype)[: len(index)]
        length = self._whole_length if fields is None else fields["length"]
        near = (index := index + (fields or {}).get("first", 0)) < len(cells)
        cells[index[near]] = values[near]
        return SparseVector(cells, len(index), length, dense)

    @cached_property
    def _first(self) -> dict[int, np.ndarray]:
        """Each rank's own vector, before the call."""
        start = self.frames[0].snapshots
        return {rank: self.trace.buffers[place]["array"] for rank, place in start.items()}

    @property
    def _dtype(self) -> np.dtype:
        return next(iter(self._first.values())).dtype

    @property
    def _rows(self) -> int:
        return self._dtype.itemsize // 4 + 1

    @property
    def _whole_length(self) -> int:
        return len(next(iter(self._first.values())))

    @cached_property
    def arrays(self) -> dict[int, np.ndarray]:
        return {place: vector.cells for place, vector in self.vectors.items()}

    @cached_property
    def counts(self) -> dict[int, np.ndarray]:
        known: dict[tuple[int, float], list[int]] = {}
        found = {}
        for place, cells in self.arrays.items():
            counts = np.zeros((len(cells), self.trace.meta["ranks"]), int)
            for cell, value in enumerate(cells.tolist()):
                if value == value:
                    key = cell, value
                    if key not in known:
                        known[key] = self._whose(*key)
                    counts[cell] = known[key]
            found[place] = counts
        return found

    def _whose(self, cell: int, value: float) -> list[int]:
        """How often each rank's entry is in a value; unknown unless one sum alone of entries is
        it."""
        ranks = self.trace.meta["ranks"]
        own = {rank: float(array[cell]) for rank, array in self._first.items() if array[cell]}
        eps = 8 * float(np.finfo(self._dtype).eps)
        sums = [
            some
            for many in range(len(own) + 1 if len(own) <= FEW else 0)
            for some in combinations(own, many)
            if abs(sum(own[rank] for rank in some) - value) <= eps * sum(map(abs, own.values()))
        ]
        if len(sums) != 1:
            return [UNKNOWN] * ranks
        return [int(rank in sums[0]) for rank in range(ranks)]

    @cached_property
    def origins(self) -> dict[int, np.ndarray]:
        return {
            place: np.where(np.isnan(cells), EMPTY, UNKNOWN) for place, cells in self.arrays.items()
        }

    @property
    def decoded(self) -> bool:
        return bool(self.arrays)

    @property
    def caveats(self) -> list[str]:
        more = self._whole_length - SHOWN
        cut = f"The first {SHOWN} of {self._whole_length} cells are drawn."
        return [*super().caveats, *([cut] if more > 0 else [])]

    def cell(self, value: float) -> str:
        return "" if value != value else super().cell(value)

    def says(self, origin: int, counts: list[int]) -> str:
        if origin == EMPTY:
            return "holds no entry"
        if not any(counts):
            return "holds 0, as a dense vector does"
        return held_by(counts, UNKNOWN, 1)

    def note(self, place: int) -> tuple[str, bool]:
        nnz, length, dense = self.vectors[place][1:]
        return ("dense" if dense else f"{nnz} of {length}"), dense

    def carried(self, row: int) -> str:
        """What a message brought, in words: pairs, values of a dense vector, or their code."""
        nbytes, size = int(self.trace.messages.nbytes[row]), self._dtype.itemsize
        name, fields = self._sending(row)
        if not (fields and fields["dense"]):
            return _many(nbytes // (4 + size), "pair")
        coded = name == "gather" and nbytes != fields["length"] * size
        return f"a code of {nbytes} bytes" if coded else _many(nbytes // size, "value")

    def op(self, row: int) -> str:
        return "copy" if self._sending(row)[0] in ("gather", "unfold") else "merge"

    def _sending(self, row: int) -> tuple[str, dict[str, Any] | None]:
        """The step in which a message was sent."""
        table = self.trace.messages
        return self._step(int(table.src[row]), float(table.wall_sent[row]))

    def summary(self, frame: Frame) -> str:
        held = [self.vectors[place] for place in frame.snapshots.values()]
        nnz = sorted(each.nnz for each in held if not each.dense)
        low, high = (nnz[0], nnz[-1]) if nnz else (0, 0)
        pairs = f"{low}–{high} entries" if low < high else _many(low, "entry")
        words = [pairs] * bool(nnz) + ["dense"] * any(each.dense for each in held)
        return ", ".join(filter(None, [super().summary(frame), " and ".join(words)]))

    def sentence(self, row: int) -> str:
        return f"{super().sentence(row)}: {self.carried(row)}"

    def oddities(self, number: int) -> list[str]:
        """Which ranks turn dense in a frame, and why."""
        before, after = (self.frames[at].snapshots for at in (max(number - 1, 0), number))
        turned = [r for r in after if self.vectors[after[r]].dense > self.vectors[before[r]].dense]
        if not turned:
            return []
        size = self._dtype.itemsize
        least = self._whole_length * size // (size + 4) + 1
        who = f"rank {turned[0]} turns" if len(turned) == 1 else f"{_ranks(turned)} turn"
        return [
            f"{who} dense: {least} or more pairs of {4 + size} bytes are more than "
            f"{self._whole_length} values of {size}"
        ]


def is_of(fields: Any, buffer: str | None) -> bool:
    """Whether the fields of a span say what a rank holds in the watched `buffer` (None: any)."""
    name = (fields or {}).get("buffer")
    return name is not None and "nnz" in fields and buffer in (None, name)


def _many(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s".replace("ys", "ies")


def _ranks(ranks: list[int]) -> str:
    *others, last = map(str, ranks)
    return f"ranks {', '.join(others)} and {last}"
