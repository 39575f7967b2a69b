"""A plotly figure that follows the theme of the page on which it is shown, light or dark.

plotly writes a figure's colours into the page and does not know the page's own. A figure of theme
"auto" is drawn in the light theme with colours that nothing else has (palette.FOLLOWING). A style
sheet, shown with the figure, replaces them by those of the dark theme while the page is dark. Where
a page strips style sheets (a notebook that is not trusted) the figure stays light.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import plotly.graph_objects as go

from dlviz.viz import palette
from dlviz.viz.words import text
from dlviz.viz.words.labels import MANY, complete, hover

if TYPE_CHECKING:
    from dlviz.trace import Table

WIDE = 700  # pixels: the assumed width of the plot when labels are chosen
CHARACTER, DIGIT, ROUND = 6.5, 5.1, 6  # pixels: of a label, and left and right of it
# Dragging zooms, a double click shows all and the axes pan: few buttons stay clear of titles. The
# first one would upload the figure.
BUTTONS = ["sendChartToCloud", "zoom2d", "pan2d", "select2d", "lasso2d", "zoomIn2d", "zoomOut2d"]
BUTTONS += ["autoScale2d"]
DARK = 'body[data-jp-theme-light="false"] .js-plotly-plot'  # as JupyterLab and nbconvert mark it


ROWS = {"showgrid": False, "ticks": "", "ticklabelstandoff": 6, "fixedrange": True}
"""Settings of an axis of named rows."""


def named_rows(names: Mapping[float, str], low: float, high: float = -0.5) -> dict[str, Any]:
    """An axis with row names by how far down they are, from `high`, its top, to `low`."""
    return {"tickvals": [*names], "ticktext": [*names.values()], "range": [low, high], **ROWS}


def _style() -> str:
    rules = [".jp-OutputArea-child:has(> * > style.dlviz) { display: none }"]
    dark = palette.THEMES["dark"]
    dark = {**dark, "paper": f"var(--jp-layout-color0, {dark['paper']})"}
    for part, color in palette.FOLLOWING.items():
        red, green, blue = (int(color[i : i + 2], 16) for i in (1, 3, 5))
        for what in ("fill", "stroke", *["background"] * (part == "paper")):
            drawn = f'[style*="{what}: rgb({red}, {green}, {blue})"]'
            rules.append(f"{DARK} {drawn} {{ {what}: {dark[part]} !important }}")
    rules.append(f"{DARK} .modebar-btn path {{ fill: {dark['faint']} !important }}")
    rules.append(f"{DARK} .modebar-group {{ background: none !important }}")
    return '<style class="dlviz">\n' + "\n".join(rules) + "\n</style>"


STYLE = _style()


def template(theme: str) -> go.layout.Template:
    """The plotly template of a theme: background, font, axes and hover labels."""
    c = palette.colors(theme)
    axis = {
        "gridcolor": c["grid"],
        "linecolor": c["faint"],
        "zeroline": False,
        "ticks": "outside",
        "tickcolor": c["grid"],
        "title": {"font": {"size": 13}},
        "automargin": True,
    }
    font = {"family": palette.FONT, "size": 12, "color": c["ink"]}
    label = {"bgcolor": c["cell"], "bordercolor": c["faint"], "align": "left"}
    return go.layout.Template(
        layout={
            "paper_bgcolor": c["paper"],
            "plot_bgcolor": c["paper"],
            "font": font,
            "title": {"x": 0, "xref": "paper", "xanchor": "left", "font": {"size": 17}},
            "colorway": palette.LINES,
            "xaxis": axis,
            "yaxis": axis,
            "hovermode": "closest",
            "modebar": {"remove": BUTTONS},
            "hoverlabel": {**label, "font": font},
            "legend": {"title": {"font": {"size": 12}}, "itemsizing": "constant"},
            "margin": {"l": 20, "r": 20, "t": 60, "b": 20},
        }
    )


def bar_series(
    style: palette.Style,
    name: str,
    group: str,
    across: tuple[np.ndarray, np.ndarray],
    down: tuple[np.ndarray, np.ndarray],
    labels: list[str] | None,
    texts: list[str],
) -> go.Bar:
    """Horizontal bars of one look, which a click in the legend hides with their `group`: starts and
    lengths `across`, middles and heights `down`, their labels and hover texts."""
    heights = down[1]
    alike = len(heights) > MANY and np.ptp(heights) < 1e-9  # then one height is sent for all
    return go.Bar(
        name=text.cut(name),
        legendgroup=text.cut(group),
        orientation="h",
        base=across[0],
        x=across[1],
        y=down[0],
        width=heights[0] if alike else heights,
        marker=style.marker(),
        text=labels,
        textposition="inside",
        insidetextanchor="middle",
        textangle=0,
        textfont={"color": style.ink, "size": 11},
        **hover(texts),
    )


def label_width(label: str) -> float:
    """The width in pixels of a bar that fits it; plotly makes numbers smaller if it has to."""
    return len(label) * (DIGIT if label.isdigit() else CHARACTER) + ROUND


def microbatch_labels(spans: Table, lasted: np.ndarray, high: float) -> list[str]:
    """The microbatch of each action; all or none of a rank's actions of one kind have a label. An
    action lasts `lasted` of the `high` seconds that are drawn."""
    words = [str(number) if number >= 0 else "" for number in spans.microbatch.tolist()]
    pixels = (lasted / high * WIDE).tolist()
    fit = (label_width(word) <= wide for word, wide in zip(words, pixels, strict=True))
    return complete(zip(spans.rank.tolist(), spans.kind.tolist(), strict=True), words, fit)


def lay_out(
    figure: go.Figure,
    heading: dict[str, Any],
    details: list[str],
    theme: str,
    inner: float,
    below: float,
    **more: Any,
) -> None:
    """Put heading, theme and (i) on a figure whose axes are `inner` pixels high, with `below` under
    them; `more` is plotly's layout."""
    figure.update_layout(
        template=template(theme),
        title=heading["title"],
        margin={**heading["margin"], "b": below, **more.pop("margin", {})},
        height=heading["margin"]["t"] + inner + below,
        **more,
    )
    if details:
        text.inform(figure, details)


def message_key(name: str, symbol: str, color: str, **options: Any) -> go.Scatter:
    """The legend's entry for messages (`symbol` "arrow" or "x"). plotly would squeeze the series
    itself, tail, middle and head, into one mark."""
    return go.Scatter(
        x=[None],
        y=[None],
        name=name,
        mode="lines+markers",
        line={"color": color, "width": 1.6},
        marker={"color": color, "size": 9, "symbol": symbol.replace("arrow", "triangle-right")},
        hoverinfo="skip",
        **options,
    )


def headings(figure: go.Figure, names: Iterable[tuple[float, str]]) -> None:
    """Bold names at the left edge, at these heights."""
    for y, name in names:
        figure.add_annotation(
            x=0, xref="paper", xanchor="left", y=y, showarrow=False,
            text=f"<b>{text.cut(name, 60)}</b>", font={"size": 12},
        )  # fmt: skip


def heat_map(
    z: np.ndarray, most: float, hovers: list[list[str]], *, showscale: bool = False, **options: Any
) -> go.Heatmap:
    """Cells coloured by their values in `z`, from 0 to `most`, with a text to show for each."""
    return go.Heatmap(
        z=z,
        zmin=0,
        zmax=most,
        colorscale=[[i / 3, color] for i, color in enumerate(palette.TRAFFIC)],
        showscale=showscale,
        xgap=2,
        ygap=2,
        customdata=hovers,
        hovertemplate="%{customdata}<extra></extra>",
        **options,
    )


def changes(series: Any) -> dict[str, Any]:
    """What a picture changes of a series; its name and look stay."""
    all_of_it = series.to_plotly_json()
    changing = ("type", "base", "x", "y", "width", "text", "customdata")
    return {key: all_of_it[key] for key in changing if key in all_of_it}


def slider(first: str, stops: int, gap: float, inner: float, theme: str) -> dict[str, Any]:
    """A slider `gap` pixels below axes that are `inner` high, with `stops` stops; `first` names the
    first one."""
    colors = palette.colors(theme)
    jump = {
        "mode": "immediate",
        "frame": {"duration": 0, "redraw": True},
        "transition": {"duration": 0},
    }
    return {
        "bgcolor": colors["faint"],
        "activebgcolor": colors["ink"],
        "bordercolor": colors["faint"],
        "tickcolor": colors["faint"],
        "active": 0,
        "x": 0,
        "len": 1,
        "y": -gap / inner,
        "yanchor": "top",
        "pad": {"t": 0, "b": 0},
        "currentvalue": {"visible": False},
        "ticklen": 4,
        "font": {"size": 11},
        "steps": [
            {"label": str(i) if i else first, "method": "animate", "args": [[str(i)], jump]}
            for i in range(stops)
        ],
    }


class Figure(go.Figure):
    """A figure that brings the style sheet along in a notebook, and does not play by itself on a
    page."""

    def to_html(self, *args: Any, auto_play: bool = False, **options: Any) -> str:
        return super().to_html(*args, auto_play=auto_play, **options)

    def write_html(self, *args: Any, auto_play: bool = False, **options: Any) -> None:
        super().write_html(*args, auto_play=auto_play, **options)

    def _ipython_display_(self) -> None:
        from IPython.display import display

        display({"text/html": STYLE}, raw=True)
        super()._ipython_display_()
