"""Cost curves are the numbers given; crossovers lie where the closed forms are equal."""

from __future__ import annotations

import numpy as np
import pytest

from dlviz import metrics, viz
from dlviz.patterns import TITLES
from dlviz.sim import collective_seconds

ALPHA, BETA, GAMMA = 10e-6, 1e-9, 1e-10
SIZES = np.geomspace(64, 2**28, 60)
NAMES = ("ring", "parameter_server", "tree", "butterfly", "halving_doubling", "direct")


def priced(ranks, names=NAMES, sizes=SIZES):
    return {
        name: [collective_seconds(name, ranks, n, ALPHA, BETA, GAMMA) for n in sizes]
        for name in names
    }


def series(figure):
    return {line.name: line for line in figure.data}


def test_a_line_holds_the_seconds_of_its_algorithm():
    given = priced(6)
    drawn = series(viz.costs(SIZES, given))
    for name, seconds in given.items():
        np.testing.assert_array_equal(drawn[TITLES[name]].x, SIZES)
        np.testing.assert_array_equal(drawn[TITLES[name]].y, seconds)
    assert len({drawn[TITLES[name]].line.color for name in given}) == len(given)
    np.testing.assert_array_equal(drawn["the cheapest"].y, np.min([*given.values()], axis=0))


@pytest.mark.parametrize("points", [2, 7, 60])
@pytest.mark.parametrize("ranks", [2, 3, 4, 6, 8, 13, 64])
def test_at_a_crossover_both_algorithms_cost_the_same_and_no_other_less(ranks, points):
    sizes = np.geomspace(64, 2**28, points)
    crossed = viz.crossovers(sizes, priced(ranks, sizes=sizes))
    for size, before, after in crossed:
        at = {name: collective_seconds(name, ranks, size, ALPHA, BETA, GAMMA) for name in NAMES}
        assert at[before] == pytest.approx(at[after], rel=1e-9)
        assert at[before] <= min(at.values()) * (1 + 1e-9)
    order = [size for size, _, _ in crossed]
    assert order == sorted(order)
    for (_, _, after), (_, before, _) in zip(crossed, crossed[1:], strict=False):
        assert after == before


def test_butterfly_gives_way_to_halving_doubling_where_the_formulas_say():
    """4 ranks: 2(a + n(b + c)) = 4a + 3/4 n(2b + c) at n = 2a / (b/2 + 5c/4)."""
    ((size, before, after),) = viz.crossovers(SIZES, priced(4))
    assert (before, after) == ("butterfly", "halving_doubling")
    assert size == pytest.approx(2 * ALPHA / (BETA / 2 + 5 * GAMMA / 4), rel=1e-12)


def test_three_algorithms_that_cross_between_two_sizes_are_all_named():
    sizes = [1.0, 101.0]
    lines = {"a": [1.0, 101.0], "b": [20.0, 30.0], "c": [40.0, 10.0], "d": [90.0, 90.0]}
    crossed = viz.crossovers(sizes, lines)
    assert [(before, after) for _, before, after in crossed] == [("a", "b"), ("b", "c")]
    assert [size for size, _, _ in crossed] == pytest.approx([1 + 19 / 0.9, 1 + 20 / 0.4])


def test_equal_algorithms_do_not_take_turns():
    lines = {"ring": SIZES * 1e-9, "hierarchical": SIZES * 1e-9 * (1 + 1e-14)}
    lines["hierarchical"][::2] *= 1 - 3e-14
    assert viz.crossovers(SIZES, lines) == []


@pytest.mark.parametrize(
    ("show", "expected"),
    [("algorithm", metrics.algorithm_bandwidth),
     ("bus", lambda n, s: metrics.bus_bandwidth("all_reduce", 6, n, s))],
)  # fmt: skip
def test_bandwidths_are_those_of_nccl_tests(show, expected):
    given = priced(6)
    figure = viz.costs(SIZES, given, show=show, ranks=6, measured={"ring": [(2**20, 2e-3)]})
    drawn = series(figure)
    np.testing.assert_allclose(drawn["tree"].y, expected(SIZES, np.array(given["tree"])))
    assert drawn["ring, measured"].y[0] == pytest.approx(expected(2**20, 2e-3))
    assert figure.layout.yaxis.title.text == f"{show} bandwidth"
    assert "bandwidth: size / time" in figure.layout.title.subtitle.text.lower()
    axis, top = figure.layout.yaxis, max(max(line.y) for line in figure.data)
    assert axis.type is None and axis.range[0] == 0 and axis.range[1] > top  # a linear axis
    assert axis.ticktext[0] == "0" and axis.tickvals[-1] >= top  # marked up to its end


def test_the_speed_of_the_link_is_a_line_with_its_name():
    figure = viz.costs(SIZES, priced(6), show="bus", ranks=6, link=5e9)
    (line,) = figure.layout.shapes
    assert line.y0 == line.y1 == 5e9
    assert "the link: 5 GB/s" in [each.text for each in figure.layout.annotations]
    assert figure.layout.yaxis.range[1] > 5e9
    for link, show in ((5e9, "seconds"), (0, "bus"), (np.inf, "bus")):
        with pytest.raises(ValueError, match=f"^link={link!r} cannot be drawn: give bytes"):
            viz.costs(SIZES, priced(6), show=show, ranks=6, link=link)


def test_measured_points_have_the_colour_of_their_line_and_a_mark_of_their_own():
    drawn = series(viz.costs(SIZES, priced(4), measured={"tree": [(1024, 1e-3), (4096, 2e-3)]}))
    marks = drawn["tree, measured"]
    assert marks.mode == "markers" and marks.marker.color == drawn["tree"].line.color
    assert list(marks.x) == [1024, 4096] and list(marks.y) == [1e-3, 2e-3]


def test_the_crossovers_are_marked_and_stated():
    figure = viz.costs(SIZES, priced(4))
    marks = series(figure)["another is cheapest"]
    ((size, _, after),) = viz.crossovers(SIZES, priced(4))
    assert list(marks.x) == [size]
    assert marks.y[0] == pytest.approx(collective_seconds(after, 4, size, ALPHA, BETA, GAMMA))
    subtitle = figure.layout.title.subtitle.text
    assert "Cheapest: butterfly, then halving-doubling from 32 KB." in subtitle


def test_axes_are_logarithmic_and_marked_in_words():
    figure = viz.costs(SIZES, priced(4))
    x, y = figure.layout.xaxis, figure.layout.yaxis
    assert x.type == y.type == "log"
    assert {"1 KB", "1 MB"} <= set(x.ticktext) and {"1 ms", "1 s"} <= set(y.ticktext)
    assert 3 <= len(x.ticktext) <= 9


def test_nothing_to_draw_is_an_empty_figure():
    assert len(viz.costs([], {}).data) == 0


def test_what_cannot_be_drawn_is_refused():
    with pytest.raises(ValueError, match="show='bytes' is unknown: use one of 'seconds', "):
        viz.costs([1], {"a": [1]}, show="bytes")
    with pytest.raises(ValueError, match="depends on the number of ranks, not None: give 2"):
        viz.costs([1], {"a": [1]}, show="bus")
    with pytest.raises(ValueError, match="a has 2 seconds and there are 1 sizes"):
        viz.costs([1], {"a": [1, 2]})
    with pytest.raises(ValueError, match="size 0 cannot stand on a logarithmic axis"):
        viz.costs([0], {"a": [1]})
    with pytest.raises(ValueError, match="seconds of a, measured -1 cannot stand on"):
        viz.costs([1], {"a": [1]}, measured={"a": [(1, -1)]})


def test_names_are_shown_as_written():
    figure = viz.costs([1, 2], {"<b>%{x}": [1, 2]}, measured={"<i>": [(1, 1)]})
    written = figure.to_json()
    assert "<b>%{x}" not in written and "<i>" not in written


def test_on_paper_the_lines_are_the_same_and_the_size_is_marked():
    given = priced(4)
    figure = viz.print.costs(SIZES, given, at=2**20, theme="dark")
    lines = [line for line in figure.axes[0].lines if len(line.get_xdata()) == len(SIZES)]
    for line, (name, seconds) in zip(lines, given.items(), strict=True):
        np.testing.assert_array_equal(line.get_ydata(), seconds, err_msg=name)
    assert len({(line.get_color(), str(line.get_linestyle())) for line in lines}) == len(given)
    diamonds, mark = figure.axes[0].lines[len(lines) :]
    assert list(diamonds.get_xdata()) == [viz.crossovers(SIZES, given)[0][0]]
    assert list(mark.get_xdata()) == [2**20, 2**20]
    assert figure.axes[0].get_xscale() == figure.axes[0].get_yscale() == "log"
