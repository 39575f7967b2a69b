"""What the pictures of a layer's matrices show, as data and in plain words: no drawing here.

    X   W of up   Y of up     W of down   Y of down     a column is a matrix, a row a rank; a Block
        |0|       |0|         |0|         0 +           is the part of it that a rank holds
        |1|       |1|         |1|         1             a Stage: a product, or a round of messages

Read from a real run: products and collectives of `dlviz.parallel.tensor` bear their place in the
whole matrices (dlviz/analysis/products.py). W is drawn (inputs, outputs), as lectures write
Y = X W; torch keeps its transpose. Dims in front of the last one are one dim, the rows of X and Y.

Backward has no spans of its own that say where they lie: the gradient of a matrix is cut as the
matrix is, and that of X is a sum over the ranks among which Y's columns are cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dlviz.analysis.products import (
    Cells,
    LayerCollective,
    PlacedProduct,
    layer_collectives,
    products,
)
from dlviz.viz import text

if TYPE_CHECKING:
    from dlviz.trace import Trace

COLUMNS = 9  # matrices that fit beside each other
TALLEST = 0.76  # the longest side of a matrix where rows are 1 apart
GUTTER = 0.34  # right of a matrix, for arrows
POWER = 0.4  # a matrix of 16 times as many rows is drawn 3 times as high
SUMS = {"all_reduce", "reduce_scatter"}
AGAIN = "x again"  # what a backward gathers that has no gradient's column


class Block(NamedTuple):
    """The part of a matrix that a rank holds: `rows` and `columns` from one to before another. Of
    `summands` above 1 the matrix is the sum."""

    rows: tuple[int, int]
    columns: tuple[int, int]
    summands: int = 1

    @property
    def shape(self) -> str:
        return " × ".join(f"{high - low:,}" for low, high in (self.rows, self.columns))

    @property
    def words(self) -> str:
        """Which part that is, in words."""
        where = f"rows {_span(self.rows)}, columns {_span(self.columns)}"
        return where + (f"; a summand of {self.summands}" if self.summands > 1 else "")


Held = dict[int, Block]  # by rank


@dataclass
class Column:
    """A matrix: what each of the layers that use it calls it ("X of down"), and its whole shape."""

    names: list[str]
    shape: tuple[int, int]


@dataclass(frozen=True)
class Stage:
    """One picture: what it is called and what happens in it, who holds what of each column after
    it, the columns that it makes, and the messages (rows of `trace.messages`) of one of them."""

    title: str
    words: str
    held: tuple[Held, ...]
    made: tuple[int, ...] = ()
    messages: tuple[int, ...] = ()
    backward: bool = False


@dataclass(frozen=True)
class Blocks:
    """The columns of one Trace and the stages of one pass through its layers: those of one `step`
    of the Trace, and those whose name begins with one of `layers`.

    Raises ValueError, once they are asked for, where there is no product, or more matrices than fit
    beside each other."""

    trace: Trace
    step: int | None = None
    layers: Sequence[str] | None = None

    @property
    def columns(self) -> list[Column]:
        return self._read[0]

    @property
    def stages(self) -> list[Stage]:
        return self._read[1]

    @property
    def ranks(self) -> list[int]:
        return self._read[2]

    @cached_property
    def _read(self) -> tuple[list[Column], list[Stage], list[int]]:
        trace = self.trace if self.step is None else self.trace.only(step=self.step)
        made = _firsts(products(trace), self.layers, lambda each: each.layer)
        sent = _firsts(
            layer_collectives(trace),
            self.layers,
            lambda each: (each.layer, each.direction, each.collective),
        )
        if not made:
            raise ValueError(
                "this run recorded no product of a layer that ranks share: use the layers of "
                "dlviz.parallel.tensor, and a step and layers that there are."
            )
        reader = _Reader(trace, made, sent)
        reader.forward()
        if any(direction == "backward" for _, direction, _ in sent) or self._goes_back(trace):
            reader.backward()
        if len(reader.columns) > COLUMNS:
            raise ValueError(
                f"the run multiplies {len(reader.columns)} matrices, of which {COLUMNS} fit beside "
                f"each other: choose layers, such as layers={[*made][-1:]!r}."
            )
        return reader.columns, reader.stages, reader.ranks

    @staticmethod
    def _goes_back(trace: Trace) -> bool:
        return bool(np.isin(trace.spans.kind, ["backward", "backward_input"]).any())

    def whole(self) -> list[Stage]:
        """The stages with the rounds of a collective as one, in which a message stands for all
        between the same two ranks."""
        joined: list[Stage] = []
        for stage in self.stages:
            if joined and stage.messages and joined[-1].title == stage.title:
                stage = replace(stage, messages=joined.pop().messages + stage.messages)
            joined.append(replace(stage, messages=self._one_each(stage.messages)))
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
        return [0.0, *np.cumsum(steps).tolist()]

    def box(self, place: int, block: Block, row: float) -> tuple[float, float, float, float]:
        """Left, right, top and bottom of a block in column `place` of the row at `row`."""
        (wide, high), (rows, columns) = self.sizes[place], self.columns[place].shape
        left, top = self.lefts[place], row - high / 2
        return (
            left + wide * block.columns[0] / columns,
            left + wide * block.columns[1] / columns,
            top + high * block.rows[0] / rows,
            top + high * block.rows[1] / rows,
        )

    def outline(self, place: int) -> Block:
        rows, columns = self.columns[place].shape
        return Block((0, rows), (0, columns))

    def shared(self, held: Held, rank: int) -> bool:
        """Whether all ranks hold the same block."""
        whole = len(held) == len(self.ranks) > 1 and len({*held.values()}) == 1
        return whole and held[rank].summands == 1

    def lanes(self, stage: Stage) -> list[float]:
        """Where each message's arrow runs: in the gutter of the column that it is of, side by side
        with those that pass the same ranks."""
        if not stage.messages:
            return []
        table, place = self.trace.messages, stage.made[0]
        taken: list[list[tuple[int, int]]] = []
        chosen = []
        for row in stage.messages:
            low, high = sorted((int(table.src[row]), int(table.dst[row])))
            free = (i for i, own in enumerate(taken) if all(h <= low or high <= b for b, h in own))
            lane = next(free, len(taken))
            if lane == len(taken):
                taken.append([])
            taken[lane].append((low, high))
            chosen.append(lane)
        left = self.lefts[place] + self.sizes[place][0]
        return [left + GUTTER * (lane + 1) / (len(taken) + 1) for lane in chosen]


class _Reader:
    """Goes through the events of a pass, and keeps who holds what."""

    def __init__(self, trace: Trace, made: dict, sent: dict):
        self.trace, self.made, self.sent = trace, made, sent
        self.ranks = sorted({rank for own in made.values() for rank in own})
        self.columns: list[Column] = []
        self.stages: list[Stage] = []
        self.held: list[Held] = []
        self.places: dict[str, dict[str, int]] = {}  # of each layer, the columns of x, w and y
        self.going_back = False

    def forward(self) -> None:
        events = [(own[min(own)].time, layer, "") for layer, own in self.made.items()]
        events += [
            (own[min(own)].start, layer, collective)
            for (layer, direction, collective), own in self.sent.items()
            if direction == "forward"
        ]
        for _, layer, collective in sorted(events):
            if layer not in self.made:
                continue  # no product of a layer's
            if layer not in self.places:
                self._enter(layer, gathers=collective == "all_gather")
            if collective:
                which = "x" if self._before(layer, collective) else "y"
                self._communicate(layer, "forward", collective, which)
            else:
                self._multiply(layer)

    def _before(self, layer: str, collective: str) -> bool:
        """Whether the collective comes before the product of its layer."""
        own = self.sent[layer, "forward", collective]
        return all(own[rank].start < self.made[layer][rank].time for rank in own)

    def _enter(self, layer: str, gathers: bool) -> None:
        """Find or make the columns of a layer's matrices."""
        own = self.made[layer]
        x, w, y = ({rank: _block(getattr(own[rank], n)) for rank in own} for n in "xwy")
        w = {rank: _turned(block) for rank, block in w.items()}
        shapes = [_flat(getattr(own[min(own)], name).shape) for name in "xwy"]
        if gathers:
            x = self._rows(shapes[0])
        found = next(
            (
                place
                for place in reversed(range(len(self.columns)))
                if self.columns[place].shape == shapes[0] and self.held[place] == x
            ),
            None,
        )
        if found is None:
            found = self._add(f"X of {layer}", shapes[0], x)
            if not self.stages:
                self.stages.append(self._stage("At the beginning", self._begin(x)))
        elif self.columns[found].names[-1][0] == "Y":
            self.columns[found].names.append(f"X of {layer}")
        self.places[layer] = {
            "x": found,
            "w": self._add(f"W of {layer}", (shapes[1][1], shapes[1][0]), w),
            "y": self._add(f"Y of {layer}", shapes[2], {}),
        }

    @staticmethod
    def _begin(x: Held) -> str:
        alike = len({*x.values()}) == 1
        return (
            "each rank holds "
            + ("the whole X" if alike else "a part of X")
            + (", and of each W a part of its own")
        )

    def _add(self, name: str, shape: tuple[int, int], held: Held) -> int:
        self.columns.append(Column([name], shape))
        self.held.append(held)
        weights = name.startswith("W")
        for i, stage in enumerate(self.stages):  # a weight was there from the beginning
            self.stages[i] = replace(stage, held=(*stage.held, held if weights else {}))
        return len(self.columns) - 1

    def _multiply(self, layer: str) -> None:
        y = {rank: _block(product.y) for rank, product in self.made[layer].items()}
        place = self.places[layer]["y"]
        self.held[place] = y
        (words,) = {_in_words(product) for product in self.made[layer].values()}
        self.stages.append(self._stage(f"Forward: product of {layer}", words, (place,)))

    def backward(self) -> None:
        last = self.places[[*self.places][-1]]["y"]
        held = {rank: block._replace(summands=1) for rank, block in self.held[last].items()}
        self.held, self.going_back = [{} for _ in self.columns], True
        self.held[last] = held
        words = "the gradient of the last Y comes from the loss"
        self.stages.append(self._stage("Backward begins", words, (last,)))
        for layer in reversed([*self.places]):
            own = [name for of, way, name in self.sent if (of, way) == (layer, "backward")]
            if "all_gather" in own:
                self._communicate(layer, "backward", "all_gather", self._gathered(layer))
            self._multiply_back(layer)
            for collective in own:
                if collective in SUMS:
                    which = "w" if self._sharers(layer) > 1 else "x"
                    self._communicate(layer, "backward", collective, which)

    def _gathered(self, layer: str) -> str:
        """What a backward gathers of a layer: dY where Y is a sum over the ranks; else X again, of
        which each rank has kept its own rows (sequence parallelism)."""
        sums = any(product.y.summands > 1 for product in self.made[layer].values())
        return "y" if sums else AGAIN

    def _sharers(self, layer: str) -> int:
        """How many ranks hold the same part of a layer that is cut among the others: heads of keys
        and values that several ranks share. They add up what each knows of the gradient of W."""
        own = self.made[layer]
        parts = len({product.w for product in own.values()})
        return len(own) // parts if parts > 1 else 1

    def _multiply_back(self, layer: str) -> None:
        """dW = Xᵀ dY is cut as W is, dX = dY Wᵀ as X is; the sum runs over Y's columns."""
        places, own, sharers = self.places[layer], self.made[layer], self._sharers(layer)
        cut = len({product.y.start[-1] for product in own.values()}) > 1
        self.held[places["w"]] = {
            rank: _turned(_block(each.w))._replace(summands=sharers) for rank, each in own.items()
        }
        self.held[places["x"]] = {
            rank: _block(product.x)._replace(summands=len(own) if cut else 1)
            for rank, product in own.items()
        }
        summand = "a summand of that " if sharers > 1 else "that "
        words = "each rank has the gradient of its part of X, and that of its part of W"
        if cut:
            words = f"each rank has a summand of the gradient of X, and {summand}of its part of W"
        if not self.held[places["y"]]:  # what lies between layers has no stage of its own
            self.held[places["y"]] = {
                rank: _block(each.y)._replace(summands=1) for rank, each in own.items()
            }
        made = (places["x"], places["w"])
        self.stages.append(self._stage(f"Backward: products of {layer}", words, made))

    def _communicate(self, layer: str, direction: str, collective: str, which: str) -> None:
        """The rounds of a collective; after the last one the column is as it leaves it."""
        again, which = which == AGAIN, "x" if which == AGAIN else which
        place = self.places[layer][which]
        own: dict[int, LayerCollective] = self.sent[layer, direction, collective]
        rows = np.array(sorted(row for each in own.values() for row in each.messages), int)
        name = ("d" if self.going_back and not again else "") + which.upper()
        title = f"{direction.capitalize()}: {collective.replace('_', '-')} of {name} of {layer}"
        rounds = np.unique(self.trace.messages.step[rows]).tolist()
        for number in rounds or [-1]:
            if number == (rounds or [-1])[-1] and not again:
                self.held[place] = self._after(place, collective, which)
            chosen = rows[self.trace.messages.step[rows] == number] if rounds else rows
            words = self._rounds(chosen, rounds.index(number) + 1 if rounds else 0, len(rounds))
            self.stages.append(self._stage(title, words, (place,), tuple(chosen.tolist())))

    def _after(self, place: int, collective: str, which: str) -> Held:
        """What each rank holds of a matrix when a collective of it is over."""
        if collective == "reduce_scatter":
            return self._rows(self.columns[place].shape)
        if which == "w":
            return {rank: own._replace(summands=1) for rank, own in self.held[place].items()}
        rows, columns = self.columns[place].shape
        return {rank: Block((0, rows), (0, columns)) for rank in self.ranks}

    def _rounds(self, rows: np.ndarray, number: int, many: int) -> str:
        if not number:
            return "the backend sent the messages, and the Trace has none"
        sizes = [text.nbytes(size) for size in np.unique(self.trace.messages.nbytes[rows]).tolist()]
        each = "message" if len(rows) == 1 else "messages"
        return f"round {number} of {many}, {len(rows)} {each} of {' or '.join(sizes)}"

    def _rows(self, shape: tuple[int, int]) -> Held:
        """Each rank's part where the rows are cut: of a sequence that the ranks share."""
        ends = np.linspace(0, shape[0], len(self.ranks) + 1).astype(int).tolist()
        return {
            rank: Block((ends[i], ends[i + 1]), (0, shape[1])) for i, rank in enumerate(self.ranks)
        }

    def _stage(
        self,
        title: str,
        words: str,
        made: tuple[int, ...] = (),
        messages: tuple[int, ...] = (),
    ) -> Stage:
        return Stage(title, words, tuple(map(dict, self.held)), made, messages, self.going_back)


def brief(name: str) -> str:
    """The name of a column with the last part of its layer's: "W of up"."""
    letter, _, layer = name.partition(" of ")
    return f"{letter} of {layer.rpartition('.')[2]}"


def _firsts(events: list, layers: Sequence[str] | None, key) -> dict:
    """Of each kind of event the first of each rank, in the order in which they came."""
    found: dict = {}
    for event in events:
        if layers is None or event.layer.startswith(tuple(layers)):
            found.setdefault(key(event), {}).setdefault(event.rank, event)
    return found


def _in_words(product: PlacedProduct) -> str:
    """What each rank multiplies."""
    if product.y.summands > 1:
        return (
            "each rank multiplies its columns of X by its rows of W; Y is the sum of what the "
            "ranks have"
        )
    if product.y.stop[-1] - product.y.start[-1] < product.y.shape[-1]:
        return "each rank multiplies X by its columns of W, and has these columns of Y"
    return "each rank multiplies whole matrices"


def _block(cells: Cells) -> Block:
    """Cells of a tensor as a block of the matrix whose rows are all dims but the last. (Ranks
    share the last one alone, or the first one of a weight.)"""
    if len(cells.shape) == 2:
        rows = cells.start[0], cells.stop[0]
    else:
        rows = 0, prod(cells.shape[:-1])
    return Block(rows, (cells.start[-1], cells.stop[-1]), cells.summands)


def _turned(block: Block) -> Block:
    """The same part of the transpose."""
    return Block(block.columns, block.rows)


def _flat(shape: tuple[int, ...]) -> tuple[int, int]:
    return prod(shape[:-1]), shape[-1]


def _span(ends: tuple[int, int]) -> str:
    return f"{ends[0]:,} to {ends[1] - 1:,}"
