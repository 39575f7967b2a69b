"""viz.stationary: each box is covered by its owners' parts, in the order of the cut; what moves has
another look than what stays."""

from __future__ import annotations

import pytest

from dlviz import viz
from dlviz.viz import palette
from dlviz.viz.charts.stationary import APART, HEAD, PANEL, SIDE

BOXES = {"x": (SIDE + APART, HEAD), "w": (0, HEAD + SIDE + APART),
         "y": (SIDE + APART, HEAD + SIDE + APART)}  # fmt: skip


def parts(figure, panel=0):
    """Of each box its parts: (left, top, wide, high) within it, the rank, the pattern."""
    found = {name: [] for name in BOXES}
    for bar in figure.data:
        if bar.type != "bar" or bar.x[0] is None:
            continue
        for base, wide, y, high, words in zip(
            bar.base, bar.x, bar.y, bar.width, bar.customdata, strict=True
        ):
            name, rank = words[3], int(words.split("</b>")[0].split()[-1])
            left, top = BOXES[name]
            place = base - left - panel * PANEL, y - high / 2 - top, wide, high
            if 0 <= place[0] + 1e-9 < SIDE:
                rounded = tuple(round(each, 9) for each in place)
                found[name].append((*rounded, rank, bar.marker.pattern.shape))
    return {name: sorted(own, key=lambda part: part[1::-1]) for name, own in found.items()}


@pytest.mark.parametrize("grid", [(1, 1), (1, 4), (4, 1), (2, 2), (3, 2), (4, 7)])
def test_the_parts_of_a_box_cover_it_and_each_has_its_owner(grid):
    p_f, p_c = grid
    for name, own in parts(viz.stationary([grid])).items():
        assert sum(part[2] * part[3] for part in own) == pytest.approx(SIDE**2)
        assert sorted(part[4] for part in own) == [*range(p_f * p_c)], name


def test_x_is_cut_over_c_and_then_f_and_y_the_other_way_about():
    own = parts(viz.stationary([(2, 3)]))
    assert [part[4] for part in own["x"]] == [0, 3, 1, 4, 2, 5]
    assert [part[4] for part in own["y"]] == [0, 1, 2, 3, 4, 5]
    places = {part[4]: part[:2] for part in own["w"]}
    assert places[4] == pytest.approx((1 / 3, 1 / 2))  # f = 1, c = 1


@pytest.mark.parametrize(
    ("grid", "moves", "name", "share"),
    [
        ((1, 4), {"y": "/"}, "stationary x", "3/4 |y|"),
        ((4, 1), {"x": "."}, "stationary y", "3/4 |x|"),
        ((2, 2), {"x": ".", "y": "/"}, "stationary w", "1/4 |x| + 1/4 |y|"),
        ((1, 1), {}, "stationary x, y and w", "nothing"),
    ],
)
def test_what_moves_is_patterned_and_what_stays_is_plain(grid, moves, name, share):
    figure = viz.stationary([(2, 1), grid])
    for box, own in parts(figure, panel=1).items():
        assert {part[5] or "" for part in own} == {moves.get(box, "")}
    heads = [note.text for note in figure.layout.annotations if "stationary" in note.text]
    assert f"<b>{name}</b>" in heads[1]
    assert f"a rank sends {share}<br>in forward, and in backward" in heads[1]


def test_the_frame_is_what_a_rank_multiplies():
    frame = viz.stationary([(2, 4)], rank=5).data[-1]  # f = 1, c = 1
    assert frame.name == "what rank 5 multiplies"
    corners = [*zip(frame.x, frame.y, strict=True)]
    x, w, y = BOXES["x"], BOXES["w"], BOXES["y"]
    for place, (left, top, wide, high) in enumerate(
        ((x[0], x[1] + 1 / 4, 1, 1 / 4), (w[0] + 1 / 4, w[1] + 1 / 2, 1 / 4, 1 / 2),
         (y[0], y[1] + 1 / 2, 1, 1 / 2))
    ):  # fmt: skip
        assert corners[6 * place] == pytest.approx((left, top))
        assert corners[6 * place + 2] == pytest.approx((left + wide, top + high))


def test_a_hover_says_who_sends_what_to_whom():
    bars = [bar for bar in viz.stationary([(2, 2)]).data if bar.customdata is not None]
    texts = "\n".join(words for bar in bars for words in bar.customdata)
    assert (
        "rank 3</b><br>goes to rank 1, backward once more unless they store it; their dx" in texts
    )
    assert "rank 3</b><br>is the sum of what ranks 2, 3 have; backward dy goes to them" in texts
    assert "w: filters 2 of 2, channels 1 of 2, rank 2</b><br>stays, and so does dw" in texts


def test_the_legend_names_what_is_drawn_and_ink_reads_on_either_theme():
    def legend(grid):
        bars = viz.stationary([grid]).data
        return [bar.name for bar in bars if bar.showlegend is not False]

    assert legend((1, 2)) == ["stays", "summed", "what rank 0 multiplies"]
    assert legend((2, 2)) == ["stays", "gathered", "summed", "what rank 0 multiplies"]
    for theme in ("light", "dark"):
        figure = viz.stationary([(1, 6)], theme=theme)
        inks = {note.font.color for note in figure.layout.annotations if note.text == "5"}
        blue = palette.rank_style(5).ink
        assert inks == {blue, palette.colors(theme)["ink"]}  # on its colour, and on lines


@pytest.mark.parametrize(
    ("grids", "rank", "words"),
    [
        ([], 0, "0 grids: draw one, two or three"),
        ([(1, 2)] * 4, 0, "4 grids"),
        ([(0, 2)], 0, "p_f=0 has to be a whole number, 1 or more"),
        ([(2, 2), (1, 2)], 3, "a grid of 1 x 2 ranks cannot be drawn for rank=3"),
        ([(5, 6)], 0, "a grid of 5 x 6 ranks cannot be drawn .* use 28 ranks or fewer"),
        ([(1, 2)], -1, "rank=-1 has to be a whole number, 0 or more"),
    ],
)
def test_what_is_no_grid_is_refused(grids, rank, words):
    with pytest.raises(ValueError, match=words):
        viz.stationary(grids, rank=rank)
