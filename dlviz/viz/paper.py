"""Sheets of paper: what the figures for print share, from the heading to how a bar is filled.

Lengths are inches from a sheet's left and lower edge, sizes of type are points. A sheet is drawn
with matplotlib, without pyplot and its settings. All text is drawn as written, never read as TeX; a
character that the type lacks is a □.
"""

from __future__ import annotations

import io
import textwrap
from bisect import bisect
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.lines import Line2D
from matplotlib.path import Path
from matplotlib.textpath import text_to_path
from matplotlib.ticker import MaxNLocator

from dlviz.viz import palette
from dlviz.viz.words import text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DPI = 110  # of a sheet saved as PNG
FAMILY = "DejaVu Sans"  # comes with matplotlib
WORDS = {"family": FAMILY, "parse_math": False, "usetex": False}
TITLE, BODY, LABEL, MARK = 11.0, 7.5, 7.0, 5.0  # points
BOLD = 1.15  # the length of bold words, in that of plain ones
LINE = 1.4  # height of a line of type, in its size
MARGIN, AXIS = 0.12, 0.44  # inches: around everything; for the numbers and the title of an axis
NARROWEST = 3.0  # inches

HATCHES = {"": "", ".": "...", "-": "----", "/": "////", "\\": "\\\\\\\\", "x": "xxxx", "+": "+++"}
"""How matplotlib writes each of the palette's patterns; more signs make a denser one."""


class Sheet(Figure):
    """A figure that a notebook shows by itself, as pyplot's are shown."""

    def _repr_png_(self) -> bytes:
        png = io.BytesIO()
        self.savefig(png, format="png")
        return png.getvalue()


def sheet(
    title: str,
    lines: list[str],
    entries: list[tuple[str, Any]],
    body: float,
    width: float,
    theme: str,
) -> tuple[Figure, float]:
    """A sheet with a heading, the `lines` of a subtitle and a legend of (name, handle) `entries`,
    and how far above its lower edge its `body` (its height in inches) begins."""
    colors = palette.colors(theme)
    if not width >= NARROWEST:
        raise ValueError(
            f"width={width!r} inches leave no room for a figure: use {NARROWEST:g} or more."
        )
    inner = width - 2 * MARGIN
    fits = int(inner / length("n", BODY))
    wrapped = [part for line in lines for part in textwrap.wrap(written(line), fits)]
    top = 0.24 + len(wrapped) * BODY * LINE / 72
    names = [written(name, 30) for name, _ in entries]
    entry = 0.5 + max((length(name, BODY) for name in names), default=0.0)
    columns = max(int(inner / entry), 1)
    foot = -(-len(entries) // columns) * 0.17
    height = 3 * MARGIN + top + body + foot
    figure = Sheet((width, height), dpi=DPI, facecolor=colors["paper"])
    figure.set_layout_engine("none")
    below = height - MARGIN - TITLE / 72
    write(figure, MARGIN, below, cut(title, inner / 1.15, TITLE), TITLE, colors["ink"], "bold")
    for i, line in enumerate(wrapped):
        lower = below - 0.1 - (i + 0.5) * LINE * BODY / 72
        write(figure, MARGIN, lower, cut(line, inner, BODY), BODY, colors["faint"])
    if entries:
        legend = figure.legend(
            [handle for _, handle in entries],
            names,
            loc="lower left",
            bbox_to_anchor=(MARGIN / width, MARGIN / height),
            ncols=columns,
            frameon=False,
            fontsize=BODY,
            borderpad=0,
            borderaxespad=0,
        )
        for label in legend.get_texts():
            label.set(color=colors["ink"], **WORDS)
    return figure, MARGIN + foot


def chart(
    title: str,
    lines: list[str],
    entries: list[tuple[str, Any]],
    body: float,
    sides: tuple[float, float],
    width: float,
    theme: str,
) -> tuple[Figure, Axes]:
    """A sheet, and axes with a grid on it, `body` inches high, with `sides` free left and right."""
    figure, foot = sheet(title, lines, entries, body + AXIS, width, theme)
    found = axes(figure, (sides[0], foot + AXIS, width - sum(sides), body), theme)
    found.grid()
    return figure, found


@dataclass(frozen=True)
class Panels:
    """Small axes in a grid, `columns` of them side by side on a sheet `width` inches wide, each
    `high` inches, with `head` for words above it, `left` for names beside each line of panels, and
    a `gutter` between two."""

    columns: int
    width: float
    left: float
    high: float
    head: float
    gutter: float

    @property
    def wide(self) -> float:
        return (self.width - self.left - MARGIN + self.gutter) / self.columns - self.gutter

    def body(self, many: int) -> float:
        """The height of so many panels."""
        return -(-many // self.columns) * (self.high + self.head)

    def at(self, number: int, top: float) -> tuple[float, float]:
        """The left and lower edge of a panel; `top` is the upper edge of them all."""
        line, column = divmod(number, self.columns)
        x = self.left + column * (self.wide + self.gutter)
        return x, top - (line + 1) * (self.high + self.head)


def levels(low: float, high: float) -> tuple[np.ndarray, list[str]]:
    """Numbers for an axis from `low` to `high`, and how they are written."""
    places = np.asarray(MaxNLocator(6).tick_values(low, high))
    places = places[(low <= places) & (places <= high)]
    return places, [f"{place:.4g}" for place in places.tolist()]


def beside(names: list[str], bold: Iterable[str] = ()) -> float:
    """Where axes begin whose rows have these names, and `bold` ones."""
    lengths = [length(name, BODY) for name in names] + [BOLD * length(name, BODY) for name in bold]
    return MARGIN + 0.06 + max(lengths, default=0.0)


def axes(figure: Figure, inches: tuple[float, float, float, float], theme: str) -> Axes:
    """Axes in the theme's colours, `inches` from left and below and wide and high."""
    colors = palette.colors(theme)
    width, height = figure.get_size_inches()
    left, below, wide, high = inches
    axes = figure.add_axes((left / width, below / height, wide / width, high / height))
    axes.set_facecolor(colors["paper"])
    axes.set_axisbelow(True)
    axes.spines[:].set_visible(False)
    axes.tick_params(
        color=colors["grid"],
        labelcolor=colors["ink"],
        labelsize=BODY,
        labelfontfamily=FAMILY,
        grid_color=colors["grid"],
        grid_linewidth=0.6,
    )
    axes.tick_params(axis="y", length=0)
    axes.xaxis.label.set(color=colors["ink"], fontsize=BODY)
    return axes


def ticks(axes: Axes, whole: bool = False) -> None:
    """As many numbers, or `whole` numbers, along the axis as fit side by side."""
    low, high = axes.viewLim.intervalx
    room = axes.bbox.width / DPI
    places, names = np.zeros(0), []
    for count in range(8, 0, -1):
        locator = MaxNLocator(count, steps=(1, 2, 5, 10), integer=whole)
        places = np.asarray(locator.tick_values(low, high))
        places = places[(low <= places) & (places <= high)]
        names = [f"{place:,.12g}" for place in places]
        if 1.5 * sum(length(name, BODY) for name in names) < room:
            break
    axes.set_xticks(places, names, **WORDS)


def rows(axes: Axes, names: dict[float, str], groups: list[float], theme: str) -> None:
    """Names beside the rows of axes, by how far down they are; names at `groups` are bold, on a
    line across."""
    axes.set_yticks([*names], [*names.values()], **WORDS)
    for y, name in zip(names, axes.get_yticklabels(), strict=True):
        if y in groups:
            name.set_fontweight("bold")
            axes.axhline(y, color=palette.colors(theme)["grid"], linewidth=0.9, zorder=0.5)


def titles(axes: Axes, x: str, y: str, theme: str) -> None:
    """The titles of both axes."""
    axes.set_xlabel(text.short(x, 80), loc="right", **WORDS)
    ink = palette.colors(theme)["ink"]
    axes.set_ylabel(text.short(y, 60), color=ink, fontsize=BODY, **WORDS)


def label(
    axes: Axes, x: float, y: float, words: str, ink: str, size: float = LABEL, **options: Any
) -> None:
    """Words on axes, centred at (x, y) unless the `options` of matplotlib's text say otherwise."""
    look = {"ha": "center", "va": "center_baseline", "zorder": 4, **WORDS, **options}
    axes.text(x, y, words, color=ink, fontsize=size, **look)


def arrows(axes: Axes, tails: np.ndarray, heads: np.ndarray, got: np.ndarray, theme: str) -> None:
    """An arrow from each tail to its head, or a line to a cross for a message never received."""
    colors = palette.colors(theme)
    if got.any():
        axes.quiver(
            *tails[got].T,
            *(heads - tails)[got].T,
            angles="xy",
            scale_units="xy",
            scale=1,
            units="inches",
            width=0.015,
            headwidth=5,
            headlength=5.5,
            headaxislength=5.5,
            facecolor=colors["ink"],
            edgecolor=colors["paper"],  # a halo, so that arrows show on bars of their own colour
            linewidth=0.4,
            zorder=3,
        )
    if not got.all():
        gap = np.full_like(heads, np.nan)
        line = np.stack([tails, heads, gap], axis=1)[~got].reshape(-1, 2)
        axes.add_line(Line2D(*line.T, markevery=(1, 3), zorder=3, **_cross(theme)))


def _cross(theme: str) -> dict[str, Any]:
    ink = palette.colors(theme)["ink"]
    return {"color": ink, "linewidth": 0.9, "marker": "x", "markersize": 5}


def marks(theme: str, got: np.ndarray) -> list[tuple[str, Any]]:
    """The legend's entries of messages, of which `got` were received."""
    arrow = {**_cross(theme), "marker": ">"}
    entries = [("message", Line2D([], [], **arrow))] * bool(got.any())
    return entries + [("never received", Line2D([], [], **_cross(theme)))] * (not got.all())


def look(style: palette.Style) -> dict[str, Any]:
    """A style as matplotlib's patches and collections take it."""
    marker = style.marker()
    return {
        "facecolor": style.color if style.solid else "none",
        "edgecolor": marker["line"]["color"],
        "linewidth": 0.75 * marker["line"]["width"],
        "hatch": HATCHES[style.pattern],
        "hatchcolor": marker["pattern"]["fgcolor"],
    }


def boxes(
    name: str,
    left: np.ndarray,
    right: np.ndarray,
    top: np.ndarray,
    bottom: np.ndarray,
    look: dict[str, Any],
    thin: np.ndarray | bool = False,
) -> PathCollection:
    """Rectangles of one name and look as two paths: the `thin` ones, outlined in their fill's
    colour, lie below the others. With one path for many, patterns draw fast."""
    corners = [(left, top), (right, top), (right, bottom), (left, bottom)]
    boxes = np.stack([np.stack(corner, axis=-1) for corner in corners], axis=1)  # (boxes, 4, 2)
    thin = np.broadcast_to(thin, len(boxes))
    paths = [Path.make_compound_path_from_polys(boxes[chosen]) for chosen in (thin, ~thin)]
    outlines = {"edgecolor": [look["facecolor"], look["edgecolor"]]}
    options = {"label": name, "zorder": 2, "hatch_linewidth": 0.5}
    return PathCollection(paths, **options, **{**look, **outlines})


def write(
    figure: Figure, x: float, y: float, words: str, size: float, ink: str, weight: str = "normal"
) -> None:
    """Words from `x` inches to the right and `y` above the figure's lower edge."""
    place = x / figure.get_figwidth(), y / figure.get_figheight()
    figure.text(*place, words, fontsize=size, color=ink, weight=weight, **WORDS)


def cut(name: object, inches: float, size: float) -> str:
    """The name as written, cut to `inches`."""
    words = written(name, 200)
    if length(words, size) <= inches:
        return words
    lengths = range(len(words))
    fits = bisect(lengths, inches, key=lambda n: length(words[:n] + "…", size)) - 1
    return words[: max(fits, 0)] + "…"


def written(name: object, width: int = 10_000) -> str:
    """The name as written, on one line, cut to `width` characters, □ for what cannot be drawn."""
    known = get_font(_font_file()).get_char_index
    flat = "".join(c if c.isprintable() else " " for c in str(name)[: 4 * width])
    return "".join(c if known(ord(c)) else "□" for c in text.short(flat, width))


@cache
def _font_file() -> str:
    return findfont(FontProperties(family=FAMILY))


@lru_cache(10_000)
def length(words: str, size: float) -> float:
    """How many inches the words take in type of `size` points."""
    font = FontProperties(family=FAMILY, size=size)
    return text_to_path.get_text_width_height_descent(words, font, False)[0] / 72
