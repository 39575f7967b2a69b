"""Who sent how much to whom: a row for each sender, a column for each receiver.

                       to 0       to 1       to 2
    from 0 (1.5 MiB)            1.5 MiB                 a ring: each rank to the next one alone
    from 1 (1.5 MiB)                       1.5 MiB
    from 2 (1.5 MiB)  1.5 MiB

A pair without a message is left blank, so that the shape of an algorithm is seen before its numbers
are read. Where the machine has racks, or switches under switches, lines part them: what lies in a
block off the diagonal went over a link that pairs of ranks share.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import plotly.graph_objects as go

from dlviz.viz import palette, text
from dlviz.viz.clocks import clock_of

if TYPE_CHECKING:
    import pandas

    from dlviz.trace import Trace

NUMBERED = 16  # ranks: of more no cell has room for a number
NARROW = 6  # ranks: of more a number and its unit stand on two lines
SCALES = {  # from few bytes to many
    "light": ("#E3F1FB", palette.SKY, palette.BLUE, "#00395A"),
    "dark": ("#0B3552", palette.BLUE, palette.SKY, "#DDF0FC"),
}
INKS = {"light": (palette.BLACK, "#FFFFFF"), "dark": ("#FFFFFF", palette.BLACK)}  # on few, on many
STRONG = 0.55  # of the most: from here on a cell bears the second ink


def traffic(trace: Trace, *, theme: str = "light", title: str | None = None) -> go.Figure:
    """Draw the bytes that each rank sent to each other as a heat map, one number in each cell.

    Messages that were never received count as sent. Raises ValueError for another theme.
    """
    sent, count = _totals(trace)
    ranks = trace.ranks
    most = int(sent.max(initial=0))
    names = [str(rank) for rank in ranks]
    outs = [f"{rank} ({text.nbytes(total)})" for rank, total in _each(ranks, sent.sum(axis=1))]
    numbered = len(ranks) <= NUMBERED
    narrow = len(ranks) > NARROW
    ins = [f"{rank}<br>({text.nbytes(total)})" for rank, total in _each(ranks, sent.sum(axis=0))]
    if narrow:
        ins = [name.replace(" ", "<br>") for name in ins]
    figure = go.Figure(
        go.Heatmap(
            z=np.where(count > 0, sent, np.nan),
            zmin=0,
            zmax=max(most, 1),
            colorscale=[[i / 3, color] for i, color in enumerate(SCALES[palette.checked(theme)])],
            xgap=2,
            ygap=2,
            hoverongaps=False,
            customdata=[
                [_told(a, b, int(sent[i, j]), int(count[i, j])) for j, b in enumerate(ranks)]
                for i, a in enumerate(ranks)
            ],
            hovertemplate="%{customdata}<extra></extra>",
            colorbar={
                "title": {"text": "sent", "side": "top"},
                "tickvals": [most * i / 4 for i in range(5)],
                "ticktext": [text.nbytes(most * i // 4) for i in range(5)],
                "outlinewidth": 0,
                "thickness": 14,
            },
        )
    )
    for i, j in np.argwhere(count > 0).tolist() if numbered else ():
        words = text.nbytes(int(sent[i, j])).replace(" ", "<br>" if narrow else " ")
        ink = INKS[theme][int(sent[i, j] > STRONG * most)]
        font = {"color": ink, "size": 12 if len(ranks) <= 8 else 9}
        figure.add_annotation(x=j, y=i, text=words, showarrow=False, font=font)
    for edge in _edges(trace):
        line = {"color": palette.colors(theme)["ink"], "width": 2}
        figure.add_hline(edge, line=line)
        figure.add_vline(edge, line=line)

    clock = clock_of(trace, None)
    lines = [text.subtitle(trace, clock), *_sentences(trace, sent, count)]
    heading = text.heading(title or "Who sent how much to whom", "<br>".join(lines))
    side = min(max(len(ranks) * 62, 220), 620)
    top = heading["margin"]["t"] + (82 if numbered and narrow else 64)
    axis = {
        "tickvals": list(range(len(ranks))),
        "range": [-0.5, len(ranks) - 0.5],
        "showgrid": False,
        "ticks": "",
        "ticklabelstandoff": 4,
    }
    figure.update_layout(
        template=palette.template(theme),
        title=heading["title"],
        margin={"t": top, "l": 130, "r": 110, "b": 16},
        height=top + side + 16,
        width=max(side + 240, 680),
        plot_bgcolor=palette.colors(theme)["cell"],
        xaxis={
            **axis,
            "ticktext": ins if numbered else names,
            "side": "top",
            "tickangle": 0,
            "title": "to rank (received in all)" if numbered else "to rank",
        },
        yaxis={
            **axis,
            "range": [len(ranks) - 0.5, -0.5],
            "ticktext": outs if numbered else names,
            "title": "from rank (sent in all)" if numbered else "from rank",
        },
    )
    text.inform(figure, text.details(trace, clock))
    return figure


def traffic_table(trace: Trace) -> pandas.DataFrame:
    """The same as a table: bytes from the rank of the row to that of the column, and in the last
    row and column what each received and sent in all."""
    import pandas

    table = pandas.DataFrame(_totals(trace)[0], index=trace.ranks, columns=trace.ranks)
    table.index.name, table.columns.name = "from", "to"
    table["sent"] = table.sum(axis=1)
    table.loc["received"] = table.sum(axis=0)
    return table


def _totals(trace: Trace) -> tuple[np.ndarray, np.ndarray]:
    """Bytes and messages from each rank (row) to each (column) of those the Trace tells of."""
    ranks, table = trace.meta["ranks"], trace.messages
    sent, count = np.zeros((2, ranks, ranks), np.int64)
    np.add.at(sent, (table.src, table.dst), np.maximum(table.nbytes, 0))
    np.add.at(count, (table.src, table.dst), 1)
    shown = np.ix_(trace.ranks, trace.ranks)
    return sent[shown], count[shown]


def _each(ranks: list[int], totals: np.ndarray) -> list[tuple[int, int]]:
    return list(zip(ranks, totals.tolist(), strict=True))


def _told(src: int, dst: int, nbytes: int, count: int) -> str:
    many = "1 message" if count == 1 else f"{count} messages"
    return f"<b>rank {src} → rank {dst}</b><br>{text.nbytes(nbytes)} in {many}"


def _groups(trace: Trace) -> np.ndarray:
    """The number of the rack or lowest switch of each rank shown; 0 where there is but one."""
    return np.array(trace.ranks) // text.topology(trace)["sizes"][0]


def _edges(trace: Trace) -> list[float]:
    """Between which rows a rack ends and the next begins."""
    return (np.flatnonzero(np.diff(_groups(trace))) + 0.5).tolist()


def _sentences(trace: Trace, sent: np.ndarray, count: np.ndarray) -> list[str]:
    if not count.any():
        return ["No message was sent."]
    pairs = len(count) * (len(count) - 1)
    told = [
        f"{text.nbytes(int(sent.sum()))} in {int(count.sum())} messages; "
        f"{int((count > 0).sum())} of {pairs} pairs talk."
    ]
    group = _groups(trace)
    if group.any():
        across = int(sent[group[:, None] != group].sum())
        what = "racks" if text.topology(trace)["kind"] == "racks" else "switches"
        told.append(f"{text.nbytes(across)} between {what} (lines), over links that pairs share.")
    return told
