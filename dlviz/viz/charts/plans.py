"""The plans for a model on many devices: the best plan that fits for each pipeline length and
tensor-parallel degree, or how much memory the smallest one needs.

    stages  4 |  2.1 s    2.4 s    ////       tint: seconds of a step
    (pp)    2 | [1.8 s]   2.0 s    2.9 s      frame: the best of all
            1 |  ////     1.9 s    2.2 s      hatched: none of its plans fits
              +--- 1 ------ 2 ------ 4 --- ranks of tensor parallelism (tp)

What pp and tp leave of the devices is dp, the replicas.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go

from dlviz.viz import palette
from dlviz.viz.charts.figure import Figure, heat_map, lay_out
from dlviz.viz.words import text

TITLE = "The best plan of each shape"
ACROSS, DOWN = "ranks that share a layer (tp)", "stages (pp)"
STRONG = 0.55  # of the scale: from here on the text of a cell is white
CELL, HIGHEST = 44, 440  # pixels: a row at most, all rows
NUMBERED = 12  # columns: with more, no cell has room for a number
SLOWEST = 8.0  # times the best: from here on all cells look alike

Row = Mapping[str, Any]


@dataclass(frozen=True)
class PlanCell:
    """The plan that a cell shows, the fastest that fits, or the one that needs the least memory if
    none does; how many plans it has, and its place from the left and from below."""

    plan: Row
    plans: int
    x: int
    y: int

    @property
    def words(self) -> tuple[str, str]:
        """The text of a cell: seconds, or the bytes of a plan that does not fit, and dp."""
        fits = self.plan["fits"]
        number = text.seconds(self.plan["seconds"]) if fits else memory(self.plan)
        return number, f"dp {self.plan['dp']}"


@dataclass(frozen=True)
class PlanMap:
    """The cells of a map, its columns (tp) and rows (pp, from below), and the best plan that fits,
    if any."""

    cells: list[PlanCell]
    tp: list[int]
    pp: list[int]
    best: PlanCell | None

    @property
    def slowness(self) -> np.ndarray:
        """The seconds of each cell over those of the best, on a scale from 0 to 1; NaN where
        nothing fits or there is no plan."""
        found = np.full((len(self.pp), len(self.tp)), np.nan)
        for cell in self.cells:
            if cell.plan["fits"] and self.best:
                times = cell.plan["seconds"] / self.best.plan["seconds"]
                found[cell.y, cell.x] = min(np.log(times) / np.log(SLOWEST), 1.0)
        return found


def plans(rows: Sequence[Row], *, theme: str = "auto", title: str = TITLE) -> Figure:
    """Draw the plans `rows` of `dlviz.sim.plans`, one cell for each tp and pp.

    Raises ValueError where there is no plan, and for an unknown theme.
    """
    found = map_of(rows)
    colors = palette.colors(theme)
    figure = Figure(_heat(found))
    for cell in found.cells:
        if not cell.plan["fits"]:
            _hatch(figure, cell, colors)
    if found.best:
        ink = {"color": colors["ink"], "width": 3}
        figure.add_shape(type="rect", line=ink, layer="above", **_corners(found.best))
    if len(found.tp) <= NUMBERED:
        for cell in found.cells:
            figure.add_annotation(_label(cell, found, colors))
    lines = [text.wrap(line, text.LINE) for line in summary(found, rows)]
    lay_out(
        figure,
        text.heading(title, "<br>".join(lines)),
        [],
        theme,
        inner=min(max(CELL * len(found.pp), 120), HIGHEST),
        below=56,
        plot_bgcolor=colors["paper"],
        xaxis={"title": ACROSS, "tickvals": [*range(len(found.tp))], "ticktext": found.tp,
               "range": [-0.5, len(found.tp) - 0.5], "showgrid": False, "ticks": ""},
        yaxis={"title": DOWN, "tickvals": [*range(len(found.pp))], "ticktext": found.pp,
               "range": [-0.5, len(found.pp) - 0.5], "showgrid": False, "ticks": ""},
    )  # fmt: skip
    return figure


def map_of(rows: Sequence[Row]) -> PlanMap:
    """The plans by cell. Raises ValueError where there is none."""
    if not rows:
        raise ValueError("there is no plan to draw: give the rows of dlviz.sim.plans.")
    tp, pp = (sorted({row[axis] for row in rows}) for axis in ("tp", "pp"))
    by_cell: dict[tuple[int, int], list[Row]] = {}
    for row in rows:
        by_cell.setdefault((tp.index(row["tp"]), pp.index(row["pp"])), []).append(row)
    cells = []
    for (x, y), own in by_cell.items():
        fit = [row for row in own if row["fits"]]
        shown = (
            min(fit, key=lambda row: row["seconds"])
            if fit
            else min(own, key=lambda row: row["memory"])
        )
        cells.append(PlanCell(shown, len(own), x, y))
    fitting = [cell for cell in cells if cell.plan["fits"]]
    best = min(fitting, key=lambda cell: cell.plan["seconds"], default=None)
    return PlanMap(cells, tp, pp, best)


def summary(found: PlanMap, rows: Sequence[Row]) -> list[str]:
    """The subtitle: how many plans fit, and the best of them."""
    fit = sum(bool(row["fits"]) for row in rows)
    counted = f"{fit:,} of {len(rows):,} plans fit."
    if not found.best:
        return [_smallest(rows), counted + " A cell has the memory of its smallest plan."]
    plan = found.best.plan
    best = (
        f"The best (framed): dp {plan['dp']}, pp {plan['pp']}, tp {plan['tp']}, microbatches of "
        f"{plan['microbatch']}, {text.TITLES.get(plan['schedule'], plan['schedule'])}, recompute: "
        f"{plan['recompute']}."
    )
    return [best, counted + " Hatched: none fits; the memory is that of the smallest."]


def _smallest(rows: Sequence[Row]) -> str:
    """What the plan nearest to fitting lacks."""
    plan = min(rows, key=lambda row: row["memory"])
    where = "on each rank" + (f" of stage {plan['stage']}" if plan["pp"] > 1 else "")
    return (
        f"The smallest, dp {plan['dp']}, pp {plan['pp']}, tp {plan['tp']}, needs {memory(plan)} "
        f"{where}: {text.nbytes(round(plan['over']))} too many."
    )


def memory(plan: Row) -> str:
    """The bytes that a rank needs for a plan."""
    return text.nbytes(round(plan["memory"]))


def _heat(found: PlanMap) -> go.Heatmap:
    words = [["" for _ in found.tp] for _ in found.pp]
    for cell in found.cells:
        words[cell.y][cell.x] = _hover(cell)
    return heat_map(found.slowness, 1, words, hoverongaps=True)


def _hover(cell: PlanCell) -> str:
    plan = cell.plan
    fate = "" if plan["fits"] else ", which does not fit"
    return (
        f"<b>dp {plan['dp']}, pp {plan['pp']}, tp {plan['tp']}</b><br>"
        f"{text.seconds(plan['seconds'])} a step, {memory(plan)} on a rank{fate}<br>"
        f"microbatches of {plan['microbatch']}, "
        f"{text.TITLES.get(plan['schedule'], plan['schedule'])}, recompute: {plan['recompute']}"
        f"<br>limited by {plan['limited_by']}; {cell.plans} plans of this shape"
    )


def _hatch(figure: Figure, cell: PlanCell, colors: dict[str, str]) -> None:
    """A crossed-out cell."""
    line = {"color": colors["faint"], "width": 1}
    corners = _corners(cell)
    figure.add_shape(type="rect", line=line, fillcolor=colors["cell"], layer="below", **corners)
    figure.add_shape(type="line", line={**line, "dash": "dot"}, layer="below", **corners)


def _corners(cell: PlanCell) -> dict[str, float]:
    x, y = cell.x, cell.y
    return {"x0": x - 0.48, "x1": x + 0.48, "y0": y - 0.46, "y1": y + 0.46}


def _label(cell: PlanCell, found: PlanMap, colors: dict[str, str]) -> dict[str, Any]:
    number, dp = cell.words
    strong = found.slowness[cell.y, cell.x]
    ink = colors["ink"]
    if cell.plan["fits"]:
        ink = palette.WHITE if strong > STRONG else palette.BLACK
    return {
        "x": cell.x,
        "y": cell.y,
        "text": f"{number}<br>{dp}",
        "showarrow": False,
        "font": {"size": 11, "color": ink},
    }
