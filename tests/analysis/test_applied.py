"""Which gradients a server applied, and how old they were, on Traces made by hand and played."""

from __future__ import annotations

import pytest

from dlviz import Trace, metrics
from dlviz.analysis.applied import applied
from dlviz.machine import classroom
from dlviz.sim import Layer, strategy

LAYERS = [Layer("fc", 0.02, 0.04, 4000)]


def served(*rows):
    """A server's Trace: what it did, with whom, second after second; ranks 1 to 3 compute."""
    spans = [
        {"rank": 0, "lane": "compute", "kind": kind, "peer": peer, "start": at, "end": at + 1}
        for at, (kind, peer) in enumerate(rows)
    ]
    for rank in (1, 2, 3):
        own = {"rank": rank, "lane": "compute", "start": 0.0, "end": 1.0}
        spans += [{**own, "kind": "forward"}, {**own, "kind": "update", "start": 1.0, "end": 2.0}]
    return Trace(spans, meta={"clock": "simulated"})


def test_an_update_without_a_peer_is_by_all_that_came_but_who_was_answered_before():
    trace = served(
        ("recv", 1), ("recv", 2), ("update", -1), ("send", 1), ("send", 2),
        ("recv", 3), ("send", 3), ("recv", 2), ("recv", 3), ("update", -1),
    )  # fmt: skip
    table = applied(trace)
    assert list(zip(table.rank, table.time, table.staleness, strict=True)) == [
        (1, 3, 0), (2, 3, 0), (2, 10, 0), (3, 10, 0),
    ]  # fmt: skip


def test_the_age_of_a_gradient_counts_the_updates_since_its_weights_were_sent():
    trace = served(
        ("recv", 1), ("update", 1), ("send", 1), ("recv", 2), ("update", 2), ("send", 2),
        ("recv", 1), ("update", 1), ("recv", 3), ("update", 3),
    )  # fmt: skip
    table = applied(trace)
    assert table.rank.tolist() == [1, 2, 1, 3]
    assert table.staleness.tolist() == [0, 1, 1, 3]


@pytest.mark.parametrize("bound", [1, float("inf")])
def test_it_is_what_staleness_says_where_updates_name_their_peer(bound):
    on = classroom(5, step=None, factors=[1, 1, 1, 1.3, 3])
    trace = strategy("stale_synchronous", LAYERS, 60, on, update=1e-4, bound=bound)
    table, other = applied(trace), metrics.staleness(trace)
    assert table.rank.tolist() == other.rank.tolist()
    assert table.staleness.tolist() == other.staleness.tolist()
    assert table.staleness.max() > 3


def test_without_a_server_each_rank_applies_its_own():
    trace = strategy("gossip", LAYERS, 6, classroom(3, step=None), update=1e-4)
    table = applied(trace)
    assert sorted(table.rank.tolist()) == [0] * 6 + [1] * 6 + [2] * 6
    assert (table.staleness == -1).all()
