"""The heat map's cells are the bytes of the messages, and its margins what each port carried."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from viz_scenes import annotations_of, ring

import dlviz
from dlviz import metrics, viz
from dlviz.machine import Link, Machine, Topology, classroom
from dlviz.sim import collective
from dlviz.trace import Trace

ALGORITHMS = ("ring", "tree", "butterfly", "halving_doubling", "direct", "parameter_server")


def on_racks(algorithm="hierarchical", nodes=2, size=2):
    fast, slow = Link(1e-5, 1e9), Link(1e-4, 1e8)
    machine = Machine(classroom(1).device, Topology.racks(nodes, size, fast, slow))
    return collective(algorithm, nodes * size, 4096, machine)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_cells_hold_the_bytes_of_the_messages_between_two_ranks(algorithm):
    trace = collective(algorithm, 5, 1000, classroom(5))
    z = np.array(viz.traffic(trace).data[0].z, float)
    expected = np.full((5, 5), np.nan)
    for message in trace.messages.rows():
        before = np.nan_to_num(expected[message.src, message.dst])
        expected[message.src, message.dst] = before + message.nbytes
    np.testing.assert_array_equal(z, expected)


def test_the_margins_say_what_each_rank_sent_and_received():
    trace = collective("parameter_server", 4, 2048, classroom(4))
    figure = viz.traffic(trace)
    assert list(figure.layout.yaxis.ticktext) == ["0 (6.14 KB)"] + [
        f"{rank} (2.05 KB)" for rank in (1, 2, 3)
    ]
    assert list(figure.layout.xaxis.ticktext)[0] == "0<br>(6.14 KB)"
    assert "6 of 12 pairs talk" in figure.layout.title.subtitle.text


@pytest.mark.parametrize(("ranks", "name"), [(4, "0<br>(6.14 KB)"), (8, "0<br>(7.17<br>KB)")])
def test_the_names_above_the_columns_stand_upright_and_are_no_wider_than_a_column(ranks, name):
    figure = viz.traffic(collective("ring", ranks, 4096, classroom(ranks)))
    assert figure.layout.xaxis.tickangle == 0
    assert figure.layout.xaxis.ticktext[0] == name


def test_every_cell_with_a_message_shows_its_number_where_there_is_room():
    trace = collective("ring", 4, 4096, classroom(4))
    marks = {(a.y, a.x): a.text for a in annotations_of(viz.traffic(trace))}
    assert marks == {(r, (r + 1) % 4): "6.14 KB" for r in range(4)}
    assert not annotations_of(viz.traffic(collective("ring", 20, 4096, classroom(20))))


def test_racks_are_parted_by_lines_and_what_crosses_them_is_counted():
    trace = on_racks()
    figure = viz.traffic(trace)
    assert [shape.x0 for shape in figure.layout.shapes if shape.x0 == shape.x1] == [1.5]
    table = trace.messages
    across = int(table.nbytes[(table.src // 2) != (table.dst // 2)].sum())
    assert across == 2 * 4096
    assert "8.19 KB between racks" in figure.layout.title.subtitle.text
    switch = viz.traffic(collective("ring", 4, 4096, classroom(4)))
    assert not switch.layout.shapes and "between" not in switch.layout.title.subtitle.text


def test_what_crossed_slow_links_is_counted_and_their_ranks_are_named():
    link, slow = Link(1e-4, 1e9), Link(1e-3, 1e8)
    trace = collective("ring", 4, 4096, classroom(4, link=[link, slow, link, slow]))
    subtitle = viz.traffic(trace).layout.title.subtitle.text
    assert "24.6 KB over the slow links of ranks 1, 3." in subtitle  # of four pairs each has one
    assert "over" not in viz.traffic(trace.only(rank=[0, 2])).layout.title.subtitle.text
    one = collective("direct", 3, 3000, classroom(3, link=[link, slow, link]))
    table = one.messages
    crossed = int(table.nbytes[(table.src == 1) | (table.dst == 1)].sum())
    subtitle = viz.traffic(one).layout.title.subtitle.text
    assert crossed == 4 * 3000 and "12 KB over the slow link of rank 1." in subtitle
    fast = collective("ring", 4, 4096, classroom(4, link=[Link(1e-5, 1e10), *[link] * 3]))
    assert "slow" not in viz.traffic(fast).layout.title.subtitle.text


def test_the_table_is_the_map_with_its_sums():
    trace = ring(4, 10)
    table = viz.traffic_table(trace)
    assert table["sent"].tolist()[:-1] == metrics.bytes_sent(trace).tolist()
    assert table.loc["received", "sent"] == trace.messages.nbytes.sum()
    assert table.loc[2, 3] == trace.messages.nbytes[trace.messages.src == 2].sum()


def test_a_part_of_the_ranks_keeps_their_numbers():
    figure = viz.traffic(collective("direct", 4, 64, classroom(4)).only(rank=[1, 3]))
    assert [name.split()[0] for name in figure.layout.yaxis.ticktext] == ["1", "3"]
    assert np.array(figure.data[0].z, float)[0, 1] == 64


def test_without_messages_the_map_is_empty_and_says_so():
    figure = viz.traffic(Trace(meta={"ranks": 3}))
    assert np.isnan(np.array(figure.data[0].z, float)).all()
    assert "No message was sent" in figure.layout.title.subtitle.text


def test_another_theme_is_refused():
    with pytest.raises(ValueError, match="theme='blue' is not a theme of the figures"):
        viz.traffic(Trace(), theme="blue")


def test_several_traces_stand_side_by_side_in_one_scale_of_colours():
    traces = {name: collective(name, 8, 8192, classroom(8)) for name in ("ring", "direct")}
    figure = viz.traffic(traces)
    ring, direct = figure.data
    assert ring.zmax == direct.zmax == np.nanmax(np.array(ring.z, float))
    assert np.nanmax(np.array(direct.z, float)) < direct.zmax
    assert ring.colorscale == direct.colorscale and (ring.showscale, direct.showscale) == (
        True,
        False,
    )
    left, right = figure.layout.xaxis.domain, figure.layout.xaxis2.domain
    assert left[1] < right[0] and figure.layout.yaxis.domain == figure.layout.yaxis2.domain
    names = [each.text for each in annotations_of(figure) if each.text.startswith("<b>")]
    assert names == ["<b>ring</b>", "<b>direct</b>"]
    subtitle = figure.layout.title.subtitle.text.split("<br>")
    assert subtitle[1].startswith("ring: ") and subtitle[2].startswith("direct: ")
    assert figure.layout.width is None and figure.layout.height <= 640
    with pytest.raises(ValueError, match="^traces has no Trace in it"):
        viz.traffic({})


def test_crowded_columns_of_maps_side_by_side_have_only_their_ranks():
    for ranks, received in ((6, ["0<br>(10<br>KB)", "0<br>(30<br>KB)"]), (8, ["0", "0"])):
        traces = {n: collective(n, ranks, 6000, classroom(ranks)) for n in ("ring", "direct")}
        layout = viz.traffic(traces).layout
        assert [axis.ticktext[0] for axis in (layout.xaxis, layout.xaxis2)] == received
        assert layout.xaxis.title.text == ("to rank" if ranks == 8 else "to rank (received)")
        assert layout.yaxis.ticktext[0].endswith(" KB)")  # what was sent has room


@pytest.mark.parametrize("ranks", [2, 4, 8, 16])
def test_a_map_fits_a_laptop(ranks):
    figure = viz.traffic(collective("ring", ranks, 4096, classroom(ranks)))
    assert figure.layout.height <= 640 and figure.layout.width <= 800


def test_a_long_sentence_stays_on_a_single_maps_figure():
    """At 6.3 pixels a character of its type, beside the left margin."""

    def worker(comm):
        comm.all_reduce(torch.ones(50_000))
        comm.send(torch.ones(9), 1) if comm.rank == 0 else comm.recv(torch.ones(9), 0)

    figure = viz.traffic(dlviz.launch(worker, 2).trace)
    lines = figure.layout.title.subtitle.text.split("<br>")
    assert "whose messages are not drawn" in " ".join(lines)
    assert 6.3 * max(map(len, lines)) + figure.layout.margin.l <= figure.layout.width
