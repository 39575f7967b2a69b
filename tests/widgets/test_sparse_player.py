"""The message player over a sparse all-reduce: the entries that each rank really held."""

from __future__ import annotations

import json

import node
import numpy as np
import pytest
import torch

import dlviz
from dlviz.collectives import sparse
from dlviz.viz.scene import Scene
from dlviz.viz.scenes import scene_of
from dlviz.viz.sparse import SHOWN, SparseScene
from dlviz.widgets import MessagePlayer

N, EACH = 32, 6
DRAWN = """const scene = unpacked(v[0]); const layout = m.layoutOf(scene, 700, 320);
return scene.frames.map((_, i) => m.cellsOf(scene, layout, i).map((cell) => ({
    rank: cell.rank, note: cell.note, words: cellWords(scene, cell),
    held: cell.runs.filter(({ hold }) => scene.holds[hold].counts?.length).map(({ from }) => from),
    chips: cell.runs.flatMap((run) => m.chipsOf(scene, layout, cell, run)).map((own) => own.source),
})));"""
FROM = {"unpacked": "player/state.js", "cellWords": "player/words.js"}


def own(rank, length=N):
    """A rank's entries."""
    return {(5 * rank + 3 * j) % length: 1.0 + rank + j / 8 for j in range(EACH)}


def vector(rank, length=N, dtype=torch.float32):
    x = torch.zeros(length, dtype=dtype)
    for index, value in own(rank, length).items():
        x[index] = value
    return x


def summed(comm, algorithm, length=N, dtype=torch.float32, watched=True, **options):
    x = vector(comm.rank, length, dtype)
    if watched:
        comm.watch(x, "gradient")
    sparse.all_reduce(comm, x, algorithm, **options)
    assert not watched or comm.log.watched[0].tensor is x and comm.log.moved is None
    return x.tolist()


def states(scene, number):
    """Of each rank its vector in a frame, and whose entries are in which cell."""
    for rank, place in scene.frames[number].snapshots.items():
        yield rank, scene.vectors[place], scene.counts[place]


def union(ranks):
    return sorted({index for rank in ranks for index in own(rank)})


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_by_doubling_the_entries_of_pairs_of_pairs_meet_and_the_sum_turns_dense(dtype):
    run = dlviz.launch(summed, 4, args=("doubling", N, dtype))
    scene = scene_of(run.trace)
    assert isinstance(scene, SparseScene) and len(scene.frames) == 3
    for number in range(3):
        for rank, held, counts in states(scene, number):
            group = [each for each in range(4) if each >> number == rank >> number]
            entries = union(group)
            assert held.dense == (number == 2) and held.length == N
            shown = [*range(N)] if held.dense else entries
            assert (
                held.nnz == len(shown) and np.flatnonzero(~np.isnan(held.cells)).tolist() == shown
            )
            for index in range(N):
                assert counts[index].tolist() == [
                    int(r in group and index in own(r)) for r in range(4)
                ]
                expected = sum(own(r).get(index, 0) for r in group)
                assert not expected or held.cells[index] == pytest.approx(expected)
    size = dtype.itemsize
    for row in range(len(run.trace.messages)):
        pairs = int(scene.carried(row).split()[0])
        assert scene.carried(row) == f"{pairs} pairs" and scene.op(row) == "merge"
        assert pairs * (4 + size) == run.trace.messages.nbytes[row]
    assert scene.oddities(1) == []
    least = {4: 17, 8: 22}[size]
    assert scene.oddities(2) == [
        f"ranks 0, 1, 2 and 3 turn dense: {least} or more pairs of {4 + size} bytes are more "
        f"than {N} values of {size}"
    ]


@pytest.mark.parametrize(("ranks", "algorithm"), [(3, "doubling"), (3, "split"), (4, "dense")])
def test_the_last_frame_holds_the_sum_whatever_the_algorithm(ranks, algorithm):
    run = dlviz.launch(summed, ranks, args=(algorithm, 64))
    scene, expected = scene_of(run.trace), run.results[0]
    assert isinstance(scene, SparseScene) and len(scene.frames) > 2
    for _, held, _ in states(scene, len(scene.frames) - 1):
        assert np.nan_to_num(held.cells).tolist() == expected
        assert held.nnz == (64 if held.dense else np.count_nonzero(expected))
    ends = {scene.op(row) for row in scene.frames[-1].messages}
    assert ends == {"copy"}


def test_it_is_drawn_cell_by_cell_with_notes_and_the_turn_marked():
    run = dlviz.launch(summed, 4, args=("doubling",))
    player = MessagePlayer(run.trace)
    state = json.loads(player.state)
    start, middle, end = node.run("player/geometry.js", DRAWN, state, also=FROM)
    for rank in range(4):
        first, last = start[rank], end[rank]
        assert first["note"] == [f"{EACH} of {N}", False] and last["note"] == ["dense", True]
        assert first["held"] == sorted(own(rank)) and last["held"] == union(range(4))
        assert {*first["chips"]} == {rank} and {*last["chips"]} == {0, 1, 2, 3}
        both = union([rank, rank ^ 1])
        assert middle[rank]["held"] == both and middle[rank]["note"] == [
            f"{len(both)} of {N}",
            False,
        ]
        assert first["words"].startswith(f"rank {rank}, {EACH} of {N}: ")
    assert "holds 0, as a dense vector does" in {hold["says"] for hold in state["holds"]}
    assert "holds no entry" in {hold["says"] for hold in state["holds"]}
    assert [len(frame["remarks"]) for frame in state["frames"]] == [0, 0, 1]
    assert state["frames"][1]["phase"] == "exchange"
    assert "merged" in state["frames"][1]["summary"]
    figure = player.picture()
    assert len(figure.axes) == 3


def test_codes_of_the_sum_are_named_and_values_that_are_no_sum_of_entries_are_not_decoded():
    torch.manual_seed(0)
    scene = scene_of(dlviz.launch(summed, 2, args=("dense",), kwargs={"bits": 4}).trace)
    brought = {scene.carried(row) for row in scene.frames[-1].messages}
    assert all(words.startswith("a code of ") and words.endswith(" bytes") for words in brought)
    _, held, counts = next(states(scene, len(scene.frames) - 1))
    assert held.dense and (counts == -1).any()


def test_of_a_long_vector_the_first_cells_are_drawn_and_all_are_counted():
    scene = scene_of(dlviz.launch(summed, 2, args=("doubling", 1000)).trace)
    _, held, _ = next(states(scene, 1))
    assert len(held.cells) == SHOWN and held.nnz == len({*own(0, 1000), *own(1, 1000)})
    assert f"The first {SHOWN} of 1000 cells are drawn." in scene.caveats


def test_without_a_watched_vector_only_messages_are_shown_and_spans_say_no_buffer():
    trace = dlviz.launch(summed, 2, args=("split", N, torch.float32, False)).trace
    assert type(scene_of(trace)) is Scene and not trace.buffers
    assert not any("buffer" in (fields or {}) for fields in trace.spans.fields)
