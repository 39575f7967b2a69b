"""The messages of an image cut between ranks (analysis/tiles.py), as the player draws them: one a
frame, as they arrive, and in each cell of a rank's buffer whose pixel it holds."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from dlviz.analysis.contributions import UNKNOWN
from dlviz.analysis.frames import Frame, message_frames
from dlviz.analysis.tiles import OUTSIDE, CutImage, cut_image
from dlviz.viz.scene import OtherContents


class TiledScene(OtherContents):
    """A Scene whose buffers hold tiles of an image: `counts` are of the owner of a cell's pixel,
    `origins` the number of that pixel."""

    whole = "its tile"

    @property
    def image(self) -> CutImage:
        return self._image

    @cached_property
    def _image(self) -> CutImage:
        image = cut_image(self.trace, self.buffer)
        assert image is not None
        return image

    @cached_property
    def frames(self) -> list[Frame]:
        return message_frames(self.trace, step=self.step, buffer=self.buffer, single=True)

    @cached_property
    def numbers(self) -> dict[int, np.ndarray]:
        """The number of the pixel in each cell of each snapshot."""
        return {place: self.image.numbers(array) for place, array in self.arrays.items()}

    @cached_property
    def counts(self) -> dict[int, np.ndarray]:
        ranks, owners = self.trace.meta["ranks"], self.image.owners()
        found = {}
        for place, numbers in self.numbers.items():
            counts = (owners[np.maximum(numbers, 0)][:, None] == np.arange(ranks)).astype(int)
            counts[numbers == -1] = 0
            counts[numbers < -1] = UNKNOWN
            found[place] = counts
        return found

    @cached_property
    def origins(self) -> dict[int, np.ndarray]:
        return {place: np.maximum(numbers, UNKNOWN) for place, numbers in self.numbers.items()}

    @property
    def decoded(self) -> bool:
        return bool(self.arrays)

    def says(self, origin: int, counts: list[int]) -> str:
        if origin < 0:
            return "holds no pixel" if UNKNOWN in counts else "holds nothing yet"
        owner = f" of rank {counts.index(1)}" if 1 in counts else ""
        return f"holds pixel {self.at(origin)}{owner}"

    def at(self, number: int) -> str:
        """A pixel by row and column."""
        y, x = divmod(number, self.image.shape[1])
        return f"({y}, {x})"

    def carried(self, row: int) -> str:
        """The pixels that a message brought, in words: those that its receiver then had first."""
        numbers = self._brought.get(row, np.zeros(0, int))
        if not len(numbers):
            return ""
        y, x = np.divmod(numbers, self.image.shape[1])
        many = "1 pixel" if len(numbers) == 1 else f"{len(numbers)} pixels"
        return f"{many} ({_range('row', y)}, {_range('column', x)})"

    @cached_property
    def _brought(self) -> dict[int, np.ndarray]:
        found = {}
        for before, frame in zip(self.frames, self.frames[1:], strict=False):
            (row,) = frame.messages
            rank = int(self.trace.messages.dst[row])
            if rank in frame.snapshots:
                old, new = (self.numbers[one.snapshots[rank]] for one in (before, frame))
                found[row] = new[(old != new) & (new >= 0)]
        return found

    def op(self, row: int) -> str:
        return "copy" if len(self._brought.get(row, ())) else super().op(row)

    def sentence(self, row: int) -> str:
        table = self.trace.messages
        ends = f"rank {table.src[row]} → rank {table.dst[row]}"
        never = "" if np.isfinite(table.received[row]) else "never received"
        return ", ".join(filter(None, [ends, self.carried(row), never]))

    def oddities(self, number: int) -> list[str]:
        """Cells with another pixel than belongs there, and in the end those with none."""
        found = []
        for rank, snapshot in self.frames[number].snapshots.items():
            place, numbers = self.image.place(rank), self.numbers[snapshot]
            inside = place != OUTSIDE
            for cell in np.flatnonzero((numbers >= 0) & (numbers != place)).tolist():
                belongs = self.at(int(place[cell])) if inside[cell] else "padding"
                held = self.at(int(numbers[cell]))
                found.append(f"rank {rank} holds pixel {held} where {belongs} belongs")
            empty = int((inside & (numbers == -1)).sum())
            if empty and number == len(self.frames) - 1:
                found.append(f"rank {rank} still has nothing in {empty} cells")
        return found


def _range(name: str, values: np.ndarray) -> str:
    low, high = int(values.min()), int(values.max())
    return f"{name} {low}" if low == high else f"{name}s {low}–{high}"
