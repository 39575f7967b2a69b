"""viz.matrices: who holds which block of which matrix after each product and each round."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import dlviz
from dlviz import viz
from dlviz.parallel import summa
from dlviz.parallel.tensor import NaiveMLP, ParallelMLP
from dlviz.trace import Trace
from dlviz.viz import palette
from dlviz.viz.blocks import Blocks
from dlviz.viz.charts.matrices import ALL, OWN, SUMMAND
from dlviz.viz.passes import MatrixBlock

RANKS, ROWS, HIDDEN, INNER = 3, 5, 6, 12
ROUNDS = RANKS - 1  # of a ring's all-gather; an all-reduce has twice as many


def both_directions(comm: dlviz.Comm) -> None:
    """An MLP cut by columns and rows, a naive one, and one with sequence parallelism."""
    for kind, name, hidden in ((ParallelMLP, "mlp", HIDDEN), (NaiveMLP, "naive", 9)):
        torch.manual_seed(0)
        mlp = kind(comm, hidden, INNER)
        mlp.up.name, mlp.down.name = f"{name}.up", f"{name}.down"
        x = torch.ones(ROWS, hidden, requires_grad=True)
        mlp(x).sum().backward()
    mlp = ParallelMLP(comm, 15, INNER, sequence_parallel=True)
    mlp.up.name, mlp.down.name = "cut.up", "cut.down"
    mlp(torch.ones(2, 15, requires_grad=True)).sum().backward()


def made_by_hand() -> Trace:
    """The product of a layer cut by columns over two ranks."""
    place = {"layer": "up", "x": "[0:4, 0:2] of (4, 2)"}
    spans = [
        {"rank": rank, "kind": "phase", "start": 0.0, "end": 1.0, "lane": "compute", "depth": 0}
        | {"fields": {**place, "w": f"[{rank}:{rank + 1}, 0:2] of (2, 2)",
                      "y": f"[0:4, {rank}:{rank + 1}] of (4, 2)"}}
        for rank in range(2)
    ]  # fmt: skip
    return Trace(spans)


@pytest.fixture(scope="module")
def trace() -> Trace:
    return dlviz.launch(both_directions, RANKS).trace


def part(rank: int, whole: int) -> tuple[int, int]:
    return rank * whole // RANKS, (rank + 1) * whole // RANKS


def titles(blocks: Blocks) -> list[str]:
    return list(dict.fromkeys(moment.title for moment in blocks.moments))


def test_the_columns_are_the_matrices_and_what_passes_from_layer_to_layer_is_one(trace):
    columns = Blocks(trace, layers=["mlp"]).columns
    assert [column.names for column in columns] == [
        ["X of mlp.up"],
        ["W of mlp.up"],
        ["Y of mlp.up", "X of mlp.down"],
        ["W of mlp.down"],
        ["Y of mlp.down"],
    ]
    shapes = [(ROWS, HIDDEN), (HIDDEN, INNER), (ROWS, INNER), (INNER, HIDDEN), (ROWS, HIDDEN)]
    assert [column.shape for column in columns] == shapes


def test_the_stages_are_products_and_rounds_forward_and_backward(trace):
    blocks = Blocks(trace, layers=["mlp"])
    assert titles(blocks) == [
        "At the beginning",
        "Forward: product of mlp.up",
        "Forward: product of mlp.down",
        "Forward: all-reduce of Y of mlp.down",
        "Backward begins",
        "Backward: products of mlp.down",
        "Backward: products of mlp.up",
        "Backward: all-reduce of dX of mlp.up",
    ]
    assert [len(moment.messages) for moment in blocks.moments if moment.messages] == [RANKS] * (
        2 * 2 * ROUNDS
    )
    assert titles(Blocks(trace, layers=["naive"])) == [
        "At the beginning",
        "Forward: product of naive.up",
        "Forward: all-gather of Y of naive.up",
        "Forward: product of naive.down",
        "Forward: all-gather of Y of naive.down",
        "Backward begins",
        "Backward: products of naive.down",
        "Backward: all-reduce of dX of naive.down",
        "Backward: products of naive.up",
        "Backward: all-reduce of dX of naive.up",
    ]


def test_every_message_of_the_layers_is_in_a_stage_and_in_one_alone(trace):
    shown = [
        message
        for name in ("mlp", "naive", "cut")
        for moment in Blocks(trace, layers=[name]).moments
        for message in moment.messages
    ]
    assert sorted(shown) == [*range(len(trace.messages))]


def test_a_rank_holds_columns_of_the_first_weight_and_rows_of_the_second(trace):
    first, *_, end = Blocks(trace, layers=["mlp"]).moments
    for rank in range(RANKS):
        own = part(rank, INNER)
        assert first.held[0][rank] == MatrixBlock((0, ROWS), (0, HIDDEN))
        assert first.held[1][rank] == end.held[1][rank] == MatrixBlock((0, HIDDEN), own)
        assert first.held[3][rank] == end.held[3][rank] == MatrixBlock(own, (0, HIDDEN))
        assert end.held[2][rank] == MatrixBlock((0, ROWS), own)
    assert first.held[2] == first.held[4] == {}


def test_a_summand_becomes_the_whole_with_the_last_round(trace):
    blocks = Blocks(trace, layers=["mlp"])
    whole = MatrixBlock((0, ROWS), (0, HIDDEN))
    for title, place in ((titles(blocks)[3], 4), (titles(blocks)[7], 0)):
        rounds = [moment for moment in blocks.moments if moment.title == title]
        assert len(rounds) == 2 * ROUNDS
        for moment in rounds:
            done = moment is rounds[-1]
            expected = whole if done else whole._replace(summands=RANKS)
            assert {*moment.held[place].values()} == {expected}
            assert blocks.shared(moment.held[place], 0) == done


def test_with_sequence_parallelism_rows_are_gathered_and_scattered(trace):
    blocks = Blocks(trace, layers=["cut"])
    assert titles(blocks) == [
        "At the beginning",
        "Forward: all-gather of X of cut.up",
        "Forward: product of cut.up",
        "Forward: product of cut.down",
        "Forward: reduce-scatter of Y of cut.down",
        "Backward begins",
        "Backward: all-gather of dY of cut.down",
        "Backward: products of cut.down",
        "Backward: all-gather of X of cut.up",
        "Backward: products of cut.up",
        "Backward: reduce-scatter of dX of cut.up",
    ]
    rows = {rank: MatrixBlock((2 * rank, 2 * rank + 2), (0, 15)) for rank in range(RANKS)}
    whole = dict.fromkeys(range(RANKS), MatrixBlock((0, 2 * RANKS), (0, 15)))
    last = {moment.title: moment.held for moment in blocks.moments}  # its last round
    assert last[titles(blocks)[0]][0] == rows and last[titles(blocks)[1]][0] == whole
    assert last["Forward: reduce-scatter of Y of cut.down"][4] == rows
    assert last["Backward begins"][4] == rows
    assert last["Backward: all-gather of dY of cut.down"][4] == whole
    assert last["Backward: all-gather of X of cut.up"][0] == {}  # no gradient yet
    assert last["Backward: reduce-scatter of dX of cut.up"][0] == rows


def test_the_naive_mlp_gathers_what_each_rank_has_columns_of(trace):
    blocks = Blocks(trace, layers=["naive"])
    for name, place in (("naive.up", 2), ("naive.down", 4)):
        rounds = [s for s in blocks.moments if s.title == f"Forward: all-gather of Y of {name}"]
        wide = blocks.columns[place].shape[1]
        assert sorted(rounds[0].held[place]) == [0, 1, 2]
        assert rounds[0].held[place][1].columns == part(1, wide)
        assert rounds[-1].held[place][1].columns == (0, wide)


def test_blocks_are_drawn_in_the_hue_of_their_rank_at_their_place_in_the_whole(trace):
    figure, blocks = viz.matrices(trace, layers=["mlp"]), Blocks(trace, layers=["mlp"])
    by_look = {
        (bar.marker.color, bar.marker.pattern.shape): bar
        for bar in figure.data
        if bar.type == "bar" and bar.hoverinfo == "skip" and bar.x != (None,)
    }
    for rank in range(RANKS):
        style = palette.rank_style(rank)
        bar = by_look[style.color, style.pattern]
        ends = np.add(bar.base, bar.x)
        wide, high = blocks.sizes[1]
        assert bar.base[0] == pytest.approx(blocks.lefts[1] + wide * rank / RANKS)
        assert ends[0] == pytest.approx(blocks.lefts[1] + wide * (rank + 1) / RANKS)
        assert (bar.y[0], bar.width[0]) == pytest.approx((rank, high))
        wide, high = blocks.sizes[3]  # rows of the second weight
        assert (bar.base[1], bar.x[1]) == pytest.approx((blocks.lefts[3], wide))
        assert bar.width[1] == pytest.approx(high / RANKS)
        assert bar.y[1] == pytest.approx(rank - high / 2 + high * (rank + 0.5) / RANKS)
    common = by_look[palette.KINDS["phase"].color, ""]
    assert [*common.y] == [0, 1, 2]  # X, whole on each rank


def test_a_summand_is_hatched_and_the_sum_has_the_hue_of_no_rank(trace):
    figure, moments = viz.matrices(trace, layers=["mlp"]), Blocks(trace, layers=["mlp"]).moments
    hatched = {palette.rank_style(rank).color for rank in range(RANKS)}
    for frame, moment in zip(figure.frames, moments, strict=True):
        shown = [figure.data[place] for place in frame.traces]
        sums = {
            still.marker.pattern.fgcolor
            for still, own in zip(shown, frame.data, strict=True)
            if still.type == "bar" and still.marker.pattern.shape == "/" and own.x
        }
        held = [block for own in moment.held for block in own.values() if block.summands > 1]
        assert sums == (hatched if held else set()), moment.title
    key = {each.name: each.marker for each in figure.data if each.showlegend is not False}
    part, summand = key[OWN], key[SUMMAND]
    assert part.color == summand.pattern.fgcolor and part.pattern.shape == ""
    assert summand.color == summand.pattern.bgcolor == "rgba(0, 0, 0, 0)"  # lines on paper


def test_arrows_join_the_ranks_of_the_messages_beside_the_matrix_they_are_of(trace):
    figure, blocks = viz.matrices(trace, layers=["mlp"]), Blocks(trace, layers=["mlp"])
    for frame, moment in zip(figure.frames, blocks.moments, strict=True):
        arrows = frame.data[-1]
        assert len(arrows.x) == 4 * len(moment.messages)
        if not moment.messages:
            continue
        place = moment.made[0]
        left, right = blocks.lefts[place] + blocks.sizes[place][0], blocks.lefts[place + 1]
        ends = [(round(arrows.y[i]), round(arrows.y[i + 2])) for i in range(0, len(arrows.y), 4)]
        table = trace.messages
        assert ends == [(table.src[row], table.dst[row]) for row in moment.messages]
        assert all(left < x < right for x in arrows.x if x is not None)


def test_an_arrow_stays_in_its_place_in_whatever_order_the_messages_came(trace):
    blocks = Blocks(trace, layers=["mlp"])
    moment = next(moment for moment in blocks.moments if len(moment.messages) > 2)
    turned = replace(moment, messages=moment.messages[::-1])
    assert blocks.lanes(turned) == blocks.lanes(moment)[::-1]
    assert len(set(blocks.lanes(moment))) > 1


def test_backward_the_matrices_are_gradients_and_each_stage_says_what_happens(trace):
    figure, blocks = viz.matrices(trace, layers=["mlp"]), Blocks(trace, layers=["mlp"])
    for frame, moment in zip(figure.frames, blocks.moments, strict=True):
        words = [each.text for each in frame.layout.annotations]
        assert any(f"<b>{moment.title}</b>: {moment.words}" == each for each in words)
        assert any(each.startswith("dW of up") for each in words) == moment.backward
    assert "round 2 of 4, 3 messages of 40 bytes" in {moment.words for moment in blocks.moments}


def test_the_figure_is_no_higher_than_a_notebook_shows(trace):
    assert viz.matrices(trace, layers=["mlp"]).layout.height <= 640


def grouped_queries(comm: dlviz.Comm) -> None:
    from dlviz.parallel.tensor import ParallelAttention

    torch.manual_seed(0)
    x = torch.ones(2, 3, 16, requires_grad=True)
    ParallelAttention(comm, 16, 4, kv_heads=2)(x).sum().backward()


def test_ranks_that_share_a_head_of_keys_add_up_the_gradient_of_its_weights():
    blocks = Blocks(dlviz.launch(grouped_queries, 4).trace)
    names = [column.names[0] for column in blocks.columns]
    place = names.index("W of k")
    assert names == ["X of q", "W of q", "Y of q", "W of k", "Y of k", "W of v", "Y of v",
                     "W of output", "Y of output"]  # fmt: skip
    halves = {
        rank: MatrixBlock((0, 16), (4 * (rank // 2), 4 * (rank // 2) + 4)) for rank in range(4)
    }
    assert blocks.moments[0].held[place] == halves
    rounds = [
        moment for moment in blocks.moments if moment.title == "Backward: all-reduce of dW of k"
    ]
    pairs = {(a, b) for a, b in zip(*(blocks.trace.messages[end][[*rounds[0].messages]]
                                      for end in ("src", "dst")), strict=True)}  # fmt: skip
    assert pairs == {(0, 1), (1, 0), (2, 3), (3, 2)}
    assert {block.summands for block in rounds[0].held[place].values()} == {2}
    assert rounds[-1].held[place] == halves
    assert [title for title in titles(blocks) if "all-reduce of dX" in title] == [
        "Backward: all-reduce of dX of q"
    ]


def forward_alone(comm: dlviz.Comm) -> None:
    from dlviz.parallel.tensor import RowParallelLinear

    layer = RowParallelLinear(comm, 4, 2, all_reduce="backend")
    layer.name = "down"
    with torch.no_grad():
        layer(torch.ones(3, 4 // comm.size))


def test_a_run_that_goes_forward_alone_has_no_backward_and_the_backend_no_messages():
    blocks = Blocks(dlviz.launch(forward_alone, 2).trace)
    assert [column.names[0] for column in blocks.columns] == ["X of down", "W of down", "Y of down"]
    last = blocks.moments[-1]
    assert "the Trace has none" in last.words and not last.messages
    assert not any(moment.backward for moment in blocks.moments)


@pytest.mark.parametrize("draw", [viz.matrices, viz.print.matrices])
def test_a_run_without_products_and_one_with_too_many_matrices_are_refused(draw, trace):
    with pytest.raises(ValueError, match="this run recorded no product of a layer"):
        draw(Trace(meta={"ranks": 2}))
    with pytest.raises(ValueError, match="this run recorded no product of a layer"):
        draw(trace, layers=["attention"])
    with pytest.raises(ValueError, match="15 matrices, of which 9 fit side by side"):
        draw(trace)


def square(comm: dlviz.Comm, sizes: tuple[int, int, int], grid: tuple[int, int, int]) -> None:
    """A product by SUMMA, twice, and its gradients."""
    m, k, n = sizes
    x = summa.block(torch.ones(m, k), comm.rank, grid, "x").requires_grad_()
    w = summa.block(torch.ones(k, n), comm.rank, grid, "w")
    for _ in range(2):
        summa.multiply(comm, x, w, grid).sum().backward()


def test_a_product_by_summa_goes_panel_by_panel():
    run = dlviz.launch(square, 4, args=((4, 8, 12), (2, 1, 2)))
    blocks = Blocks(run.trace)
    assert titles(blocks) == [
        "At the beginning",
        *(
            f"Panel {number} of 2: {what}"
            for number in (1, 2)
            for what in ("broadcast of X", "broadcast of W", "product")
        ),
    ]
    names = ["X", "panel of X", "W", "panel of W", "Y"]
    assert [column.names for column in blocks.columns] == [[name] for name in names]
    assert [column.shape for column in blocks.columns] == [
        (4, 8),
        (4, 8),
        (8, 12),
        (8, 12),
        (4, 12),
    ]
    rows, columns, halves = ((0, 2), (2, 4)), ((0, 6), (6, 12)), ((0, 4), (4, 8))
    places = {rank: divmod(rank, 2) for rank in range(4)}
    for moment in blocks.moments:
        x, _, w, _, _ = moment.held
        assert x == {r: MatrixBlock(rows[i], halves[j]) for r, (i, j) in places.items()}
        assert w == {r: MatrixBlock(halves[i], columns[j]) for r, (i, j) in places.items()}
    ends = run.trace.messages
    for panel in range(2):
        of_x, of_w, made = blocks.moments[3 * panel + 1 : 3 * panel + 4]
        k = halves[panel]
        assert of_x.held[1] == {r: MatrixBlock(rows[i], k) for r, (i, _) in places.items()}
        assert of_w.held[3] == {r: MatrixBlock(k, columns[j]) for r, (_, j) in places.items()}
        pairs = {(int(ends.src[row]), int(ends.dst[row])) for row in of_x.messages}
        assert pairs == {(2 * i + panel, 2 * i + 1 - panel) for i in range(2)}
        pairs = {(int(ends.src[row]), int(ends.dst[row])) for row in of_w.messages}
        assert pairs == {(2 * panel + j, 2 - 2 * panel + j) for j in range(2)}
        summands = 2 - panel
        assert made.held[4] == {
            r: MatrixBlock(rows[i], columns[j], summands) for r, (i, j) in places.items()
        }
    figure = viz.print.matrices(run.trace)
    (legend,) = figure.legends
    assert {OWN, SUMMAND} <= {text.get_text() for text in legend.get_texts()}
    assert ALL not in {text.get_text() for text in legend.get_texts()}
    assert len(viz.matrices(run.trace).frames) == len(blocks.moments)


def test_on_a_grid_of_one_row_panels_of_w_stay_and_one_cut_along_k_is_refused():
    blocks = Blocks(dlviz.launch(square, 2, args=((4, 8, 12), (1, 1, 2))).trace)
    still = [moment for moment in blocks.moments if moment.title.endswith("broadcast of W")]
    assert still and not any(moment.messages for moment in still)
    assert {moment.words for moment in still} == {"no panel of W has to travel"}
    with pytest.raises(ValueError, match=r"cut along k too.*a grid \(pm, 1, pn\)"):
        viz.matrices(dlviz.launch(square, 2, args=((4, 8, 12), (1, 2, 1))).trace)


def test_on_paper_a_collective_is_one_panel_with_an_arrow_for_each_pair_of_ranks(trace):
    figure = viz.print.matrices(trace, layers=["mlp"])
    blocks = Blocks(trace, layers=["mlp"])
    assert len(figure.axes) == len(titles(blocks))
    words = [text.get_text() for text in figure.texts]
    assert set(titles(blocks)) <= set(words)
    summed = figure.axes[3]
    (arrows,) = [part for part in summed.collections if type(part).__name__ == "Quiver"]
    assert len(arrows.X) == RANKS  # a ring
    # code 79 closes a path, and its vertex is none
    drawn = [part for part in figure.axes[0].collections if part.get_label() == "rank 1"]
    paths = [np.concatenate([p.vertices[p.codes < 79] for p in box.get_paths()]) for box in drawn]
    edges = sorted((points[:, 0].min(), points[:, 0].max()) for points in paths)
    first = blocks.moments[0]
    boxes = [blocks.box(place, held[1], 1) for place, held in enumerate(first.held) if held]
    np.testing.assert_allclose(edges, sorted(box[:2] for box in boxes))


def test_the_table_of_collectives_is_what_one_rank_took_part_in_with_the_bytes_it_sent(trace):
    table = viz.collectives_table(trace, rank=1)
    assert [*table.columns] == ["direction", "collective", "of layer", "bytes rank 1 sends"]
    own = table[table["of layer"].str.startswith("mlp")]
    assert own[["direction", "collective"]].values.tolist() == [
        ["forward", "all_reduce"], ["backward", "all_reduce"]
    ]  # fmt: skip
    assert set(table["collective"]) == {"all_reduce", "all_gather", "reduce_scatter"}
    messages = trace.messages
    assert table["bytes rank 1 sends"].sum() == messages.nbytes[messages.src == 1].sum()
    alone = trace.only(rank=1)
    assert len(viz.collectives_table(alone, rank=1)) == len(table)
    assert viz.collectives_table(alone, rank=0).empty


def test_the_table_of_a_run_without_layers_cut_over_ranks_is_empty():
    table = viz.collectives_table(Trace())
    assert table.empty and "bytes rank 0 sends" in table
