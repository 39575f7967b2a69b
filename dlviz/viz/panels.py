"""One product by SUMMA, panel by panel: who holds which block and which panel, read from a run.

    X     panel of X   W     panel of W   Y      a rank owns a block of each matrix; of each range
    [0 ]    [0 ]      [0 ]      [0 ]     [/ ]    of k a panel of X travels along its row of ranks, a
    [ 1]    [0 ]      [ 1]      [ 1]     [ /]    panel of W along its column, and Y += their product

Y is a partial sum until the last panel.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dlviz.analysis.products import PanelProduct
from dlviz.viz.passes import Column, Held, MatrixBlock, Moment
from dlviz.viz.words import text

if TYPE_CHECKING:
    from dlviz.trace import Trace

PLACES = {"X": (1, "row"), "W": (3, "column")}  # of a panel: its column here; the ranks it reaches


class PanelPass:
    """The columns and moments of the run's first product. Raises ValueError where ranks share a
    block of Y, which only a grid with pk = 1 leaves on one rank."""

    def __init__(self, trace: Trace, made: Sequence[PanelProduct]):
        self.trace = trace
        panels: dict[tuple[int, int], dict[int, PanelProduct]] = {}  # by range of k
        for each in made:
            panels.setdefault(each.x[1], {}).setdefault(each.rank, each)
        first = panels[min(panels)]
        self.ranks = sorted(first)
        if any(sorted(own) != self.ranks for own in panels.values()):
            raise ValueError(
                "this product is cut along k too: a picture of panels needs a grid (pm, 1, pn)."
            )
        m, n = (max(each.y[dim][1] for each in first.values()) for dim in (0, 1))
        k = max(panels)[1]
        shapes = {"X": (m, k), "panel of X": (m, k), "W": (k, n), "panel of W": (k, n), "Y": (m, n)}
        self.columns = [Column([name], shape) for name, shape in shapes.items()]
        own_x = {rank: MatrixBlock(*each.own_x) for rank, each in first.items()}
        own_w = {rank: MatrixBlock(*each.own_w) for rank, each in first.items()}
        self.held: list[Held] = [own_x, {}, own_w, {}, {}]
        words = "each rank owns a block of X and one of W, and makes a block of Y"
        self.moments = [self._moment("At the beginning", words)]
        for number, ends in enumerate(sorted(panels), 1):
            self._panel(panels[ends], f"Panel {number} of {len(panels)}", number == len(panels))

    def _panel(self, own: dict[int, PanelProduct], title: str, last: bool) -> None:
        for name, (place, line) in PLACES.items():
            self.held[place] = {
                rank: MatrixBlock(*(each.x if name == "X" else each.w))
                for rank, each in own.items()
            }
            rows = [row for each in own.values() for row in each.messages[name]]
            sizes = {int(self.trace.messages.nbytes[row]) for row in rows}
            words = f"of {name} along each {line} of ranks, {len(rows)} of " + " or ".join(
                text.nbytes(size) for size in sorted(sizes)
            )
            if not rows:
                words = f"no panel of {name} has to travel"
            self.moments.append(
                self._moment(f"{title}: broadcast of {name}", words, (place,), rows)
            )
        summands = 1 if last else 2  # the panels so far, and those to come
        self.held[4] = {
            rank: MatrixBlock(*each.y)._replace(summands=summands) for rank, each in own.items()
        }
        words = "each rank adds panel of X · panel of W to its block of Y"
        self.moments.append(self._moment(f"{title}: product", words, (4,)))

    def _moment(
        self, title: str, words: str, made: tuple[int, ...] = (), rows: Sequence[int] = ()
    ) -> Moment:
        return Moment(title, words, tuple(map(dict, self.held)), made, tuple(rows))
