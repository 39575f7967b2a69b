"""An image cut between ranks: which pixels the cells of each rank's watched buffer hold.

    rank 0  | 1  2 |  3        pixel (y, x) of an image with W columns has the value 1 + y W + x, so
            | 5  6 |  7        that a cell says whose pixel it holds; 0: nothing has arrived, or the
             9 10    11        cell is outside of the image

A rank says in the fields of a span where its buffer lies: `buffer`, its name, `own`, the rank's
block, and `held`, all that the buffer has room for, each as "[0:2, 0:2] of (4, 4)": rows, columns,
the whole image. `held` may reach beyond the image, where it is padded.
`dlviz.parallel.convolution.picture` makes such runs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dlviz.analysis.products import Cells, cells
from dlviz.trace import Trace

Box = tuple[int, int, int, int]  # rows from, to; columns from, to
OUTSIDE = -1  # of the image


@dataclass(frozen=True)
class CutImage:
    """An image of `shape` (rows, columns); by rank, the block that it owns and what its buffer has
    room for."""

    shape: tuple[int, int]
    own: dict[int, Box]
    held: dict[int, Box]

    def place(self, rank: int) -> np.ndarray:
        """The number of the pixel that belongs into each cell of a rank's buffer, y W + x; -1
        outside of the image."""
        top, bottom, left, right = self.held[rank]
        y, x = np.mgrid[top:bottom, left:right].reshape(2, -1)
        inside = (0 <= y) & (y < self.shape[0]) & (0 <= x) & (x < self.shape[1])
        return np.where(inside, y * self.shape[1] + x, OUTSIDE)

    def apart(self, gap: float) -> dict[int, tuple[float, float]]:
        """How far down and to the right each tile is moved, in cells, so that none covers another
        and a `gap` is between them."""
        found = {rank: [] for rank in self.own}
        for side in (0, 2):
            pairs = [(own, self.held[rank]) for rank, own in self.own.items()]
            beyond = max(own[side] - held[side] for own, held in pairs)
            beyond += max(held[side + 1] - own[side + 1] for own, held in pairs)
            begins = sorted({own[side] for own, _ in pairs})
            for rank, own in self.own.items():
                found[rank].append(begins.index(own[side]) * (beyond + gap))
        return {rank: (down, across) for rank, (down, across) in found.items()}

    def owners(self) -> np.ndarray:
        """The rank that owns each pixel, (rows W,); -1 where none does."""
        owner = np.full(self.shape, -1)
        for rank, (top, bottom, left, right) in self.own.items():
            owner[top:bottom, left:right] = rank
        return owner.reshape(-1)

    def numbers(self, array: np.ndarray) -> np.ndarray:
        """The number of the pixel in each cell: -1 for a cell that holds 0, -2 for one that holds
        anything but a pixel."""
        value = np.nan_to_num(array.astype(float), nan=-1.0)
        known = (value == np.rint(value)) & (value >= 0) & (value <= self.shape[0] * self.shape[1])
        return np.where(known, value - 1, -2).astype(int)


def cut_image(trace: Trace, buffer: str | None = None) -> CutImage | None:
    """The image of which the watched buffer `buffer` (by default the first) holds tiles; None where
    no rank says where its buffer lies. Raises ValueError for a buffer of another size than said."""
    names = [one["name"] for one in trace.buffers]
    name = names[0] if buffer is None and names else buffer
    fields = {
        int(rank): own for rank, own in zip(trace.spans.rank, trace.spans.fields, strict=True)
        if own and own.get("buffer") == name and "held" in own
    }  # fmt: skip
    if not fields:
        return None
    own, held = (
        {rank: cells(one[what]) for rank, one in fields.items()} for what in ("own", "held")
    )
    height, width = next(iter(own.values())).shape
    boxes = ({rank: _box(one) for rank, one in each.items()} for each in (own, held))
    image = CutImage((height, width), *boxes)
    for one in trace.buffers:
        rank, size = one["rank"], len(one["array"])
        if one["name"] == name and rank in held and size != len(image.place(rank)):
            raise ValueError(
                f"the buffer {name!r} of rank {rank} has {size} cells, and its span says that it "
                f"holds {fields[rank]['held']}: watch one image of one channel."
            )
    return image


def _box(one: Cells) -> Box:
    (top, left), (bottom, right) = one.start, one.stop
    return top, bottom, left, right
