"""Placements: what the checks rest on, rehearsals, and the answers of the predictions."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from courses import Assignment
from programs import held_to_rows
from rows import checks, rows

from dlviz.grading.assignments.placement import checks as placement_checks
from dlviz.grading.assignments.placement.model import (
    MISTAKES,
    Case,
    devices_of,
    drawn,
    graph_of,
    greedy_placement,
    messages_of,
    played,
    shows_greedy,
    shows_messages,
    shows_spans,
    upward_ranks,
)
from dlviz.machine import Link
from dlviz.sim.placement import BRANCHES, Devices, play, search
from dlviz.sim.placement import upward_ranks as ranks_of_sim

globals().update(held_to_rows("placement"))
ROWS = {row.what: row for row in rows("placement")}


def branches(placement, message):
    case = Case(BRANCHES, Devices(2, Link(message, float("inf"))), placement)
    return max(end for _, end in played(case)[0])


FORMULAS = {
    "placement-seconds": branches([0, 0, 1, 1, 0, 0], 1),
    "placement-played": branches([0, 0, 0, 1, 1, 0], 4),
    "placement-logit": (-2 + 3) * (1 - 1 / 4),
}


def cases(count, unequal):
    draw = random.Random(count)
    for _ in range(40):
        graph = graph_of(draw.randint(1, 12), draw)
        places = [draw.randrange(count) for _ in range(len(graph))]
        yield Case(graph, devices_of(count, unequal, draw), places)


def test_checks_are_worth_18_points():
    points = Assignment("placement").points()
    each = [ROWS["the solution"].check(name) for name in checks("placement")]
    assert sum(check.points for check in each) == 18 == sum(points.values()) - 2


@pytest.mark.parametrize("unequal", [False, True])
def test_on_two_devices_the_rule_is_that_of_the_simulator(unequal):
    for case in cases(2, unequal):
        spans, messages = played(case)
        trace = play(case.graph, case.placement, case.devices)
        ran = [row for row in trace.spans.rows() if row.lane == "compute"]
        assert {(row.stage, row.start, row.end) for row in ran} == {
            (group, *span) for group, span in enumerate(spans)
        }
        assert {*messages} == {(m.tag, m.dst, m.sent, m.arrived) for m in trace.messages.rows()}


def test_the_messages_of_right_spans_and_the_greedy_are_those_of_the_rule():
    for case in [case for unequal in (False, True) for case in cases(3, unequal)]:
        spans, messages = played(case)
        assert sorted(messages_of(case, spans)) == sorted(messages)
        assert greedy_placement(case) == search(case.graph, case.devices, "greedy").placement
    assert upward_ranks(BRANCHES) == ranks_of_sim(BRANCHES, 2)


def test_draws_tell_each_known_mistake_from_the_rule():
    told = drawn(8, 3, True, shows_spans, Link(0, float("inf")))
    for rule in ("inputs", "single", "ranked", "earliest", "scaled"):
        assert any(played(case)[0] != played(case, **{rule: False})[0] for case in told)
    told = drawn(8, 3, True, shows_messages)
    for rule in ("once", "port", "urgent"):
        assert any(played(case)[0] != played(case, **{rule: False})[0] for case in told)
    told = drawn(7, 3, True, shows_greedy)
    right = [greedy_placement(case) for case in told]
    for how in MISTAKES.values():
        assert right != [greedy_placement(case, **how) for case in told]
    serial = [replace(case, placement=[0] * 7) for case in told]
    assert not shows_spans(serial), "on one device nothing is told"


@pytest.mark.slow
def test_rehearsals_show_the_answers_of_the_predictions_and_what_is_wrong():
    names = ROWS["the solution"]
    (mine,), (greedy,) = names.programs("devices"), names.programs("greedy")
    done = placement_checks.rehearse(mine, [0, 0, 1, 1, 0, 0], 1)
    assert done.right and done.seconds == 9 and len(done.trace.messages) == 3
    done = placement_checks.rehearse_greedy(greedy, mine, 4)
    assert done.right and done.seconds == 16 and "promised were 13 s" in repr(done)
    done = placement_checks.rehearse_update(*names.programs("update"))
    assert done.right and done.change == 0.75
    done = placement_checks.rehearse_learn(*names.programs("learn"), steps=20)
    assert len(done.means) == 20 and "of all 1024 placements the best takes 13 s" in " ".join(
        repr(done).split()
    )
    (both,) = ROWS["two groups at a time on a device"].programs("devices")
    done = placement_checks.rehearse(both, [0] * 6, 1)
    assert not done.right and "runs two groups at a time" in repr(done)
