"""The devices that the labs run a pipeline on."""

from __future__ import annotations

import pytest

from dlviz import Costs, metrics, simulate
from dlviz.machine import Link
from dlviz.parallel import pipeline
from dlviz.schedules import make


@pytest.mark.parametrize("chunks", [1, 2, 5])
def test_a_forward_through_all_stages_of_a_rank_takes_10_ms_however_many_they_are(chunks):
    schedule = make("interleaved", 2, 4, chunks)
    machine = pipeline.devices(schedule)
    assert machine.ranks == 2 and chunks * machine.seconds("forward") == pytest.approx(0.01)
    busy = metrics.busy(simulate(schedule, Costs.of(machine)))
    assert busy == pytest.approx([4 * 0.03] * 2)


def test_messages_take_the_time_that_is_given_and_none_otherwise():
    schedule = make("1f1b", 3, 4)
    assert Costs.of(pipeline.devices(schedule)).latency == 0.0
    assert Costs.of(pipeline.devices(schedule, Link(0.004, 1e9))).latency == 0.004
