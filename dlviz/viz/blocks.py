"""The pictures of a layer's matrices as data, without drawing.

    X   W of up   Y of up     W of down   Y of down     a column is a matrix, a row a rank; a block
        |0|       |0|         |0|         0 +           is the part of it that a rank holds
        |1|       |1|         |1|         1             a moment: a product, or a round of messages

passes.py reads who holds what, of SUMMA panels.py; this module places it in a picture.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np

from dlviz.analysis.products import layer_collectives, panel_products, products
from dlviz.viz.panels import PanelPass
from dlviz.viz.passes import Column, Held, MatrixBlock, Moment, Pass

if TYPE_CHECKING:
    from dlviz.trace import Trace

COLUMNS = 9  # matrices that fit side by side
TALLEST = 0.76  # the longest side of a matrix where rows are 1 apart
GUTTER = 0.34  # right of a matrix, for arrows
POWER = 0.4  # a matrix of 16 times as many rows is drawn 3 times as high


@dataclass(frozen=True)
class Blocks:
    """The columns of one Trace and the moments of one pass through its layers: those of `step`, and
    those whose name begins with one of `layers`.

    Reading them raises ValueError where there is no product, or more matrices than fit side by
    side."""

    trace: Trace
    step: int | None = None
    layers: Sequence[str] | None = None

    @property
    def columns(self) -> list[Column]:
        return self._read[0]

    @property
    def moments(self) -> list[Moment]:
        return self._read[1]

    @property
    def ranks(self) -> list[int]:
        return self._read[2]

    @cached_property
    def _read(self) -> tuple[list[Column], list[Moment], list[int]]:
        trace = self.trace if self.step is None else self.trace.only(step=self.step)
        made = _firsts(products(trace), self.layers, lambda each: each.layer)
        sent = _firsts(
            layer_collectives(trace),
            self.layers,
            lambda each: (each.layer, each.direction, each.collective),
        )
        if not made and self.layers is None and (multiplied := panel_products(trace)):
            panels = PanelPass(trace, multiplied)
            return panels.columns, panels.moments, panels.ranks
        if not made:
            raise ValueError(
                "this run recorded no product of a layer that ranks share: use the layers of "
                "dlviz.parallel.tensor, or summa.multiply, and a step and layers of the run."
            )
        reader = Pass(trace, made, sent)
        reader.forward()
        if any(direction == "backward" for _, direction, _ in sent) or self._goes_back(trace):
            reader.backward()
        if len(reader.columns) > COLUMNS:
            raise ValueError(
                f"the run multiplies {len(reader.columns)} matrices, of which {COLUMNS} fit side "
                f"by side: choose layers, such as layers={[*made][-1:]!r}."
            )
        return reader.columns, reader.moments, reader.ranks

    @staticmethod
    def _goes_back(trace: Trace) -> bool:
        return bool(np.isin(trace.spans.kind, ["backward", "backward_input"]).any())

    def whole(self) -> list[Moment]:
        """The moments, with all rounds of a collective as one moment and all messages between two
        ranks as one message."""
        joined: list[Moment] = []
        for moment in self.moments:
            if joined and moment.messages and joined[-1].title == moment.title:
                moment = replace(moment, messages=joined.pop().messages + moment.messages)
            joined.append(replace(moment, messages=self._one_each(moment.messages)))
        return joined

    def _one_each(self, messages: tuple[int, ...]) -> tuple[int, ...]:
        table = self.trace.messages
        return tuple({(table.src[row], table.dst[row]): row for row in messages}.values())

    @cached_property
    def sizes(self) -> list[tuple[float, float]]:
        """How wide and how high each column's matrix is drawn."""
        longest = max(side for column in self.columns for side in column.shape)
        scale = [TALLEST * (np.array(c.shape) / longest) ** POWER for c in self.columns]
        return [(1.2 * float(wide), float(high)) for high, wide in scale]

    @cached_property
    def lefts(self) -> list[float]:
        """Where each column begins, and where the last one's gutter ends."""
        steps = [wide + GUTTER for wide, _ in self.sizes]
        return [*accumulate(steps, initial=0.0)]

    def box(self, place: int, block: MatrixBlock, row: float) -> tuple[float, float, float, float]:
        """Left, right, top and bottom of a block in column `place` of the row at `row`."""
        (wide, high), (rows, columns) = self.sizes[place], self.columns[place].shape
        left, top = self.lefts[place], row - high / 2
        return (
            left + wide * block.columns[0] / columns,
            left + wide * block.columns[1] / columns,
            top + high * block.rows[0] / rows,
            top + high * block.rows[1] / rows,
        )

    def outline(self, place: int) -> MatrixBlock:
        rows, columns = self.columns[place].shape
        return MatrixBlock((0, rows), (0, columns))

    def shared(self, held: Held, rank: int) -> bool:
        """Whether all ranks hold the same block."""
        whole = len(held) == len(self.ranks) > 1 and len({*held.values()}) == 1
        return whole and held[rank].summands == 1

    def lanes(self, moment: Moment) -> list[float]:
        """Where each message's arrow runs: in the gutter of its column, side by side with those
        that pass the same ranks, short ones first, whatever order they came in."""
        if not moment.messages:
            return []
        table, place = self.trace.messages, moment.made[0]
        ends = {row: (int(table.src[row]), int(table.dst[row])) for row in moment.messages}
        taken: list[list[tuple[int, int]]] = []
        chosen = {}
        for row in sorted(ends, key=lambda row: (abs(ends[row][0] - ends[row][1]), ends[row])):
            low, high = sorted(ends[row])
            free = (i for i, own in enumerate(taken) if all(h <= low or high <= b for b, h in own))
            lane = next(free, len(taken))
            if lane == len(taken):
                taken.append([])
            taken[lane].append((low, high))
            chosen[row] = lane
        left = self.lefts[place] + self.sizes[place][0]
        return [left + GUTTER * (chosen[row] + 1) / (len(taken) + 1) for row in moment.messages]


def brief(name: str) -> str:
    """The name of a column with the last part of its layer's name: "W of up"."""
    symbol, of, layer = name.partition(" of ")
    return f"{symbol}{of}{layer.rpartition('.')[2]}"


def _firsts(events: list, layers: Sequence[str] | None, key) -> dict:
    """The first event of each kind and rank, in the order they came in."""
    found: dict = {}
    for event in events:
        if layers is None or event.layer.startswith(tuple(layers)):
            found.setdefault(key(event), {}).setdefault(event.rank, event)
    return found
