"""The event engine beside a plain one that follows the rules literally, and the Trace it leaves."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dlviz
from dlviz import Costs, metrics, simulate
from dlviz.machine import Chance, Link, Machine, Topology, classroom
from dlviz.schedules import NAMES, Action, Schedule, ScheduleError, make, needs, overlap, parse
from dlviz.schedules.rules import check_progress
from dlviz.sim.engine import start_times

CODES = {"forward": "F", "backward": "B", "backward_input": "I", "backward_weight": "W"}


def by_the_rules(schedule, costs):
    """Start and end of each action, found by asking again and again what can start."""
    stages, stage_rank = len(schedule.stage_rank), schedule.stage_rank
    times, free, at = {}, [0.0] * schedule.ranks, [0] * schedule.ranks

    def ready(action, rank):
        found = free[rank]
        for half in action.halves:
            for choice in needs(half, stages):
                one = next((one for one in choice if one in times), None)
                if one is None:
                    return None
                apart = stage_rank[one.stage] != rank
                found = max(found, times[one][1] + (costs.latency if apart else 0.0))
        return found

    moved = True
    while moved:
        moved = False
        for rank, row in enumerate(schedule.actions):
            while at[rank] < len(row) and (start := ready(row[at[rank]], rank)) is not None:
                free[rank] = start + costs.seconds(row[at[rank]])
                times.update(dict.fromkeys(row[at[rank]].halves, (start, free[rank])))
                at[rank] += 1
                moved = True
    return times


def times_in(trace):
    """The same of a Trace."""
    spans = trace.spans
    kinds = [CODES[kind] for kind in spans.kind]
    keys = zip(spans.stage.tolist(), kinds, spans.microbatch.tolist(), strict=True)
    times = zip(spans.start.tolist(), spans.end.tolist(), strict=True)
    return dict(zip((Action(*key) for key in keys), times, strict=True))


def at_random(seed):
    """A legal schedule: stages anywhere, backwards whole or split, now and then an overlap."""
    rng = random.Random(seed)
    ranks, stages, microbatches = rng.randint(1, 4), rng.randint(1, 6), rng.randint(1, 5)
    stage_rank = tuple(rng.randrange(ranks) for _ in range(stages))
    ahead = set()
    for stage in range(stages):
        for microbatch in range(microbatches):
            kinds = rng.choice(["FB", "FIW"])
            ahead |= {Action(stage, kind, microbatch) for kind in kinds}
    rows, done = [[] for _ in range(ranks)], set()
    while ahead:
        ready = sorted(
            action
            for action in ahead
            if all(any(one in done for one in choice) for choice in needs(action, stages))
        )
        action = rng.choice(ready)
        rank = stage_rank[action.stage]
        partners = [
            other
            for other in ready
            if stage_rank[other.stage] == rank and {action.kind, other.kind} in ({*"FB"}, {*"FI"})
        ]
        if partners and rng.random() < 0.5:
            action = overlap(action, rng.choice(partners))
        rows[rank].append(action)
        done.update(action.halves)
        ahead.difference_update(action.halves)
    return Schedule(rows, stage_rank)


def costs_at_random(seed, stages):
    """Whole numbers, so that no order of additions matters."""
    rng = random.Random(seed)

    def one():
        return rng.choice([rng.randint(0, 9), [rng.randint(0, 9) for _ in range(stages)]])

    either = rng.choice([None, one()]), rng.choice([None, one()])
    return Costs(one(), either[0], one(), one(), rng.choice([0, rng.randint(1, 9)]), either[1])


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 10**9))
def test_any_legal_schedule_has_the_times_that_the_rules_give(seed):
    schedule = at_random(seed)
    costs = costs_at_random(seed, len(schedule.stage_rank))
    schedule.check()
    trace = simulate(schedule, costs)
    trace.validate()
    assert times_in(trace) == by_the_rules(schedule, costs)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 10**9))
def test_a_schedule_is_simulated_or_explained_as_the_rules_say(seed):
    """Two actions of a row change places, or one is gone."""
    schedule = at_random(seed)
    rng = random.Random(seed + 1)
    row = rng.choice([row for row in schedule.actions if row])
    if rng.random() < 0.5:
        one, other = rng.randrange(len(row)), rng.randrange(len(row))
        row[one], row[other] = row[other], row[one]
    else:
        row.pop(rng.randrange(len(row)))
    if not any(schedule.actions):
        return
    try:
        check_progress(schedule)
    except ScheduleError as error:
        with pytest.raises(ScheduleError) as raised:
            simulate(schedule)
        assert str(raised.value) == str(error)
    else:
        assert times_in(simulate(schedule)) == by_the_rules(schedule, Costs())


@pytest.mark.parametrize("name", NAMES)
def test_the_zoo_has_the_times_that_the_rules_give(name):
    schedule = make(name, 3, 8)
    stages = len(schedule.stage_rank)
    slow = Costs([2 + (stage == 1) for stage in range(stages)], None, 3, 5, latency=4, overlapped=9)
    for costs in (Costs(), slow):
        assert times_in(simulate(schedule, costs)) == by_the_rules(schedule, costs)


def test_a_trace_of_columns_is_left():
    trace = simulate(make("1f1b", 2, 2), Costs(latency=0.5))
    assert isinstance(trace, dlviz.Trace)
    assert trace.meta["clock"] == "simulated" and trace.meta["outcome"] == "completed"
    assert trace.meta["machine"] == "F 1 s, I 1 s, W 1 s, latency 0.5 s"
    told_of = {name: trace.meta[name] for name in ("ranks", "schedule", "microbatches", "chunks")}
    assert told_of == {"ranks": 2, "schedule": "1f1b", "microbatches": 2, "chunks": 1}
    columns = ("rank", "lane", "kind", "start", "end", "stage", "microbatch", "flow")
    assert [tuple(trace.spans[name][row] for name in columns) for row in range(4)] == [
        (0, "compute", "forward", 0.0, 1.0, 0, 0, -1),
        (0, "compute", "forward", 1.0, 2.0, 0, 1, -1),
        (0, "compute", "backward", 5.0, 7.0, 0, 0, 0),
        (0, "compute", "backward", 8.0, 10.0, 0, 1, 1),
    ]


def test_a_message_goes_from_the_end_of_what_made_it_to_the_start_of_what_needs_it():
    trace = simulate(make("1f1b", 2, 2), Costs(latency=0.5))
    columns = ("src", "dst", "sent", "arrived", "received")
    messages = trace.messages
    assert [tuple(messages[name][row] for name in columns) for row in range(4)] == [
        (1, 0, 4.5, 5.0, 5.0),  # 1B0 to 0B0
        (1, 0, 7.5, 8.0, 8.0),
        (0, 1, 1.0, 1.5, 1.5),  # 0F0 to 1F0
        (0, 1, 2.0, 2.5, 4.5),  # 0F1 has to wait until 1B0 has run
    ]
    receiving = trace.spans[trace.spans.flow >= 0]
    assert (messages.received[receiving.flow] == receiving.start).all()
    assert (messages.dst[receiving.flow] == receiving.rank).all()


@pytest.mark.parametrize("name", NAMES)
def test_each_receive_from_another_rank_is_one_message(name):
    schedule = make(name, 3, 6)
    place = schedule.stage_rank
    pairs = zip(place, place[1:], strict=False)
    crossed = sum(one != other for one, other in pairs) * 6
    trace = simulate(schedule)
    assert len(trace.messages) == crossed * (1 if name == "inference" else 2)
    assert (trace.messages.src != trace.messages.dst).all()
    assert sorted(trace.spans.flow[trace.spans.flow >= 0]) == [*range(len(trace.messages))]


def test_latency_does_not_pass_between_stages_of_one_rank():
    rows = [[parse(cell) for cell in "0F0 1F0 1I0 0I0 1W0 0W0".split()]]
    assert metrics.makespan(simulate(Schedule(rows, (0, 0)), Costs(latency=100))) == 6


def test_the_halves_of_an_overlap_share_their_time_on_two_lanes():
    trace = simulate(make("dualpipev", 2, 4), Costs(2, 3, 1, 1, overlapped=4))
    second = np.flatnonzero(trace.spans.lane == "compute2")
    assert len(second) and set(trace.spans.lane) == {"compute", "compute2"}
    halves = trace.spans[second - 1], trace.spans[second]
    assert (halves[0].start == halves[1].start).all() and (halves[0].end == halves[1].end).all()
    assert (halves[0].end - halves[0].start == 4).all()
    assert (halves[0].lane == "compute").all() and (halves[0].rank == halves[1].rank).all()


@pytest.mark.parametrize("name", NAMES)
def test_memory_says_how_many_microbatches_a_rank_holds_from_when_on(name):
    trace = simulate(make(name, 3, 6), Costs(1, None, 2, 3, latency=0.5))
    assert set(trace.memory.what) == {"activations"}
    release = {"forward"} if name == "inference" else {"backward", "backward_weight"}
    for rank in range(3):
        spans = trace.spans[trace.spans.rank == rank]
        memory = trace.memory[trace.memory.rank == rank]
        assert (np.diff(memory.time) > 0).all() and memory.nbytes[-1] == 0
        for time, held in zip(memory.time, memory.nbytes, strict=True):
            taken = (spans.kind == "forward") & (spans.start <= time)
            freed = np.isin(spans.kind, [*release]) & (spans.end <= time)
            assert held == taken.sum() - freed.sum()


def test_costs_may_differ_by_stage_and_a_slow_one_sets_the_pace():
    even = simulate(make("gpipe", 4, 16))
    slow = simulate(make("gpipe", 4, 16), Costs(forward=[1, 3, 1, 1], backward=[2, 6, 2, 2]))
    assert metrics.makespan(even) == 19 * 3
    assert metrics.makespan(slow) == 3 * 3 + 16 * 9
    assert slow.meta["machine"] == "F by stage, B by stage, I 1 s, W 1 s"


def test_a_machine_says_what_actions_and_messages_cost():
    assert Costs.of(classroom(1)) == Costs(0.005, 0.01, 0.005, 0.005)
    slow = Link(0.003, 1e6)
    assert Costs.of(classroom(4, step=0.25, link=slow)) == Costs(0.25, 0.5, 0.25, 0.25, 0.003)
    racks = Topology.racks(2, 2, Link(0, 1e9), slow)  # from rank 1 to rank 2
    assert Costs.of(Machine(classroom(1).device, racks)).latency == 0.003


def test_a_backward_is_input_and_weight_unless_it_is_given():
    backward, both = parse("1B0"), parse("(0F1;1B0)OVERLAP_F_B")
    costs = Costs(10, None, [1, 2], [3, 4])
    assert costs.seconds(backward) == 6 and costs.seconds(both) == 16
    assert Costs(10, 5).seconds(backward) == 5
    for same in (both, parse("(1B0;0F1)OVERLAP_F_B")):
        assert Costs(10, 5, overlapped=[11, 12]).seconds(same) == 11
    assert Costs(forward=np.array([1, 2])) == Costs(forward=(1.0, 2.0))


def test_a_part_of_a_schedule_is_simulated():
    rows = make("gpipe", 2, 4).actions
    trace = simulate(Schedule([rows[0][:4], rows[1][:2]], (0, 1)))
    assert metrics.makespan(trace) == 4 and len(trace.messages) == 2


def test_a_schedule_that_cannot_go_on_is_explained():
    rows = make("1f1b", 2, 4).actions
    rows[1].remove(parse("1B0"))
    with pytest.raises(ScheduleError) as raised:
        simulate(Schedule(rows, (0, 1)))
    assert str(raised.value) == (
        "rank 0 stops before its 3rd action, 0B0: it needs 1B0, which never ran; "
        "its row up to there: 0F0 0F1 [0B0]."
    )


@pytest.mark.parametrize(
    "rows",
    [
        ["0F0 0F0"],
        ["0F0 0B0 0B0"],
        ["0F0 0B0 0I0"],
        ["0F0 0B0 0W0"],
        ["0F0 1F0", "1I0 1W0 0I0 0W0"],
        ["0F0 2F0", ""],
        ["0F0 1F0", "1B0 0B0"],
        ["0F0 0W0 0I0", "1F0 1B0"],
        ["0F0 0B0", "1B0 1F0"],
        ["0F0 0I0 0B0", "1F0 1B0"],
        ["(0F0;0F1)OVERLAP_F_B"],
    ],
)
def test_what_breaks_a_rule_is_not_simulated(rows):
    broken = Schedule(
        [[parse(cell) for cell in row.split()] for row in rows], tuple(range(len(rows)))
    )
    with pytest.raises(ScheduleError) as raised:
        simulate(broken)
    with pytest.raises(ScheduleError) as expected:
        broken.check()
    assert str(raised.value) == str(expected.value)


def test_an_overlap_that_needs_its_own_half_is_explained():
    with pytest.raises(
        ScheduleError, match="^rank 0 stops before its 1st action, .0F0;0B0.OVERLAP"
    ):
        simulate(Schedule([[overlap(parse("0F0"), parse("0B0"))]], (0,)))


@pytest.mark.parametrize("value", [-1, -0.5, math.nan, math.inf, "1", True, [1, -1], [1, math.nan]])
@pytest.mark.parametrize("name", ["forward", "backward", "backward_weight", "overlapped"])
def test_a_cost_that_is_no_time_is_refused_in_one_sentence(name, value):
    law = r"is not a cost: it must be a number of seconds, 0 or more\.$"
    with pytest.raises(ValueError, match=rf"^{name}(\[1\])?=.* {law}"):
        Costs(**{name: value})


@pytest.mark.parametrize("value", [-1, math.nan, None, [1, 2]])
def test_a_latency_is_one_number(value):
    with pytest.raises(ValueError, match="^latency=.* is not a cost"):
        Costs(latency=value)


def test_costs_of_another_length_are_refused():
    with pytest.raises(ValueError) as raised:
        simulate(make("interleaved", 2, 4), Costs(backward_weight=[1, 2, 3]))
    assert str(raised.value) == (
        "backward_weight has 3 costs and the schedule 4 stages: give a number, or one cost for "
        "each stage."
    )


def test_the_trace_is_saved_and_loaded(tmp_path):
    trace = simulate(make("dualpipev", 2, 4), Costs(latency=0.25))
    back = dlviz.Trace.load(trace.save(tmp_path / "it.json"))
    assert times_in(back) == times_in(trace)
    assert back.messages.received.tolist() == trace.messages.received.tolist()
    assert back.meta == trace.meta


def test_a_part_of_a_schedule_may_begin_with_any_microbatch():
    rows = [[parse("0F7")], [parse("1F7")]]
    trace = simulate(Schedule(rows, (0, 1)), Costs(latency=0.5))
    assert trace.spans.start.tolist() == [0.0, 1.5] and trace.spans.microbatch.tolist() == [7, 7]


@pytest.mark.parametrize("name", NAMES)
def test_the_start_times_of_rows_are_those_of_the_trace(name):
    schedule, costs = make(name, 3, 6), Costs(2, 3, 1, 1, latency=0.5, overlapped=4)
    starts, spans = start_times(schedule, costs), simulate(schedule, costs).spans
    by_rank = [spans.start[(spans.rank == r) & (spans.lane == "compute")] for r in range(3)]
    assert starts == [row.tolist() for row in by_rank]


def test_the_actions_of_a_slow_rank_take_as_many_times_as_long():
    """1F1B on 2 ranks, the second one 3 times as slow: its m forwards and backwards follow each
    other without a gap."""
    m = 4
    trace = simulate(make("1f1b", 2, m), Costs(1.0, 2.0, factors=[1, 3]))
    slow = trace.spans.rank == 1
    took = trace.spans.end - trace.spans.start
    assert set(took[slow & (trace.spans.kind == "forward")]) == {3.0}
    assert set(took[~slow & (trace.spans.kind == "backward")]) == {2.0}
    assert metrics.makespan(trace) == 1 + m * 9 + 2
    assert trace.meta["machine"] == "F 1 s, B 2 s, I 1 s, W 1 s, rank 1 takes 3x as long"


def test_operations_are_slow_by_the_number_that_they_have_on_their_rank():
    chance = Chance(0.5, 4, seed=1)
    schedule = make("gpipe", 3, 5)
    trace = simulate(schedule, Costs(factors=[chance, 1, chance]))
    for rank in range(3):
        mine = trace.only(rank=rank).spans
        took = (mine.end - mine.start)[np.argsort(mine.start)]
        price = np.where(mine.kind[np.argsort(mine.start)] == "forward", 1.0, 2.0)
        drawn = [chance.draw(rank, i) if rank != 1 else 1.0 for i in range(10)]
        np.testing.assert_allclose(took / price, drawn)


def test_factors_that_do_not_fit_a_schedule_are_refused():
    with pytest.raises(ValueError, match="^Costs: 3 factors do not fit 2 ranks"):
        simulate(make("gpipe", 2, 2), Costs(factors=[1, 1, 1]))
    with pytest.raises(ValueError, match=r"^Costs: factors\[0\]=0 has to be a number, above 0"):
        Costs(factors=[0])


def test_a_machine_hands_its_factors_on_and_one_without_a_step_cannot_price_a_schedule():
    assert Costs.of(classroom(2, factors=[1, 2])).factors == (1, 2)
    with pytest.raises(ValueError, match="step=None has no time"):
        Costs.of(classroom(2, step=None))


def test_a_schedule_may_be_given_by_its_name_and_sizes():
    costs = Costs(forward=2.0)
    by_name = simulate("interleaved", costs, ranks=3, microbatches=6, chunks=3)
    made = simulate(make("interleaved", 3, 6, 3), costs)
    assert by_name.meta == made.meta
    assert by_name.spans.end.tolist() == made.spans.end.tolist()


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: simulate("1f1b"), r"'1f1b' has no size: give ranks and microbatches, as in sim"),
        (lambda: simulate("1f1b", ranks=4), "'1f1b' has no size"),
        (lambda: simulate("1f2b", ranks=4, microbatches=8), "'1f2b' is not a schedule: use one"),
        (lambda: simulate(make("1f1b", 2, 2), 2.0), r"costs=2.0 has to be a Costs, as in Costs\("),
        (lambda: simulate(make("1f1b", 2, 2), ranks=2), "ranks=2 is out of place: Schedule"),
        (lambda: simulate([["0F0"]]), r"schedule=\[\['0F0'\]\] has to be a Schedule, or a sched"),
    ],
)
def test_what_cannot_be_simulated_is_refused_in_a_sentence(call, says):
    with pytest.raises(ValueError, match=says):
        call()
