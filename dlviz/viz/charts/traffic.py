"""Who sent how much to whom: a row for each sender, a column for each receiver.

                       to 0       to 1       to 2
    from 0 (1.5 MB)             1.5 MB                  a ring: each rank to the next one alone
    from 1 (1.5 MB)                        1.5 MB
    from 2 (1.5 MB)   1.5 MB

A pair without a message is blank, so that the shape of an algorithm shows before its numbers. Lines
part hosts, racks, and switches under switches: a block off the diagonal went over a link that pairs
of ranks share. Where some ranks have slow links of their own, the subtitle counts what crossed
them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from dlviz.analysis import messages as analysis
from dlviz.analysis.clocks import clock_of
from dlviz.analysis.hosts import group_numbers, rank_groups, side_by_side
from dlviz.viz import palette
from dlviz.viz.charts.figure import Figure, heat_map, lay_out
from dlviz.viz.words import text
from dlviz.viz.words.hosts import short, whereabouts

if TYPE_CHECKING:
    from dlviz.trace import Trace

NUMBERED = 16  # ranks: with more, no cell has room for a number
NARROW = 6  # ranks side by side: with more, a number and its unit stand on two lines
CROWDED = 12  # ranks side by side: with more, no column has room for what its rank received
STRONG = 0.61  # of the most: from here on the text of a cell is white
HIGHEST, CELL, LEAST = 620, 62, 220  # pixels: a figure at most, a cell, a map at least
WIDTH, LEFT = 680, 120  # pixels: a single map's figure at least, and its margin
SHORT = 88  # characters of a subtitle's line that fit into it
BETWEEN = 0.16  # of the width: for the names of the rows of the map on the right


def traffic(traces: text.Traces, *, theme: str = "auto", title: str | None = None) -> Figure:
    """Draw the bytes that each rank sent to each other as a heat map, one number in each cell.

    `traces` is a Trace, or several by name, whose maps stand side by side in one scale of colours.
    Messages that were never received count as sent. Raises ValueError where there is no Trace, and
    for an unknown theme.
    """
    named = text.by_name(traces)
    found = [by_group(trace) for trace in named.values()]
    most = max(int(sent.max(initial=0)) for sent, _ in found)
    ranks = max(len(sent) for sent, _ in found)
    columns = min(len(named), 2)
    lines = -(-len(named) // columns)
    maps = _Maps(ranks, columns, most, theme)
    above = maps.above + 20 * bool(len(named) > 1)

    words = sentences(named, found)
    width = SHORT if len(named) == 1 else text.LINE
    subtitle = "<br>".join(text.wrap(line, width) for line in words)
    heading = text.heading(title or "Who sent how much to whom", subtitle)
    top, bottom = heading["margin"]["t"] + 16 + above, 16
    room = (HIGHEST - top - bottom - (lines - 1) * (above + 8)) / lines
    side = min(max(ranks * CELL, LEAST), room)
    inner = lines * side + (lines - 1) * (above + 8)

    figure = Figure()
    gap = (above + 8) / inner if lines > 1 else 0.0
    make_subplots(lines, columns, figure=figure, horizontal_spacing=BETWEEN, vertical_spacing=gap)
    for place, (name, trace) in enumerate(named.items()):
        maps.draw(figure, place, trace, *found[place])
        if len(named) > 1:
            head = above - (2 if place < columns else 20)  # only the first row's axes have titles
            _name(figure, name, place, head)
    read = text.merged((trace, clock_of(trace)) for trace in named.values())
    lay_out(
        figure,
        heading,
        [line for trace, clock in read for line in text.details(trace, clock)],
        theme,
        inner=top - heading["margin"]["t"] + inner,
        below=bottom,
        margin={"t": top, "l": LEFT, "r": 110},
        width=max(side + 240, WIDTH) if len(named) == 1 else None,
        plot_bgcolor=palette.colors(theme)["cell"],
    )
    return figure


@dataclass(frozen=True)
class _Maps:
    """Maps of so many ranks at most, `columns` of them side by side, in one scale of colours up to
    `most` bytes, and which numbers have room on them."""

    ranks: int
    columns: int
    most: int
    theme: str

    @property
    def across(self) -> int:
        """Ranks side by side."""
        return self.ranks * self.columns

    @property
    def numbered(self) -> bool:
        return self.ranks <= NUMBERED

    @property
    def narrow(self) -> bool:
        return self.across > NARROW

    @property
    def received(self) -> bool:
        return self.numbered and self.across <= CROWDED

    @property
    def above(self) -> int:
        """Pixels for the names of the columns."""
        return 66 if self.numbered and self.narrow else 48

    def draw(
        self, figure: go.Figure, place: int, trace: Trace, sent: np.ndarray, count: np.ndarray
    ) -> None:
        """Map number `place`: cells, numbers, the edges of groups, axes."""
        at: dict[str, Any] = {"row": place // self.columns + 1, "col": place % self.columns + 1}
        figure.add_trace(_map(trace, sent, count, self.most, place == 0), **at)
        if self.numbered:
            self._number(figure, sent, count, at)
        for edge in edges(trace):
            line = {"color": palette.colors(self.theme)["ink"], "width": 2}
            figure.add_hline(edge, line=line, **at)
            figure.add_vline(edge, line=line, **at)
        across, down = self._axes(trace, sent)
        figure.update_xaxes(across, tickfont_size=12 if self.across <= 8 else 10, **at)
        figure.update_yaxes(down, **at)
        if at["row"] == 1:
            figure.update_xaxes(title="to rank (received)" if self.received else "to rank", **at)
        if at["col"] == 1:
            figure.update_yaxes(title="from rank (sent)" if self.numbered else "from rank", **at)

    def _number(
        self, figure: go.Figure, sent: np.ndarray, count: np.ndarray, at: dict[str, Any]
    ) -> None:
        """A number in each cell that has a message."""
        size = 12 if self.across <= 8 else 8
        for i, j in np.argwhere(count > 0).tolist():
            words = text.nbytes(int(sent[i, j])).replace(" ", "<br>" if self.narrow else " ")
            ink = palette.WHITE if sent[i, j] > STRONG * self.most else palette.BLACK
            font = {"color": ink, "size": size}
            figure.add_annotation(x=j, y=i, text=words, showarrow=False, font=font, **at)

    def _axes(self, trace: Trace, sent: np.ndarray) -> tuple[dict[str, Any], dict[str, Any]]:
        """The axes of one map: the ranks, what each sent in all and, if there is room, received."""
        ranks = in_order(trace)
        names = [str(rank) for rank in ranks]
        outs = [f"{rank} ({text.nbytes(total)})" for rank, total in _each(ranks, sent.sum(axis=1))]
        ins = [
            f"{rank}<br>({text.nbytes(total)})" for rank, total in _each(ranks, sent.sum(axis=0))
        ]
        if self.narrow:
            ins = [name.replace(" ", "<br>") for name in ins]
        axis = {
            "tickvals": list(range(len(ranks))),
            "range": [-0.5, len(ranks) - 0.5],
            "showgrid": False,
            "ticks": "",
            "ticklabelstandoff": 4,
        }
        across = {"ticktext": ins if self.received else names, "side": "top", "tickangle": 0}
        down = {"ticktext": outs if self.numbered else names, "range": axis["range"][::-1]}
        return {**axis, **across}, {**axis, **down}


def _name(figure: go.Figure, name: str, place: int, head: float) -> None:
    """The name of map number `place`, `head` pixels above it."""
    words = {"text": f"<b>{text.cut(name, 40)}</b>", "yshift": head, "showarrow": False}
    corner = {"x": 0, "xanchor": "left", "y": 1, "yanchor": "bottom"}
    number = place + 1 if place else ""
    refs = {"xref": f"x{number} domain", "yref": f"y{number} domain"}
    figure.add_annotation(**words, **corner, **refs)


def _map(trace: Trace, sent: np.ndarray, count: np.ndarray, most: int, scale: bool) -> go.Heatmap:
    """The heat map of one Trace, with the scale of colours if `scale`."""
    ranks, where = in_order(trace), whereabouts(trace)
    names = {rank: text.clean(f"rank {rank}{where.get(rank, '')}") for rank in ranks}
    hovers = [
        [
            _hover_text(names[a], names[b], int(sent[i, j]), int(count[i, j]))
            for j, b in enumerate(ranks)
        ]
        for i, a in enumerate(ranks)
    ]
    return heat_map(
        np.where(count > 0, sent, np.nan),
        max(most, 1),
        hovers,
        hoverongaps=False,
        showscale=scale,
        colorbar={
            "title": {"text": "sent", "side": "right"},
            "tickvals": [most * i / 4 for i in range(5)],
            "ticktext": [text.nbytes(most * i // 4) for i in range(5)],
            "outlinewidth": 0,
            "thickness": 14,
        },
    )


def _each(ranks: list[int], totals: np.ndarray) -> list[tuple[int, int]]:
    return list(zip(ranks, totals.tolist(), strict=True))


def _hover_text(src: str, dst: str, nbytes: int, count: int) -> str:
    many = "1 message" if count == 1 else f"{count} messages"
    return f"<b>{src} → {dst}</b><br>{text.nbytes(nbytes)} in {many}"


def in_order(trace: Trace) -> list[int]:
    """The ranks in the order of rows and columns."""
    return side_by_side(trace, trace.ranks)


def by_group(trace: Trace) -> tuple[np.ndarray, np.ndarray]:
    """Bytes and messages from each rank shown (row) to each (column)."""
    at = [trace.ranks.index(rank) for rank in in_order(trace)]
    sent, count = (column[np.ix_(at, at)] for column in analysis.traffic(trace))
    return sent, count


def _groups(trace: Trace) -> np.ndarray:
    """The number of the host, rack or lowest switch of each rank shown; 0 if there is only one."""
    ranks, number = in_order(trace), group_numbers(rank_groups(trace))
    if number:
        return np.array([number[rank] for rank in ranks])
    return np.array(ranks) // text.topology(trace)["sizes"][0]


def edges(trace: Trace) -> list[float]:
    """The boundaries between hosts or racks, in rows."""
    return (np.flatnonzero(np.diff(_groups(trace))) + 0.5).tolist()


def sentences(named: Mapping[str, Trace], found: list[tuple[np.ndarray, np.ndarray]]) -> list[str]:
    """The lines of the subtitle: clock and machine, then how much each Trace sent."""
    read = text.merged((trace, clock_of(trace)) for trace in named.values())
    lines = [line for trace, clock in read for line in text.provenance(trace, clock)]
    for (name, trace), (sent, count) in zip(named.items(), found, strict=True):
        lines.append((f"{name}: " if name else "") + _sentence(trace, sent, count))
    return lines


def _sentence(trace: Trace, sent: np.ndarray, count: np.ndarray) -> str:
    words, more = _of_messages(trace, sent, count), analysis.collective_bytes(trace)[trace.ranks]
    if not more.any():
        return words
    total = more.sum()
    many = "bytes that are not known" if np.isnan(total) else text.nbytes(int(total))
    return f"{words} The backend's collectives, whose messages are not drawn, sent {many}."


def _of_messages(trace: Trace, sent: np.ndarray, count: np.ndarray) -> str:
    if not count.any():
        return "No message was sent."
    pairs = len(count) * (len(count) - 1)
    words = (
        f"{text.nbytes(int(sent.sum()))} in {int(count.sum())} messages; "
        f"{int((count > 0).sum())} of {pairs} pairs talk"
    )
    group = _groups(trace)
    if group.any():
        across = int(sent[group[:, None] != group].sum())
        kind = text.topology(trace)["kind"]
        what = kind if kind in ("hosts", "racks") else "switches"
        lines = "lines"
        if kind == "hosts":
            lines = f"lines: {', '.join(short(own.name) for own in rank_groups(trace))}"
        words += f"; {text.nbytes(across)} between {what} ({lines}), over links that pairs share"
    outline = text.topology(trace)
    ranks = in_order(trace)
    slow = [place for place, rank in enumerate(ranks) if rank in outline.get("slow", ())]
    if slow:
        crossed = sent.sum() - np.delete(np.delete(sent, slow, 0), slow, 1).sum()
        links = f"slow link{'s' if len(slow) > 1 else ''} of rank{'s' if len(slow) > 1 else ''}"
        named = ", ".join(str(ranks[place]) for place in slow)
        words += f"; {text.nbytes(int(crossed))} over the {links} {named}"
    return words + "."
