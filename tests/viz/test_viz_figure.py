"""A figure shown in a notebook brings a style sheet along, by which it follows the page's theme."""

from __future__ import annotations

import re

import numpy as np
import plotly.io as pio
import pytest
from test_viz_compare import COSTS, ran
from test_viz_cost_map import RUNS as LAYERS
from test_viz_cost_map import price
from test_viz_density import ran as sparse_run
from test_viz_federated import ROUNDS
from test_viz_losses import CURVES, replicas
from test_viz_matrices import made_by_hand
from test_viz_spectrum import CROWDED
from test_viz_stability import RUNS, radius
from test_viz_staleness import served

from dlviz import patterns, viz
from dlviz.machine import classroom
from dlviz.schedules import NAMES, make
from dlviz.sim import Costs, collective, simulate
from dlviz.sim.placement import BRANCHES, Devices, play
from dlviz.viz import palette
from dlviz.viz.charts.figure import STYLE

COLOR = re.compile(r"#[0-9A-Fa-f]{6}\b")


def one_of_each(**theme):
    trace = simulate(make("1f1b", 2, 3))
    ring = collective("ring", 2, 64, classroom(2))
    return {
        "timeline": viz.timeline(trace, critical=True, **theme),
        "breakdown": viz.breakdown(trace, **theme),
        "bubble": viz.bubble(trace, **theme),
        "compare": viz.compare(trace, simulate(make("1f1b", 2, 3), Costs(2.0)), **theme),
        "memory": viz.memory(trace, **theme),
        "memory_bars": viz.memory_bars(
            {"a": {"gradients": 2, "other": 1}}, formula={"a": 2}, **theme
        ),
        "memory_by_kind": viz.memory_by_kind(trace, **theme),
        "cut_map": viz.cut_map({"a": [[1]]}, channels=[1], sizes=[1], **theme),
        "stationary": viz.stationary([(2, 2)], **theme),
        "layer_path": viz.layer_path([[1, 2]], np.ones((0, 2, 2)), [0], **theme),
        "memory_map": viz.memory_map({"a": [[1]]}, parameters=[1], ranks=[1], memory=2, **theme),
        "traffic": viz.traffic(ring, **theme),
        "messages": viz.messages(ring, **theme),
        "costs": viz.costs([1, 9], {"ring": [1, 2]}, measured={"ring": [(3, 4)]}, **theme),
        "curve": viz.curve([1.0, 2.0], **theme),
        "spread": viz.spread({"a": {8: [1.0, 2.0], 16: [1.0]}}, **theme),
        "spectrum": viz.spectrum(CROWDED, target=0.5, **theme),
        "losses": viz.losses(CURVES, **theme),
        "density": viz.density(sparse_run(0.3, 0.3), **theme),
        "disagreement": viz.disagreement({"gossip": replicas(0.1)}, **theme),
        "staleness": viz.staleness({"a": served()}, **theme),
        "stability": viz.stability(radius, RUNS, **theme),
        "matrices": viz.matrices(made_by_hand(), **theme),
        "cost_map": viz.cost_map(price, LAYERS, **theme),
        "quantiser": viz.quantiser([0.0, 1.0], {"a": [[0, 1], [1, 1]], "b": [0, 1]}, **theme),
        "compression_map": viz.compression_map(
            {"a": [[1.0]], "b": [[2.0]]}, bandwidth=[1e6], ranks=[2], **theme
        ),
        "bars": viz.bars({"a": {1: 2.0}}, **theme),
        "cells": viz.cells([[1, 2]], **theme),
        "participation": viz.participation(ROUNDS, 3, **theme),
        "drift": viz.drift({"a": [[1.0, 2.0]]}, **theme),
        "images": viz.images({"a": [64 * [0.5]]}, **theme),
        "placement": viz.placement(
            play(BRANCHES, [0, 1, 0, 0, 0, 0], Devices(2)), BRANCHES.parents, **theme
        ),
        "best_so_far": viz.best_so_far({"a": [[2.0, 1.0]]}, **theme),
        "probabilities": viz.probabilities([[[0.5, 0.5]]], **theme),
        "predicted": viz.predicted([1.0], [2.0], **theme),
    }


def test_the_main_pictures_of_the_labs_fit_on_a_screen():
    gpipe = make("gpipe", 8, 8)
    sizes, steps = np.geomspace(100, 1e7, 50), simulate(make("1f1b", 8, 8))
    lines = {name: sizes / 1e7 for name in patterns.TITLES}
    pictures = {
        "compare": viz.compare(simulate(gpipe, COSTS), ran(gpipe, COSTS, machine="8 " * 60)),
        "bubble": viz.bubble({name: simulate(make(name, 4, 8)) for name in NAMES}),
        "breakdown": viz.breakdown(steps),
        "costs": viz.costs(sizes, lines, show="bus", ranks=8, link=1e7),
        "curve": viz.curve({name: [1.0, 2.0] for name in NAMES}),
    }
    heights = {name: one.layout.height for name, one in pictures.items()}
    assert {name: height for name, height in heights.items() if height > 640} == {}


def colors_of(figure) -> set[str]:
    return {color.upper() for color in COLOR.findall(figure.to_json())}


def test_by_default_a_figure_has_colours_that_the_page_may_replace_and_no_others_of_a_theme():
    pages, themes = ({*colors.values()} for colors in (palette.FOLLOWING, palette.THEMES["light"]))
    for name, figure in one_of_each().items():
        assert figure.layout.template.layout.paper_bgcolor == palette.FOLLOWING["paper"], name
        # white is the ink of labels on blue, and plotly's buttons stay light
        left = colors_of(figure) & themes - {"#FFFFFF"}
        assert not left or name == "messages", (name, left)
    for theme in palette.THEMES:
        for name, figure in one_of_each(theme=theme).items():
            assert not colors_of(figure) & pages, (name, theme)


def test_a_kind_has_the_same_colours_in_every_theme():
    neutral = {c for one in (palette.FOLLOWING, *palette.THEMES.values()) for c in one.values()}
    by_theme = [one_of_each(**theme) for theme in ({}, {"theme": "light"}, {"theme": "dark"})]
    for name in by_theme[0]:
        first, *others = (colors_of(figures[name]) - neutral for figures in by_theme)
        assert first and all(hues == first for hues in others), name


def test_the_colours_to_replace_are_one_step_from_light_and_no_kind_has_them():
    kinds = {color for style in palette.KINDS.values() for color in (style.color, style.edge)}
    for part, color in palette.FOLLOWING.items():
        assert abs(int(color[1:], 16) - int(palette.THEMES["light"][part][1:], 16)) == 1
        assert color not in kinds


@pytest.mark.parametrize("part", palette.FOLLOWING)
def test_the_style_sheet_puts_each_colour_of_the_dark_theme_in_its_place(part):
    red, green, blue = (int(palette.FOLLOWING[part][i : i + 2], 16) for i in (1, 3, 5))
    for what in ("fill", "stroke"):
        (rule,) = re.findall(rf'"{what}: rgb\({red}, {green}, {blue}\)"\] {{ (.+?) }}', STYLE)
        assert palette.THEMES["dark"][part] in rule and rule.endswith("!important")


def test_a_notebook_gets_the_style_sheet_beside_each_figure(monkeypatch):
    from IPython.core.displaypub import CapturingDisplayPublisher
    from IPython.core.interactiveshell import InteractiveShell

    monkeypatch.setattr(pio.renderers, "default", "plotly_mimetype")
    shell = InteractiveShell.instance()
    try:
        shell.display_pub = CapturingDisplayPublisher()
        shell.display_formatter.format(viz.curve([1.0]))
        style, figure = (output["data"] for output in shell.display_pub.outputs)
    finally:
        InteractiveShell.clear_instance()
    assert style == {"text/html": STYLE}
    assert [*figure] == ["application/vnd.plotly.v1+json"]


def test_bars_take_numbers_without_a_name_and_refuse_what_is_none():
    drawn = viz.bars({"ring": 1, "tree": np.float32(2.5), "star": None})
    assert drawn.data[0].x == ("ring", "tree", "star") and not drawn.layout.showlegend
    np.testing.assert_array_equal(drawn.data[0].y, [1.0, 2.5, np.nan])
    for draw in (viz.bars, viz.print.bars):
        draw({"ring": 1})
        for name, values in (("a", {"a": [1, 2]}), ("a", {"a": 1, "b": {"c": 2}}), ("values", [1])):
            with pytest.raises(ValueError, match=f"^{name} is not a number per thing: give"):
                draw(values)
