"""viz.axis_bytes: what ranks sent along each axis of a mesh, inside and between nodes."""

from __future__ import annotations

import pytest
from worked_traces import stages_that_communicate

from dlviz import viz
from dlviz.trace import Trace
from dlviz.viz import palette

TRACE = stages_that_communicate()


def on_nodes(size: int) -> Trace:
    meta = {**TRACE.meta, "topology": {"kind": "racks", "sizes": [size, 8]}}
    return Trace(TRACE.spans, TRACE.messages, TRACE.memory, TRACE.buffers, meta)


def drawn(figure) -> dict:
    """Bytes by (part, row)."""
    return {
        (bar.name, y): round(1e6 * x)
        for bar in figure.data
        for x, y in zip(bar.x, bar.y, strict=True)
        if x is not None
    }


def test_a_bar_is_as_long_as_the_messages_of_its_axis_inside_and_between_nodes():
    figure = viz.axis_bytes(on_nodes(4))
    assert list(figure.layout.yaxis.ticktext) == [
        "dp, data parallel", "pp, pipeline", "tp, tensor parallel"
    ]  # fmt: skip
    assert drawn(figure) == {
        ("between nodes", 0): 8 * 200,
        ("inside nodes", 1): 8 * 80,
        ("inside nodes", 2): 8 * 240,
    }
    of_two = drawn(viz.axis_bytes(on_nodes(2)))
    assert of_two["between nodes", 1] == 8 * 80 and ("inside nodes", 1) not in of_two


def test_an_axis_has_one_hue_and_what_goes_between_nodes_is_hatched():
    inside, _, between, _ = viz.axis_bytes(on_nodes(4)).data
    assert list(between.marker.color) == [palette.AXES["dp"][1]]
    assert list(inside.marker.color) == [palette.AXES["pp"][1], palette.AXES["tp"][1]]
    assert between.marker.pattern.shape == "/" and not inside.marker.pattern.shape


def test_several_traces_have_a_name_over_their_rows_and_one_scale():
    figure = viz.axis_bytes({"four": on_nodes(4), "two": on_nodes(2)}, step=0)
    heads = [(each.y, each.text) for each in figure.layout.annotations if "<b>" in each.text]
    assert heads == [(0, "<b>four</b>"), (4, "<b>two</b>")]
    assert list(figure.layout.yaxis.tickvals) == [1, 2, 3, 5, 6, 7]
    assert sum(drawn(figure).values()) == 2 * TRACE.messages.nbytes.sum()
    assert figure.layout.xaxis.range[1] * 1e6 > 8 * 240 and figure.layout.height <= 640


def test_a_run_without_a_mesh_is_refused():
    with pytest.raises(ValueError, match="no message went along an axis of a mesh"):
        viz.axis_bytes(Trace())
