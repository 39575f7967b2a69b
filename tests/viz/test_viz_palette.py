"""Colours that any eye distinguishes, on light and dark, and words that are shown as written."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import plotly.graph_objects as go
import pytest

from dlviz import viz
from dlviz.viz import palette
from dlviz.viz.charts.figure import template
from dlviz.viz.words import text

KINDS = (
    "forward recompute backward backward_input backward_weight update send recv collective wait "
    "compress copy data idle phase lock step"
).split()

# Machado, Oliveira and Fernandes, 2009, severity 1.0; applied to linear RGB
DEFICIENCIES = {
    "none": np.eye(3),
    "protanopia": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "tritanopia": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])


def linear(color: str) -> np.ndarray:
    c = np.array([int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)


def lab(rgb: np.ndarray) -> np.ndarray:
    xyz = TO_XYZ @ np.clip(rgb, 0, 1) / np.array([0.9505, 1, 1.089])
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def contrast(a: str, b: str) -> float:
    light, dark = sorted((float(TO_XYZ[1] @ linear(c)) for c in (a, b)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("seen_with", DEFICIENCIES)
@pytest.mark.parametrize("what", ["kinds", "ranks"])
def test_two_styles_of_one_pattern_differ_in_colour_for_every_eye(what, seen_with):
    ranks = {rank: palette.rank_style(rank) for rank in range(13)}
    styles = {"kinds": palette.KINDS, "ranks": ranks}[what]
    eye = np.array(DEFICIENCIES[seen_with])
    for (a, one), (b, other) in combinations(styles.items(), 2):
        if one.pattern == other.pattern:
            gap = np.linalg.norm(lab(eye @ linear(one.color)) - lab(eye @ linear(other.color)))
            assert gap > 15, (a, b)  # Okabe and Ito's own closest pair is 16 apart


@pytest.mark.parametrize("seen_with", DEFICIENCIES)
def test_two_methods_differ_in_hue_for_every_eye_and_in_their_marks(seen_with):
    eye = np.array(DEFICIENCIES[seen_with])
    titles, hues, marks = zip(*palette.METHODS.values(), strict=True)
    assert len(set(marks)) == len(set(titles)) == len(hues)
    for one, other in combinations(hues, 2):
        assert np.linalg.norm(lab(eye @ linear(one)) - lab(eye @ linear(other))) > 15, (one, other)
    for theme in palette.THEMES.values():
        assert all(contrast(hue, theme["paper"]) >= 2 for hue in hues)


def test_the_actions_of_a_pipeline_differ_without_colour():
    actions = [kind for kind in palette.KINDS if kind.startswith(("forward", "backward"))]
    assert len({palette.KINDS[kind].pattern for kind in actions}) == len(actions) == 4
    for kind in actions:
        style = palette.KINDS[kind]
        assert not style.pattern or contrast(style.line, style.color) > 1.4, kind


def test_idle_and_waiting_look_the_same_on_light_and_dark():
    idle, wait = palette.KINDS["idle"].marker(), palette.KINDS["wait"].marker()
    assert idle["color"] == idle["pattern"]["bgcolor"] == "rgba(0, 0, 0, 0)"  # lines on paper
    for theme in palette.THEMES.values():
        assert contrast(idle["pattern"]["fgcolor"], theme["paper"]) >= 3
        assert contrast(wait["color"], theme["paper"]) >= 1.8  # a block of its own


def test_every_kind_has_a_look_of_its_own():
    assert set(palette.KINDS) == set(KINDS)
    assert len(set(palette.KINDS.values())) == len(KINDS)
    assert palette.KINDS["wait"].pattern and palette.KINDS["idle"].pattern
    assert len({palette.rank_style(rank) for rank in range(28)}) == 28


def test_labels_are_black_but_on_the_blue_and_read_everywhere():
    for kind, style in palette.KINDS.items():
        assert (style.ink == "#FFFFFF") == (style.color == "#0072B2"), kind
        for below in [style.color, *[style.line] * bool(style.pattern)] * style.solid:
            assert contrast(style.ink, below) >= 4.5, kind
        if style.solid:
            pale = palette.pale(style)
            assert contrast(pale.ink, pale.color) >= 4.5, kind


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_theme_paints_its_own_background_and_its_words_read_on_it(theme):
    layout = template(theme).layout
    assert layout.paper_bgcolor == layout.plot_bgcolor == palette.THEMES[theme]["paper"]
    assert contrast(layout.font.color, layout.paper_bgcolor) >= 7
    assert contrast(palette.THEMES[theme]["faint"], layout.paper_bgcolor) >= 4.5
    for color in palette.LINES:
        assert contrast(color, layout.paper_bgcolor) >= 2  # lines are 2 px wide and dashed
    assert palette.KINDS["compress"].marker()["line"]["width"] > 1  # the yellow is outlined


def test_an_unknown_theme_is_refused():
    with pytest.raises(ValueError, match="theme='blue' is not a theme of the figures: use one"):
        template("blue")


def test_every_view_refuses_an_unknown_theme():
    from viz_scenes import data_parallel, ring

    for draw, trace in (
        (viz.timeline, data_parallel(2)),
        (viz.breakdown, data_parallel(2)),
        (viz.messages, ring(2, 4)),
        (viz.curve, [1.0]),
    ):
        with pytest.raises(ValueError, match="theme='no'"):
            draw(trace, theme="no")


def test_markup_and_tex_are_shown_as_written():
    assert text.clean("<b>a</b> & $x$\n\tb") == "&lt;b&gt;a&lt;/b&gt; &amp; &#36;x&#36; b"
    assert text.cut("<" * 30, 5) == "&lt;" * 4 + "…"
    assert text.wrap("n" * 500, 60).split("<br>") == ["n" * 60] * 8 + ["n" * 20]
    assert text.wrap("<i> " * 40).count("<i>") == 0


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0.0031, "3.1 ms"),
        (2.0, "2 s"),
        (4e-6, "4 µs"),
        (0.0, "0 ms"),
        (1500.0, "1,500 s"),
        (2e-9, "0.002 µs"),
    ],
)
def test_a_duration_is_in_the_unit_that_reads_best(value, words):
    assert text.seconds(value) == words


@pytest.mark.parametrize(("span", "name"), [(90.0, "s"), (1.0, "ms"), (4e-4, "µs"), (0.0, "µs")])
def test_an_axis_has_the_unit_that_reads_best(span, name):
    assert text.unit(span)[0] == name


@pytest.mark.parametrize(
    ("size", "words"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (999, "999 bytes"),
        (1000, "1 KB"),
        (4096, "4.1 KB"),
        (999_600, "1 MB"),
        (1 << 20, "1.05 MB"),
        (3 << 40, "3,299 GB"),
    ],
)
def test_a_size_is_in_decimal_units(size, words):
    assert text.nbytes(size) == words


def test_every_style_is_one_that_plotly_knows():
    for style in (*palette.KINDS.values(), palette.OTHER, palette.UNDECODED):
        bar = go.Bar(x=[1], marker=style.marker())
        assert bar.marker.line.color == style.edge
        if style.solid:
            assert contrast(style.edge, "#FFFFFF") > contrast(style.color, "#FFFFFF")
