"""How far apart replicas are: batch by batch where all share them, else by what each had last."""

from __future__ import annotations

import numpy as np
import pytest
from worked_traces import worked

from dlviz import metrics
from dlviz.trace import Trace


def test_ranks_that_share_batches_are_compared_batch_by_batch_whoever_is_late():
    """Rank 1 begins 0.4 s later, and with the same weights."""
    steps = {0: [(0, 0.0, 1.0), (1, 1.0, 2.0)], 1: [(0, 0.4, 1.4), (1, 1.4, 2.4)]}
    begun = [(0, 0.0, [3.0, 4.0]), (1, 1.0, [6.0, 8.0])]
    alike = {0: begun, 1: [(number, when + 0.4, model) for number, when, model in begun]}
    table = metrics.disagreement(worked(steps, alike))
    assert table.disagreement.tolist() == [0.0, 0.0]
    apart = {**alike, 1: [(0, 0.4, [3.0, 4.0]), (1, 1.4, [6.0, 10.0])]}
    table = metrics.disagreement(worked(steps, apart))
    # (6, 8) and (6, 10) are 1 from (6, 9) each
    np.testing.assert_allclose(table.disagreement, [0.0, 1 / np.hypot(6, 9)])
    np.testing.assert_allclose(table.seconds, [0.8, 2.8])
    device = metrics.disagreement(worked(steps, apart), clock="device")
    np.testing.assert_allclose(device.seconds, [0.4, 1.4])


def test_ranks_with_batches_of_their_own_are_compared_whenever_one_begins_a_batch():
    steps = {0: [(0, 0.0, 1.0), (2, 1.0, 2.0)], 1: [(1, 0.5, 3.0)]}
    recorded = {0: [(0, 0.0, [1.0]), (2, 1.0, [3.0])], 1: [(1, 0.5, [1.0])]}
    table = metrics.disagreement(worked(steps, recorded))
    np.testing.assert_allclose(table.seconds, [0.0, 1.0, 2.0])
    np.testing.assert_allclose(table.disagreement, [0.0, 0.0, 1 / 2])  # 3 and 1: 1 from 2


def test_a_server_that_computes_nothing_has_no_replica():
    steps = {1: [(0, 0.0, 1.0)], 2: [(1, 0.0, 1.0)]}
    trace = worked(steps, {1: [(0, 0.0, [2.0])], 2: [(1, 0.0, [2.0])]})
    server = {"name": "replica", "where": "", "step": 0, "array": np.array([-1.0, 50.0])}
    shots = [{**server, "rank": 0, "index": i, "time": 1.0 + i, "wall": 2.0} for i in range(3)]
    with_server = Trace(trace.spans, buffers=[*shots, *trace.buffers], meta=trace.meta)
    assert metrics.disagreement(with_server).disagreement.tolist() == [0.0, 0.0]


def test_a_run_in_which_no_replica_was_recorded_is_refused_with_what_to_do():
    with pytest.raises(ValueError, match=r"have the worker call parallel.replicas.watch_replica"):
        metrics.disagreement(worked({0: [(0, 0.0, 1.0)]}))
    with pytest.raises(ValueError, match="no rank of this Trace recorded its replica"):
        metrics.disagreement(Trace([]))
