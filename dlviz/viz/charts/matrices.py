"""The matrices of layers that ranks share, coloured by owner, with the messages of a real run.

              X     W of up   Y of up    W of down   Y of down
    rank 0  [   ]   [0   ]    [0   ]     [0      ]   [/ / /] |      a block of rank 0's hue: rank 0
    rank 1  [   ]   [  1 ]    [  1 ]     [1      ]   [/ / /] v      alone has it; grey: all have it;
                                                                    hatched: a summand of the whole

A slider goes through the products and the rounds of messages, forward and then backward, where each
matrix is the gradient of what it was.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import plotly.graph_objects as go

from dlviz.viz import palette
from dlviz.viz.blocks import Blocks, brief
from dlviz.viz.charts.figure import (
    Figure,
    changes,
    lay_out,
    message_key,
    named_rows,
    slider,
)
from dlviz.viz.passes import Held, MatrixBlock, Moment
from dlviz.viz.words import text
from dlviz.viz.words.labels import hover

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dlviz.trace import Trace

ROW, ABOVE, BELOW = 96, 92, 108  # pixels: a rank's row, the text over the rows, what is below
SLIDER = 14  # pixels from the matrices to the slider
TALL = 640  # pixels: the largest height of a figure that a notebook shows whole
TITLE = "Who holds which part of which matrix"
OWN, ALL, SUMMAND = "a part, on this rank", "the same on all ranks", "a summand of the whole"
COMMON = palette.KINDS["phase"]  # grey: no rank's own colour
LEAN = 0.12  # of a row: the distance of an arrow's end from the middle of its rank


def matrices(
    trace: Trace,
    *,
    step: int | None = None,
    layers: Sequence[str] | None = None,
    theme: str = "auto",
    title: str = TITLE,
) -> Figure:
    """Go through one pass of layers of `dlviz.parallel.tensor`, product by product and round by
    round, or through one product of `dlviz.parallel.summa`, panel by panel. `step` chooses a step
    of the Trace, `layers` gives the beginnings of layers' names.

    Raises ValueError where the run recorded no product, more than 9 matrices, or a product that is
    cut along k as well."""
    picture = _Slides(trace, step, layers, theme)
    moments, still = picture.moments, picture.still()
    first = picture.series(moments[0])
    figure = Figure([*still, *first])
    moving = list(range(len(still), len(still) + len(first)))
    heading = text.heading(title, text.subtitle(trace, "device"))
    top, rows = heading["margin"]["t"] + ABOVE, len(picture.ranks)
    inner = min(max(rows, 2) * ROW, TALL - top - BELOW)
    lay_out(
        figure,
        heading,
        text.details(trace, "device"),
        theme,
        inner=inner + ABOVE,
        below=BELOW,
        margin={"l": 60, "t": top},
        barmode="overlay",
        bargap=0,
        legend=palette.LEGEND_BELOW,
        xaxis={"visible": False, "range": [-0.05, picture.lefts[-1]], "fixedrange": True},
        yaxis={
            **named_rows({y: f"rank {rank}" for y, rank in enumerate(picture.ranks)}, rows - 0.5),
        },
        sliders=[slider("start", len(moments), SLIDER, inner, theme)],
    )
    shared = list(figure.layout.annotations)  # pyright: ignore[reportAttributeAccessIssue]
    for annotation in picture.words(0):
        figure.add_annotation(annotation)
    figure.frames = [
        go.Frame(
            name=str(i),
            data=[changes(series) for series in picture.series(moment)],
            traces=moving,
            layout={"annotations": [*shared, *picture.words(i)]},
        )
        for i, moment in enumerate(moments)
    ]
    return figure


@dataclass(frozen=True)
class _Slides(Blocks):
    """The Blocks of a Trace as plotly draws them in one theme."""

    theme: str = "auto"

    def words(self, at: int) -> list[dict[str, Any]]:
        """The names above the columns, and above these what happens in the moment."""
        moment = self.moments[at]
        top = {"yref": "paper", "y": 1, "showarrow": False, "yanchor": "bottom"}
        said = f"<b>{text.clean(moment.title)}</b>: {text.clean(moment.words)}"
        head = {"text": said, "x": 0, "xref": "paper", "xanchor": "left", "yshift": 62}
        annotations = [{**top, **head}]
        for place, column in enumerate(self.columns):
            wide, _ = self.sizes[place]
            names = [
                ("d" if moment.backward else "") + text.cut(brief(name), 16)
                for name in column.names
            ]
            rows, columns = column.shape
            lines = [*names, f"{rows:,} × {columns:,}"]
            at_middle = {"x": self.lefts[place] + wide / 2, "text": "<br>".join(lines)}
            annotations.append({**top, **at_middle, "font": {"size": 11}, "yshift": 6})
        return annotations

    def still(self) -> list[Any]:
        """The fixed parts: the outline of every matrix on every rank, and the legend."""
        x: list[float | None] = []
        y: list[float | None] = []
        for row in range(len(self.ranks)):
            for place in range(len(self.columns)):
                left, right, top, bottom = self.box(place, self.outline(place), row)
                x += [left, right, right, left, left, None]
                y += [top, top, bottom, bottom, top, None]
        colors = palette.colors(self.theme)
        line = {"color": colors["faint"], "width": 0.8}
        outlines = go.Scatter(x=x, y=y, mode="lines", line=line, hoverinfo="skip", showlegend=False)
        entries = [
            go.Bar(x=[None], y=[None], name=name, marker=style.marker(), orientation="h")
            for name, style in looks(self)
        ]
        arrow = [message_key("message", "arrow", colors["ink"])] if self._sends else []
        return [outlines, *entries, *arrow]

    @property
    def _sends(self) -> bool:
        return any(moment.messages for moment in self.moments)

    def series(self, moment: Moment) -> list[Any]:
        """The moving parts, in an order that is the same in every moment."""
        cells = [
            (row, rank, place, block)
            for row, rank in enumerate(self.ranks)
            for place, held in enumerate(moment.held)
            for each, block in held.items()
            if each == rank
        ]
        styles = [palette.rank_style(rank) for rank in self.ranks]
        drawn = [style_of(self, moment.held[place], rank) for _, rank, place, _ in cells]
        bars = [
            self._bar(style, [one for one, own in zip(cells, drawn, strict=True) if own == style])
            for style in [COMMON, *styles, *map(summand, styles)]
        ]
        return [*bars, self._made(moment), self._hover(moment, cells), *self._arrows(moment)]

    def _bar(self, style: palette.Style, cells: list) -> go.Bar:
        """Blocks of one look."""
        return go.Bar(**self._across(cells), marker=style.marker(), hoverinfo="skip")

    def _across(self, cells: list) -> dict[str, Any]:
        """The extents of bars that cover the blocks."""
        boxes = [self.box(place, block, row) for row, _, place, block in cells]
        return {
            "orientation": "h",
            "base": [left for left, *_ in boxes],
            "x": [right - left for left, right, *_ in boxes],
            "y": [(top + bottom) / 2 for *_, top, bottom in boxes],
            "width": [bottom - top for *_, top, bottom in boxes],
            "showlegend": False,
        }

    def _made(self, moment: Moment) -> go.Scatter:
        """A frame around what the moment makes."""
        x: list[float | None] = []
        y: list[float | None] = []
        for place in moment.made:
            for row, rank in enumerate(self.ranks):
                if rank in moment.held[place]:
                    left, right, top, bottom = self.box(place, moment.held[place][rank], row)
                    x += [left, right, right, left, left, None]
                    y += [top, top, bottom, bottom, top, None]
        line = {"color": palette.colors(self.theme)["ink"], "width": 2}
        return go.Scatter(x=x, y=y, mode="lines", line=line, hoverinfo="skip", showlegend=False)

    def _hover(self, moment: Moment, cells: list) -> go.Bar:
        """The hover texts, on a transparent bar over each block."""
        return go.Bar(
            **self._across(cells),
            marker={"color": "rgba(0, 0, 0, 0)", "line": {"width": 0}},
            **hover([self._summary(moment, *cell[1:]) for cell in cells]),
            hoverlabel={"bgcolor": palette.colors(self.theme)["cell"]},
        )

    def _summary(self, moment: Moment, rank: int, place: int, block: MatrixBlock) -> str:
        names = [("d" if moment.backward else "") + name for name in self.columns[place].names]
        who = "all ranks" if self.shared(moment.held[place], rank) else f"rank {rank}"
        lines = [f"<b>{text.clean(', '.join(names))}</b>", f"{who}: {block.shape}", block.words]
        return "<br>".join(lines)

    def _arrows(self, moment: Moment) -> list[go.Scatter]:
        """The messages, each from its rank's row to the other's."""
        x: list[float | None] = []
        y: list[float | None] = []
        data: list[str | None] = []
        table, row = self.trace.messages, {rank: i for i, rank in enumerate(self.ranks)}
        for message, across in zip(moment.messages, self.lanes(moment), strict=True):
            src, dst = row[int(table.src[message])], row[int(table.dst[message])]
            lean = float(np.sign(dst - src)) * LEAN
            x += [across] * 3 + [None]
            y += [src + lean, (src + dst) / 2, dst - lean, None]
            size = text.nbytes(int(table.nbytes[message]))
            ends = f"rank {table.src[message]} to rank {table.dst[message]}"
            data += [f"<b>{ends}</b><br>{size}"] * 3 + [None]
        most = max(len(each.messages) for each in self.moments)
        ink, paper = (palette.colors(self.theme)[part] for part in ("ink", "paper"))
        look = {"color": ink, "symbol": "arrow", "opacity": 1, "angleref": "previous"}
        halo = {"color": paper, "width": 1}
        return [
            go.Scatter(
                x=x,
                y=y,
                name="message",
                showlegend=False,
                mode="lines+markers",
                line={"color": ink, "width": 2},
                marker={**look, "size": [0, 0, 12, 0] * most, "line": halo},
                customdata=data,
                hovertemplate="%{customdata}<extra></extra>",
            )
        ]


def looks(blocks: Blocks) -> list[tuple[str, palette.Style]]:
    """How blocks of the first rank are filled, by who holds them."""
    first = palette.rank_style(blocks.ranks[0])
    held = [own for moment in blocks.moments for own in moment.held if own]
    alike = any(blocks.shared(own, min(own)) for own in held)
    sums = any(block.summands > 1 for own in held for block in own.values())
    return [
        (OWN, first),
        *([(ALL, COMMON)] if alike else []),
        *([(SUMMAND, summand(first))] if sums else []),
    ]


def style_of(blocks: Blocks, held: Held, rank: int) -> palette.Style:
    """How the rank's block of a matrix is filled."""
    if blocks.shared(held, rank):
        return COMMON
    style = palette.rank_style(rank)
    return summand(style) if held[rank].summands > 1 else style


def summand(style: palette.Style) -> palette.Style:
    """How a rank's summand of a whole matrix is filled: with lines only, as it is not that matrix
    yet; even in the small key of a legend it differs from a part."""
    return palette.Style(style.color, "/", solid=False)
