"""viz.density: how full the ranks' vectors get in a sparse all-reduce of real ranks."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch

import dlviz
from dlviz import viz
from dlviz.analysis.density import density
from dlviz.collectives import sparse

N = 100


@cache
def ran(*densities: float, algorithm: str = "doubling", dtype: torch.dtype = torch.float32):
    """The Trace of a sum: each rank has an entry in the first `density` of every 50 elements."""

    def worker(comm):
        index = np.flatnonzero(np.arange(N) % 50 < 50 * densities[comm.rank]).astype(np.int32)
        pairs = sparse.Pairs(torch.from_numpy(index), torch.ones(len(index), dtype=dtype), N)
        sparse.all_reduce(comm, pairs, algorithm)

    return dlviz.launch(worker, ranks=len(densities)).trace


def points(figure, rank):
    """Where a rank's marks are, each once."""
    (series,) = (each for each in figure.data if each.meta == rank)
    marks = zip(series.x, np.round(series.y, 6), series.marker.symbol, strict=True)
    return [*dict.fromkeys((int(x), float(y), symbol) for x, y, symbol in marks)]


def test_a_line_rises_with_the_entries_and_jumps_where_the_vector_turns_dense():
    figure = viz.density(ran(0.1, 0.2, 0.3, 0.6))
    assert points(figure, 0) == [(0, 10, "circle"), (1, 20, "circle"), (2, 100, "square")]
    assert points(figure, 3) == [(0, 60, "star"), (0, 100, "square"), (1, 100, "square"),
                                 (2, 100, "square")]  # fmt: skip
    assert figure.layout.title.text.count("Rank 3 turned dense before the first step, 60 % full.")
    (limit,) = figure.layout.shapes
    assert limit.y0 == limit.y1 == 50
    names = [each.name for each in figure.data if each.showlegend is not False]
    kinds = ["pairs of index and value", "turns dense", "a dense vector"]
    assert sorted(names) == sorted([*(f"rank {rank}" for rank in range(4)), *kinds])
    assert figure.layout.height <= 640


def test_the_limit_is_higher_where_values_are_wider():
    figure = viz.density(ran(0.1, 0.6, dtype=torch.float64))
    assert figure.layout.shapes[0].y0 == 66
    assert "No rank's vector turns dense." in figure.layout.title.text


def test_a_rank_that_sits_out_keeps_what_it_has_until_the_end():
    figure = viz.density(ran(0.1, 0.2, 0.3))
    assert points(figure, 0) == [(0, 10, "circle"), (2, 10, "circle"), (3, 30, "circle")]
    assert points(figure, 2) == [(0, 30, "circle"), (1, 30, "circle"), (2, 30, "circle"),
                                 (3, 30, "circle")]  # fmt: skip


def test_split_shows_each_ranks_own_part_and_then_the_sum():
    table = density(ran(0.1, 0.6, algorithm="split"))
    own = table[table["rank"] == 0]
    assert [*zip(own["round"], own.density, own.held, strict=True)] == [
        (0, 0.1, "pairs"), (0, 0.1, "pairs"), (1, 0.6, "turns dense"), (1, 1.0, "dense"),
        (2, 1.0, "dense"),
    ]  # fmt: skip
    assert "All ranks turned dense" not in viz.density(ran(0.1, 0.2)).layout.title.text


def test_a_trace_without_one_sparse_all_reduce_is_refused():
    def twice(comm):
        for step in range(2):
            with comm.span("step", step=step):
                sparse.all_reduce(comm, torch.ones(4))

    trace = dlviz.launch(twice, ranks=2).trace
    with pytest.raises(ValueError, match="more than one sparse all-reduce"):
        viz.density(trace)
    assert len(density(trace.only(step=1))) == 8
    with pytest.raises(ValueError, match="no sparse all-reduce"):
        viz.density(trace.only(kind="send"))
