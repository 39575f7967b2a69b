"""A convolution cut over channels and filters as boxes: x, w and y, what moves and what stays.

            +--------+  x, C down                  p_f ranks cut the filters F, p_c the
            | 0  . . |  samples and pixels across  channels C; a rank has a block of w
            | 1  . . |
w  +---+    +--------+  y = w x, as matrices       dots: sent to the ranks that need it
F  |0|1|    |/ /0/ / |  y, F down                  lines: summed where it is drawn
x  +---+    |/ /1/ / |                             plain: stays where it is
C           +--------+                             a frame: what one rank multiplies
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import plotly.graph_objects as go

from dlviz.counts import check_counts
from dlviz.viz import palette
from dlviz.viz.charts.figure import Figure, bar_series, lay_out
from dlviz.viz.charts.matrices import summand
from dlviz.viz.words import text

MOST = 28  # ranks that have a look of their own
PANELS = 3
SIDE, APART, PANEL, HEAD = 1.0, 0.22, 2.5, 0.5  # of a box; between boxes; from a panel to the next
PIXELS, BELOW, NUMBERED = 130, 76, 11  # of a box's side; the legend; a part with a number
STAYS, SENT, SUMMED, USED = "stays", "gathered", "summed", "what rank {} multiplies"


class _Part(NamedTuple):
    """A block of a box: its left, top, width and height, its owner, its look and its words."""

    left: float
    top: float
    wide: float
    high: float
    rank: int
    look: str
    words: list[str]


def stationary(
    grids: Sequence[tuple[int, int]],
    *,
    rank: int = 0,
    theme: str = "auto",
    title: str = "What moves and what stays",
) -> Figure:
    """Draw a convolution on each of up to three `grids`, (p_f, p_c): ranks over which filters and
    channels are cut; rank f p_c + c has w[f, c]. The frame shows what `rank` multiplies.

    Raises ValueError for no grid or more than three, for sizes below 1, for more than 28 ranks, and
    for a rank that a grid lacks.
    """
    if not 1 <= len(grids) <= PANELS:
        raise ValueError(f"{len(grids)} grids: draw one, two or three.")
    check_counts(0, rank=rank)
    for p_f, p_c in grids:
        check_counts(p_f=p_f, p_c=p_c)
        if not rank < p_f * p_c <= MOST:
            raise ValueError(
                f"a grid of {p_f} x {p_c} ranks cannot be drawn for rank={rank}: use {MOST} ranks "
                "or fewer, and one of them."
            )
    figure = Figure()
    parts: list[_Part] = []
    frames: list[tuple[float, float, float, float]] = []
    for panel, grid in enumerate(grids):
        left = panel * PANEL
        parts += _parts(*grid, left)
        frames += _frames(*grid, rank, left)
        _name(figure, *grid, left, theme)
    for look in dict.fromkeys((part.rank, part.look) for part in parts):
        figure.add_trace(_bars(*look, [part for part in parts if (part.rank, part.look) == look]))
    for part in parts:
        if part.high * PIXELS >= NUMBERED:
            style = palette.rank_style(part.rank)
            ink = palette.colors(theme)["ink"] if part.look == SUMMED else style.ink
            figure.add_annotation(
                x=part.left + part.wide / 2, y=part.top + part.high / 2, text=str(part.rank),
                showarrow=False, font={"size": 11, "color": ink},
            )  # fmt: skip
    figure.add_traces([*_key({part.look for part in parts}), _outline(frames, rank, theme)])
    low = HEAD + 2 * SIDE + APART
    lay_out(
        figure,
        text.heading(title, ""),
        [],
        theme,
        inner=PIXELS * (low + 0.1),
        below=BELOW,
        barmode="overlay",
        bargap=0,
        legend={**palette.LEGEND_BELOW, "traceorder": "normal"},
        xaxis={"visible": False, "fixedrange": True, "range": [-0.2, PANEL * len(grids)]},
        yaxis={"visible": False, "fixedrange": True, "range": [low + 0.06, 0]},
    )
    return figure


def _parts(p_f: int, p_c: int, left: float) -> list[_Part]:
    """The blocks of x, w and y in the panel that begins at `left`."""
    across, down = left + SIDE + APART, HEAD + SIDE + APART
    ranks = range(p_f * p_c)
    found = []
    for own in ranks:
        f, c = divmod(own, p_c)
        column = [rank for rank in ranks if rank % p_c == c and rank != own]  # of other filters
        row = [rank for rank in ranks if rank // p_c == f and rank != own]  # of other channels
        gathered, summed = "stays, and so does dx", "stays, and so does dy"
        if column:
            gathered = (
                f"goes to {text.ranks(column)}, backward once more unless they store it; their dx "
                "of it come back and are added"
            )
        if row:
            summed = f"is the sum of what {text.ranks([own, *row])} have; backward dy goes to them"
        high = SIDE / (p_f * p_c)
        found += [
            _Part(across, HEAD + (c * p_f + f) * high, SIDE, high, own, SENT if column else STAYS,
                  [f"x: 1/{len(ranks)} of the channels, rank {own}", gathered]),
            _Part(left + c / p_c, down + f / p_f, SIDE / p_c, SIDE / p_f, own, STAYS,
                  [f"w: filters {f + 1} of {p_f}, channels {c + 1} of {p_c}, rank {own}",
                   "stays, and so does dw"]),
            _Part(across, down + (f * p_c + c) * high, SIDE, high, own, SUMMED if row else STAYS,
                  [f"y: 1/{len(ranks)} of the filters, rank {own}", summed]),
        ]  # fmt: skip
    return found


def _frames(p_f: int, p_c: int, rank: int, left: float) -> list[tuple[float, float, float, float]]:
    """Left, top, width and height of what the rank multiplies: x of its channels, its block of w,
    and its summand of y."""
    f, c = divmod(rank, p_c)
    across, down = left + SIDE + APART, HEAD + SIDE + APART
    return [
        (across, HEAD + c / p_c, SIDE, SIDE / p_c),
        (left + c / p_c, down + f / p_f, SIDE / p_c, SIDE / p_f),
        (across, down + f / p_f, SIDE, SIDE / p_f),
    ]


def _name(figure: go.Figure, p_f: int, p_c: int, left: float, theme: str) -> None:
    """The panel's name, what moves, and the names of the boxes."""
    still = "x, y and w" if p_f * p_c == 1 else "x" if p_f == 1 else "y" if p_c == 1 else "w"
    shares = [(p_f - 1, "|x|"), (p_c - 1, "|y|")]
    moved = [f"{Fraction(many, p_f * p_c)} {what}" for many, what in shares if many]
    lines = [
        f"<b>stationary {still}</b>: p_f = {p_f}, p_c = {p_c}",
        f"a rank sends {' + '.join(moved) or 'nothing'}",
        "in forward, and in backward",
    ]
    faint = palette.colors(theme)["faint"]
    top, down = HEAD + SIDE + APART, HEAD + SIDE + APART / 2
    for x, y, words, how in (
        (left, 0.0, "<br>".join(lines), {"xanchor": "left", "yanchor": "top", "align": "left"}),
        (left + SIDE + APART / 2, HEAD + SIDE / 2, "C", {}),
        (left + SIDE + APART + SIDE / 2, HEAD - 0.07, "<b>x</b>: N H W", {}),
        (left - 0.1, top + SIDE / 2, "F", {}),
        (left + SIDE / 2, down, "<b>w</b>: C", {}),
        (left + SIDE + APART / 2, top + SIDE / 2, "F", {}),
        (left + SIDE + APART + SIDE / 2, down, "<b>y</b>: N H' W'", {}),
    ):
        color = {} if how else {"color": faint}
        figure.add_annotation(
            x=x, y=y, text=words, showarrow=False, font={"size": 12, **color}, **how
        )


def _bars(rank: int, look: str, parts: list[_Part]) -> go.Bar:
    lefts, wide, tops, high = np.array([part[:4] for part in parts]).T[[0, 2, 1, 3]]
    words = ["<br>".join([f"<b>{part.words[0]}</b>", part.words[1]]) for part in parts]
    style = _look(look, palette.rank_style(rank))
    own = bar_series(style, look, look, (lefts, wide), (tops + high / 2, high), None, words)
    return own.update(showlegend=False)


def _look(look: str, style: palette.Style) -> palette.Style:
    """A rank's hue, whatever its own pattern is, with that of what becomes of a part."""
    if look == SUMMED:
        return summand(style)
    return palette.Style(style.color, "." if look == SENT else "")


def _key(looks: set[str]) -> list[go.Bar]:
    """The legend, in the first rank's hue."""
    first = palette.rank_style(0)
    return [
        go.Bar(x=[None], y=[None], name=name, orientation="h", marker=_look(name, first).marker())
        for name in (STAYS, SENT, SUMMED)
        if name in looks
    ]


def _outline(frames: list[tuple[float, float, float, float]], rank: int, theme: str) -> go.Scatter:
    x: list[float | None] = []
    y: list[float | None] = []
    for left, top, wide, high in frames:
        x += [left, left + wide, left + wide, left, left, None]
        y += [top, top, top + high, top + high, top, None]
    line = {"color": palette.colors(theme)["ink"], "width": 3}
    name = USED.format(rank)
    return go.Scatter(x=x, y=y, name=name, mode="lines", line=line, hoverinfo="skip")
