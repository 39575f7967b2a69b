"""The stages of a pipeline by rank: several stages of one rank are its chunks."""

from __future__ import annotations

import numpy as np

from dlviz.analysis.columns import COMPUTE, of_kinds
from dlviz.trace import Trace


def chunks_of(trace: Trace) -> tuple[np.ndarray, int]:
    """For each span the number of its stage among those of its rank, from 0 (0 without a stage, and
    for a span that is not a forward or backward), and the most stages of a rank."""
    spans = trace.spans
    chunk = np.zeros(len(spans), np.int64)
    staged = np.flatnonzero((spans.stage >= 0) & of_kinds(spans, COMPUTE))
    if not len(staged):
        return chunk, 1
    width = int(spans.stage[staged].max()) + 1
    held, of = np.unique(spans.rank[staged] * width + spans.stage[staged], return_inverse=True)
    rank = held // width
    number = np.arange(len(held)) - np.searchsorted(rank, rank)
    chunk[staged] = number[of]
    return chunk, int(number.max()) + 1


def pipeline_size(trace: Trace) -> tuple[int, int, int]:
    """Ranks, microbatches, and the most stages of a rank, counted in the spans."""
    spans = trace.only(kind=COMPUTE).spans
    return len(trace.ranks), len({*spans.microbatch.tolist()}), chunks_of(trace)[1]
