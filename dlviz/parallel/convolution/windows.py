"""A kernel that slides over an image: which outputs a rank makes, and which pixels they read."""

from __future__ import annotations

from typing import NamedTuple

from dlviz.cluster import Comm, grid_of
from dlviz.parallel.convolution.boxes import Box, Range, area
from dlviz.sim.convolution import blocks, needed


class Window(NamedTuple):
    """A kernel that slides along one dim of `length` pixels, which is cut over the ranks of `comm`,
    or whole on each of them (None)."""

    comm: Comm | None
    length: int
    kernel: int
    stride: int
    dilation: int
    padding: int

    @property
    def reach(self) -> int:
        """From the first to the last pixel that an output reads."""
        return self.dilation * (self.kernel - 1)

    @property
    def outputs(self) -> int:
        """Pixels of the output, on all ranks together."""
        return (self.length + 2 * self.padding - self.reach - 1) // self.stride + 1

    def blocks(self, length: int) -> list[Range]:
        return blocks(length, 1 if self.comm is None else self.comm.size)

    def reads(self, made: Range) -> Range:
        """The input pixels of these outputs, unclipped; of a whole dim all, without its padding."""
        if self.comm is None:
            return 0, self.length
        return needed(*made, self.kernel, self.stride, self.dilation, self.padding)

    def interior(self, held: Range, made: Range) -> Range:
        """Those of the outputs `made` that read no pixel but those `held`."""
        if self.comm is None:
            return made
        first = -(-(held[0] + self.padding) // self.stride)  # the least j: j s - P >= held[0]
        room = held[1] + self.padding - self.reach - 1
        lo, hi = max(first, made[0]), min(room // self.stride + 1, made[1])
        return (lo, hi) if lo < hi else (made[0], made[0])


def grid(height: Comm | None, width: Comm | None) -> Comm:
    """The ranks that share an image, row by row; where both dims are cut, the first call for the
    two is collective."""
    if height is None or width is None:
        found = height or width
        assert found is not None  # one dim is cut
        return found
    return grid_of(height, width)


def bands(made: Box, interior: Box) -> list[list[Box]]:
    """`made` in pieces, band by band: above the interior, beside it and it itself, below."""
    if not area(interior):
        return [[made]]
    (top, bottom), (left, right) = made
    rows, columns = interior
    above, below = (top, rows[0]), (rows[1], bottom)
    middle = [(rows, (left, columns[0])), interior, (rows, (columns[1], right))]
    bands = [[(above, made[1])], middle, [(below, made[1])]]
    return [[box for box in band if area(box)] for band in bands]
