"""The messages of a run, round by round, over the contents of every rank's watched buffer.

    rank 0  |0   |0   |0   |0  3|     a row of cells per rank; in a cell one slot per rank, filled
    rank 1  |0 1 |1   |1   |1   |     where the cell holds that rank's contribution ("×2": twice);
                v                     an arrow for each message, the cells it carried outlined
    rank 2  |2   |  ...

For a script, and a notebook without widgets: `widgets.MessagePlayer` shows more. The pictures show
a Scene (scene.py), each the state after its messages landed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import plotly.graph_objects as go

from dlviz.analysis.contributions import MAX_RANKS
from dlviz.analysis.frames import Frame
from dlviz.counts import check_counts
from dlviz.viz import palette
from dlviz.viz.charts.figure import (
    Figure,
    changes,
    lay_out,
    message_key,
    named_rows,
    slider,
)
from dlviz.viz.scene import RULED, CellRange, Scene, number
from dlviz.viz.words import text
from dlviz.viz.words.labels import hover

if TYPE_CHECKING:
    from dlviz.trace import Trace

CELLS = 0.62  # height of a rank's cells (rows are 1 apart)
ROW, ABOVE, BELOW = 74, 40, 110  # pixels: a rank's row, the text over the rows, the controls below
SLIDER = 56  # pixels from the cells to the slider, for the axis
TALL = 640  # pixels: the largest height of a figure that a notebook shows whole


def messages(
    trace: Trace,
    *,
    step: int | None = None,
    buffer: str | None = None,
    theme: str = "auto",
    title: str | None = None,
    max_frames: int = 100,
) -> Figure:
    """Go through the messages: the cells of all ranks, arrows, and a slider with a stop a round.

    A cell shows its contributions if each rank filled its buffer with `viz.encode` and called
    `comm.watch` on it before the first message. `step` shows the messages of one step of the
    Trace, `buffer` the watched buffer of that name (by default the first). At most the first
    `max_frames` pictures are shown; the subtitle says if some are left out. Raises ValueError for a
    buffer that was not watched.
    """
    check_counts(max_frames=max_frames)
    scene = _Picture(trace, step, buffer, theme)
    frames = scene.frames[:max_frames]
    heading = text.heading(title or "Messages, round by round", scene.subtitle(len(frames)))
    top = heading["margin"]["t"] + ABOVE
    inner = min(max(scene.high, 3) * ROW, TALL - top - BELOW)
    still = scene.still()
    figure = Figure([*still, *scene.series(frames[0])])
    moving = list(range(len(still), len(still) + len(scene.series(frames[0]))))
    lay_out(
        figure,
        heading,
        text.details(trace, "device"),
        theme,
        inner=inner + ABOVE,
        below=BELOW,
        margin={"l": 70, "t": top},
        barmode="overlay",
        bargap=0,
        legend={"traceorder": "normal"},
        xaxis=scene.xaxis(),
        yaxis=named_rows(scene.names(), scene.high - 0.5),
        sliders=[slider(frames[0].name, len(frames), SLIDER, inner, theme)],
    )
    for y in scene.group_names:
        figure.add_hline(y, line={"color": palette.colors(theme)["grid"], "width": 1.5})
    figure.add_annotation(scene.headline(0))
    *shared, _ = figure.layout.annotations  # pyright: ignore[reportAttributeAccessIssue]
    figure.frames = [
        go.Frame(
            name=str(i),
            data=[changes(series) for series in scene.series(frame)],
            traces=moving,
            layout={"annotations": [*shared, scene.headline(i)]},
        )
        for i, frame in enumerate(frames)
    ]
    return figure


class _Line:
    """Points of a line series, with a gap after each piece; each piece has a message."""

    def __init__(self) -> None:
        self.x: list[float | None] = []
        self.y: list[float | None] = []
        self.customdata: list[list[Any] | None] = []

    def add(self, x: list[float], y: list[float], row: int = -1, words: str = "") -> None:
        self.x += [*x, None]
        self.y += [*y, None]
        self.customdata += [[row, words]] * len(x) + [None]

    def box(self, low: int, high: int, middle: float) -> None:
        """The outline of cells `low` to `high` of a row."""
        top, bottom = middle - CELLS / 2, middle + CELLS / 2
        self.add([low, high, high, low, low], [top, top, bottom, bottom, top])


@dataclass(frozen=True)
class _Picture(Scene):
    """A Scene as plotly draws it in one theme: the parts of a picture."""

    theme: str = "auto"

    def names(self) -> dict[float, str]:
        """The rows' names, by how far down they are."""
        ranks = {self.place[rank]: f"rank {rank}" for rank in self.rows}
        return ranks | {y: f"<b>{text.clean(name)}</b>" for y, name in self.group_names.items()}

    def subtitle(self, shown: int) -> str:
        """The clock, then the caveats of the picture."""
        lines, frames = self.caveats, len(self.frames)
        if shown < frames:
            lines.append(f"The first {shown} of {frames} pictures are shown.")
        wrapped = (text.wrap(line, text.LINE) for line in lines)
        return "<br>".join([text.subtitle(self.trace, "device"), *wrapped])

    def xaxis(self) -> dict[str, Any]:
        right = sum(self.aside) if self.strays else self.length
        return {
            "title": text.clean(self.title) + self.beyond,
            "range": [-0.01 * self.length, 1.01 * right],
            "showgrid": False,
            "tickformat": "d",
            "nticks": min(self.length, 12),
        }

    def headline(self, at: int) -> dict[str, Any]:
        """The text above a picture: its name, its messages in short, and oddities of buffers."""
        frame, odd = self.frames[at], [*self.losses(at), *self.oddities(at)]
        summary = text.clean(self.summary(frame))
        lines = [f"<b>{frame.name}</b>" + (f": {summary}" if summary else "")]
        if odd:
            more = f" (and {len(odd) - 1} more)" if len(odd) > 1 else ""
            lines.append(text.cut(odd[0], text.LINE) + more)
        place = {"x": 0, "xref": "paper", "xanchor": "left", "y": 1, "yref": "paper"}
        words = {"text": "<br>".join(lines), "align": "left", "showarrow": False}
        return {**words, **place, "yanchor": "bottom"}

    def still(self) -> list[go.Scatter]:
        """The fixed parts: the empty cells of each rank, and what arrows mean."""
        colors = palette.colors(self.theme)
        lengths = {rank: len(self.arrays[p]) for rank, p in self.frames[0].snapshots.items()}
        grid = _Line()
        for rank, length in lengths.items():
            top, bottom = self.place[rank] - CELLS / 2, self.place[rank] + CELLS / 2
            marks = self.bounds[self.bounds < length].tolist()
            for mark in range(length) if length <= RULED else marks:
                grid.add([mark, mark], [top, bottom])
            grid.box(0, length, self.place[rank])
        line = {"color": colors["faint"], "width": 0.7}
        shown = {"mode": "lines", "line": line, "opacity": 0.6}
        cells = go.Scatter(x=grid.x, y=grid.y, hoverinfo="skip", showlegend=False, **shown)
        return [cells, *self._legend()]

    def _legend(self) -> list[go.Scatter]:
        """The legend's entries for messages."""
        ink = palette.colors(self.theme)["ink"]
        received = np.isfinite(self.trace.messages.received)
        both = ("message", "arrow", received.any()), ("never received", "x", not received.all())
        return [message_key(name, symbol, ink) for name, symbol, drawn in both if drawn]

    def series(self, frame: Frame) -> list[Any]:
        """The moving parts, in an order that is the same in every picture."""
        ranks = self.trace.meta["ranks"] if self.arrays else 0
        ranges, slot = self.ranges(frame), CELLS / max(ranks, 1)
        bars = []
        for source in range(ranks if ranks <= MAX_RANKS else 0):
            held = [one for one in ranges if one.counts[source] > 0]
            texts = [f"×{one.counts[source]}" if one.counts[source] > 1 else "" for one in held]
            middle = -CELLS / 2 + (source + 0.5) * slot
            style = palette.rank_style(source)
            bars.append(self._bar(f"from rank {source}", held, middle, slot, style, texts))
        unknown = [one for one in ranges if one.unknown]
        marks = ["?"] * len(unknown)
        name = "not a sum of contributions"
        bars.append(self._bar(name, unknown, 0, CELLS, palette.UNDECODED, marks))
        return [*bars, self._hover(ranges), *self._carried(frame)]

    def _bar(
        self,
        name: str,
        ranges: list[CellRange],
        middle: float,
        width: float,
        style: palette.Style,
        texts: list[str],
    ) -> go.Bar:
        """Cells of one style, `middle` below the middle of their rank's row."""
        return go.Bar(
            name=name,
            orientation="h",
            base=[one.low for one in ranges],
            x=[one.high - one.low for one in ranges],
            y=[self.place[one.rank] + middle for one in ranges],
            width=[width] * len(ranges),
            marker=style.marker(),
            text=texts,
            textposition="inside",
            insidetextanchor="middle",
            textangle=0,
            constraintext="none",
            textfont={"color": style.ink, "size": 12, "weight": "bold"},
            hoverinfo="skip",
        )

    def _hover(self, ranges: list[CellRange]) -> go.Bar:
        """The hover texts, on a transparent bar over all slots of a cell."""
        return go.Bar(
            orientation="h",
            base=[one.low for one in ranges],
            x=[one.high - one.low for one in ranges],
            y=[self.place[one.rank] for one in ranges],
            width=[CELLS] * len(ranges),
            marker={"color": "rgba(0, 0, 0, 0)", "line": {"width": 0}},
            **hover([_words(one) for one in ranges]),
            hoverlabel={"bgcolor": palette.colors(self.theme)["cell"]},
            showlegend=False,
        )

    def _carried(self, frame: Frame) -> list[go.Scatter]:
        """The messages: the cells they took, the cells they landed in, and arrows, or a cross where
        a message was never received."""
        colors = palette.colors(self.theme)
        table = self.trace.messages
        left, landed, all_arrows, arrows, crosses = (_Line() for _ in range(5))
        for row, x in zip(frame.messages, self.across(frame), strict=True):
            src, dst = self.place[int(table.src[row])], self.place[int(table.dst[row])]
            got = bool(np.isfinite(table.received[row]))
            if table.offset[row] >= 0:
                low, high = int(table.offset[row]), int(table.offset[row] + table.count[row])
                left.box(low, high, src)
                if got:
                    landed.box(low, high, dst)
            lean = np.sign(dst - src) * CELLS / 2
            for line in (all_arrows, arrows if got else crosses):
                line.add([x] * 3, [src + lean, (src + dst) / 2, dst - lean], row, self._words(row))
        hidden = {"mode": "lines", "hoverinfo": "skip"}
        ink = {"color": colors["ink"], "width": 2}
        halo = {"color": colors["paper"], "width": 6}
        dotted = {**ink, "dash": "dot"}
        series = [
            go.Scatter(x=left.x, y=left.y, name="cells sent", line={**ink, "width": 2.6}, **hidden),
            go.Scatter(x=landed.x, y=landed.y, name="cells received", line=dotted, **hidden),
            go.Scatter(x=all_arrows.x, y=all_arrows.y, line=halo, showlegend=False, **hidden),
        ]
        for name, line, symbol in (
            ("message", arrows, "arrow"),
            ("never received", crosses, "x"),
        ):
            series.append(
                go.Scatter(
                    x=line.x,
                    y=line.y,
                    name=name,
                    showlegend=False,
                    mode="lines+markers",
                    line=ink,
                    marker={
                        "color": colors["ink"],
                        "symbol": symbol,
                        "size": [0, 0, 13, 0] * self.most,
                        "opacity": 1,
                        "angleref": "previous",
                        "line": {"color": colors["paper"], "width": 1},
                    },
                    customdata=line.customdata,
                    hovertemplate="%{customdata[1]}<extra></extra>",
                )
            )
        return series

    def _words(self, row: int) -> str:
        """A message in words, for hover."""
        table = self.trace.messages
        sent, received = float(table.sent[row]), float(table.received[row])
        axis = text.unit(np.nanmax([sent, received]))
        lines = [f"<b>message {row}: {text.clean(self.sentence(row))}</b>"]
        if table.nbytes[row] >= 0:
            lines.append(text.nbytes(int(table.nbytes[row])))
        lines.append(f"sent at {text.moment(sent, *axis)}")
        if np.isfinite(received):
            lines.append(f"received at {text.moment(received, *axis)}")
        lines += filter(None, [self.known[row]])
        return "<br>".join(lines)


def _words(one: CellRange) -> str:
    """What the cells hold, for hover."""
    values = ", ".join(map(number, one.contents[:8].tolist()))
    values += ", …" if len(one.contents) > 8 else ""
    return f"<b>rank {one.rank}, {one.cells}</b><br>{one.words}<br>contents {values}"
