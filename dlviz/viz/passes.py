"""One pass through layers that ranks share: who holds which block of which matrix after each
product and each round of messages, read from a run.

Products and collectives of `dlviz.parallel.tensor` record their place in the whole matrices
(dlviz/analysis/products.py). W is (inputs, outputs), as lectures write Y = X W; torch stores its
transpose. All dims before the last are one dim, the rows of X and Y.

Spans of the backward record no place: the gradient of a matrix is cut like the matrix, and the
gradient of X is a sum over the ranks among which Y's columns are cut.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dlviz.analysis.products import Cells, LayerCollective, PlacedProduct
from dlviz.viz.words import text

if TYPE_CHECKING:
    from dlviz.trace import Trace

SUMS = {"all_reduce", "reduce_scatter"}
AGAIN = "x again"  # a backward gathers X once more: the column of its gradient stays as it is


class MatrixBlock(NamedTuple):
    """The part of a matrix that a rank holds: half-open ranges of `rows` and `columns`. The matrix
    is the sum of `summands` partial sums."""

    rows: tuple[int, int]
    columns: tuple[int, int]
    summands: int = 1

    @property
    def shape(self) -> str:
        return " × ".join(f"{high - low:,}" for low, high in (self.rows, self.columns))

    @property
    def words(self) -> str:
        """The part in words."""
        where = f"rows {_span(self.rows)}, columns {_span(self.columns)}"
        return where + (f"; a summand of {self.summands}" if self.summands > 1 else "")


Held = dict[int, MatrixBlock]  # by rank


@dataclass
class Column:
    """A matrix: its name in each of its layers ("X of down"), and its whole shape."""

    names: list[str]
    shape: tuple[int, int]


@dataclass(frozen=True)
class Moment:
    """One picture: its title and what happens in it, who holds what of each column after it, the
    columns it makes, and the messages (rows of `trace.messages`) of one of them."""

    title: str
    words: str
    held: tuple[Held, ...]
    made: tuple[int, ...] = ()
    messages: tuple[int, ...] = ()
    backward: bool = False


class Pass:
    """Goes through the events of one pass through layers and tracks who holds what: the products
    `made`, by layer and rank, and the collectives `sent`, by layer, direction, collective and rank.
    """

    def __init__(self, trace: Trace, made: dict, sent: dict):
        self.trace, self.made, self.sent = trace, made, sent
        self.ranks = sorted({rank for own in made.values() for rank in own})
        self.columns: list[Column] = []
        self.moments: list[Moment] = []
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
                continue  # a collective without a product
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
        w = {rank: _transposed(block) for rank, block in w.items()}
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
            if not self.moments:
                self.moments.append(self._moment("At the beginning", self._begin(x)))
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
        for i, moment in enumerate(self.moments):  # a weight was there from the beginning
            self.moments[i] = replace(moment, held=(*moment.held, held if weights else {}))
        return len(self.columns) - 1

    def _multiply(self, layer: str) -> None:
        y = {rank: _block(product.y) for rank, product in self.made[layer].items()}
        place = self.places[layer]["y"]
        self.held[place] = y
        (words,) = {_in_words(product) for product in self.made[layer].values()}
        self.moments.append(self._moment(f"Forward: product of {layer}", words, (place,)))

    def backward(self) -> None:
        last = self.places[[*self.places][-1]]["y"]
        held = {rank: block._replace(summands=1) for rank, block in self.held[last].items()}
        self.held, self.going_back = [{} for _ in self.columns], True
        self.held[last] = held
        words = "the gradient of the last Y comes from the loss"
        self.moments.append(self._moment("Backward begins", words, (last,)))
        for layer in reversed([*self.places]):
            own = [
                name for of, direction, name in self.sent if (of, direction) == (layer, "backward")
            ]
            if "all_gather" in own:
                self._communicate(layer, "backward", "all_gather", self._gathered(layer))
            self._multiply_back(layer)
            for collective in own:
                if collective in SUMS:
                    which = "w" if self._sharers(layer) > 1 else "x"
                    self._communicate(layer, "backward", collective, which)

    def _gathered(self, layer: str) -> str:
        """What a backward gathers of a layer: dY where Y is a sum over the ranks; else X again, of
        which each rank saved its own rows (sequence parallelism)."""
        sums = any(product.y.summands > 1 for product in self.made[layer].values())
        return "y" if sums else AGAIN

    def _sharers(self, layer: str) -> int:
        """How many ranks hold the same part of a layer that is cut among the others: heads of keys
        and values that several ranks share. They add their partial sums of the gradient of W."""
        own = self.made[layer]
        parts = len({product.w for product in own.values()})
        return len(own) // parts if parts > 1 else 1

    def _multiply_back(self, layer: str) -> None:
        """dW = Xᵀ dY is cut as W is, dX = dY Wᵀ as X is; the sum runs over Y's columns."""
        places, own, sharers = self.places[layer], self.made[layer], self._sharers(layer)
        cut = len({product.y.start[-1] for product in own.values()}) > 1
        self.held[places["w"]] = {
            rank: _transposed(_block(each.w))._replace(summands=sharers)
            for rank, each in own.items()
        }
        self.held[places["x"]] = {
            rank: _block(product.x)._replace(summands=len(own) if cut else 1)
            for rank, product in own.items()
        }
        summand = "a summand of that " if sharers > 1 else "that "
        words = "each rank has the gradient of its part of X, and that of its part of W"
        if cut:
            words = f"each rank has a summand of the gradient of X, and {summand}of its part of W"
        if not self.held[places["y"]]:  # operations between layers have no moment of their own
            self.held[places["y"]] = {
                rank: _block(each.y)._replace(summands=1) for rank, each in own.items()
            }
        made = (places["x"], places["w"])
        self.moments.append(self._moment(f"Backward: products of {layer}", words, made))

    def _communicate(self, layer: str, direction: str, collective: str, which: str) -> None:
        """The rounds of a collective; after the last one the column holds its result."""
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
            self.moments.append(self._moment(title, words, (place,), tuple(chosen.tolist())))

    def _after(self, place: int, collective: str, which: str) -> Held:
        """What each rank holds of a matrix after a collective."""
        if collective == "reduce_scatter":
            return self._rows(self.columns[place].shape)
        if which == "w":
            return {rank: own._replace(summands=1) for rank, own in self.held[place].items()}
        rows, columns = self.columns[place].shape
        return {rank: MatrixBlock((0, rows), (0, columns)) for rank in self.ranks}

    def _rounds(self, rows: np.ndarray, number: int, many: int) -> str:
        if not number:
            return "the backend sent the messages, and the Trace has none"
        sizes = [text.nbytes(size) for size in np.unique(self.trace.messages.nbytes[rows]).tolist()]
        each = "message" if len(rows) == 1 else "messages"
        return f"round {number} of {many}, {len(rows)} {each} of {' or '.join(sizes)}"

    def _rows(self, shape: tuple[int, int]) -> Held:
        """Each rank's part of rows that are cut: of a sequence that the ranks share."""
        ends = np.linspace(0, shape[0], len(self.ranks) + 1).astype(int).tolist()
        return {
            rank: MatrixBlock((ends[i], ends[i + 1]), (0, shape[1]))
            for i, rank in enumerate(self.ranks)
        }

    def _moment(
        self,
        title: str,
        words: str,
        made: tuple[int, ...] = (),
        messages: tuple[int, ...] = (),
    ) -> Moment:
        return Moment(title, words, tuple(map(dict, self.held)), made, messages, self.going_back)


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


def _block(cells: Cells) -> MatrixBlock:
    """Cells of a tensor as a block of the matrix whose rows are all dims but the last. (Only the
    last dim is cut, or the first one of a weight.)"""
    if len(cells.shape) == 2:
        rows = cells.start[0], cells.stop[0]
    else:
        rows = 0, prod(cells.shape[:-1])
    return MatrixBlock(rows, (cells.start[-1], cells.stop[-1]), cells.summands)


def _transposed(block: MatrixBlock) -> MatrixBlock:
    """The same part of the transpose."""
    return MatrixBlock(block.columns, block.rows)


def _flat(shape: tuple[int, ...]) -> tuple[int, int]:
    return prod(shape[:-1]), shape[-1]


def _span(ends: tuple[int, int]) -> str:
    return f"{ends[0]:,} to {ends[1] - 1:,}"
