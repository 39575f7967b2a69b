"""A plotly figure that follows the theme of the page on which it is shown, light or dark.

plotly writes a figure's colours into the page and knows nothing of the page's own. A figure of
theme "auto" is drawn in the light theme with colours that nothing else bears (palette.FOLLOWING). A
style sheet, shown beside the figure, puts those of the dark theme in their place while the page is
dark. Where a page keeps no style sheet (a notebook that is not trusted) the figure stays light.
"""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go

from dlviz.viz import palette

DARK = 'body[data-jp-theme-light="false"] .js-plotly-plot'  # so JupyterLab and nbconvert mark it


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


class Figure(go.Figure):
    """A figure that brings the style sheet along wherever a notebook shows it."""

    def _ipython_display_(self) -> None:
        from IPython.display import display

        display({"text/html": STYLE}, raw=True)
        super()._ipython_display_()
