"""viz.mesh: the ranks of a mesh, and a line to the neighbour along each axis."""

from __future__ import annotations

import math

import pytest

from dlviz import viz
from dlviz.sim import mesh_groups
from dlviz.viz import palette


def joined(figure) -> dict[str, set[tuple[int, ...]]]:
    """The ranks that each line goes through, by the axis in the legend."""
    *lines, nodes = figure.data
    ranks = {at: int(rank) for *at, rank in zip(nodes.x, nodes.y, nodes.text, strict=True)
             for at in [tuple(at)]}  # fmt: skip
    assert len(ranks) == len(nodes.text), "no two ranks lie on each other"
    found = {}
    for line in lines:
        chains: list[list[int]] = [[]]
        for at in zip(line.x, line.y, strict=True):
            if at[0] is None:
                chains.append([])
            else:
                chains[-1].append(ranks[at])
        found[line.name.partition(",")[0]] = {tuple(chain) for chain in chains if chain}
    return found


@pytest.mark.parametrize(
    "axes",
    [
        {"dp": 2, "pp": 2, "tp": 2},
        {"tp": 2, "dp": 3, "pp": 4},
        {"dp": 4, "pp": 1, "tp": 2},
        {"dp": 2, "tp": 7},
        {"pp": 5},
        {"expert": 2, "tp": 3},
    ],
)
def test_lines_join_the_groups_of_each_axis_that_is_longer_than_1(axes):
    groups = {name: {*found} for name, found in mesh_groups(axes).items() if axes[name] > 1}
    assert joined(viz.mesh(axes)) == groups


def test_an_axis_has_the_colour_that_its_bytes_have_and_a_dash_of_its_own():
    lines = viz.mesh({"dp": 2, "pp": 2, "tp": 2}).data[:3]
    assert [line.line.color for line in lines] == [hue for _, hue in palette.AXES.values()]
    assert len({line.line.dash for line in lines}) == 3
    assert [line.name for line in lines][2] == "tp, tensor parallel"


def test_neighbours_are_apart_by_more_than_their_nodes():
    *_, nodes = viz.mesh({"dp": 3, "pp": 3, "tp": 4}).data
    places = [*zip(nodes.x, nodes.y, strict=True)]
    apart = min(math.dist(a, b) for a in places for b in places if a != b)
    assert apart * 130 > nodes.marker.size


def test_a_rank_says_its_groups():
    *_, nodes = viz.mesh({"dp": 2, "pp": 2, "tp": 2}).data
    assert nodes.customdata[5] == "<b>rank 5</b><br>dp (1, 5)<br>pp (5, 7)<br>tp (4, 5)"


def test_colours_are_those_of_the_theme():
    light, dark = (viz.mesh({"dp": 2}, theme=theme).data[-1] for theme in ("light", "dark"))
    assert light.textfont.color != dark.textfont.color
    assert light.marker.color != dark.marker.color


def test_more_than_three_axes_and_an_empty_one_are_refused():
    with pytest.raises(ValueError, match="a mesh of 4 axes: draw one, two or three"):
        viz.mesh({"dp": 2, "pp": 2, "tp": 2, "cp": 2})
    with pytest.raises(ValueError, match="a mesh of 0 axes"):
        viz.mesh({})
    with pytest.raises(ValueError, match="pp=0"):
        viz.mesh({"dp": 2, "pp": 0})
