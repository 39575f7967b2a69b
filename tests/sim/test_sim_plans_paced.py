"""sim.plans beside 8 real ranks that train the lab's Transformer by each plan, held to a machine.

By the device clock a plan takes what its operations and messages take, each at its price, whatever
computer runs it: that is what the planner has to foresee. Which of two plans is faster is asked of
the wall clock, on devices so slow that the math fits their pace.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from timing import attempts

import dlviz
from dlviz.analysis.order import order
from dlviz.machine import Device, Link, Machine, Topology
from dlviz.metrics import COMPUTE
from dlviz.models import Transformer
from dlviz.parallel import hybrid
from dlviz.sim import TransformerShape, plans

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:the run:RuntimeWarning"),  # a busy machine
]

LAB = TransformerShape(4, 64, 4, 128, 64)
RANKS, BATCH = 8, 16
SPEED = 1.5  # times that of the lab's devices
MACHINE = Machine(
    Device("lab", 1e8 * SPEED, 1e9, 1e9 * SPEED),
    Topology.switch(RANKS, Link(2e-3 / SPEED, 1e8 * SPEED)),
    None,
)
NAME = ("dp", "pp", "tp", "schedule", "microbatch")
TIE = 0.05
LATE, ON_TIME = 0.25, 0.02  # the few differ by so much that they may be late
FEW = ["8 1 1 1f1b 2", "2 2 2 interleaved 4", "1 2 4 zb_h1 16"]
WITHIN = {"gpipe": 0.01, "1f1b": 0.005, "interleaved": 0.02, "zb_h1": 0.05}


def all_plans():
    """The plans that can be run, by name."""
    rows = plans(LAB, MACHINE, RANKS, BATCH, itemsize=4, parameter_bytes=8)
    return {
        " ".join(str(row[part]) for part in NAME): row for row in rows if row["recompute"] == "none"
    }


def train(comm, rows, shape=LAB, batch=BATCH, **how):
    """A step by each plan."""
    sizes = shape.layers, shape.hidden, shape.heads, shape.vocabulary, shape.sequence
    size = (batch, shape.sequence + 1)
    tokens = torch.randint(shape.vocabulary, size, generator=torch.Generator().manual_seed(0))
    for row in rows:
        with torch.device("meta"):
            model = Transformer(*sizes)
        mesh = {axis: row[axis] for axis in ("dp", "pp", "tp")}
        many = batch // row["dp"] // row["microbatch"]
        comm.barrier()
        with comm.span("phase", "plan"):
            batches = [(tokens[:, :-1], tokens[:, 1:])]
            plan = {**mesh, "schedule": row["schedule"], "microbatches": many}
            hybrid.train(comm, model, batches, **plan, **how)


@pytest.fixture(scope="module", params=["few", pytest.param("all", marks=pytest.mark.sweep)])
def ran(request):
    """The plans by name, and the Trace of a step by each."""
    rows = all_plans()
    chosen = {name: rows[name] for name in (FEW if request.param == "few" else rows)}
    return chosen, dlviz.launch(
        train, RANKS, MACHINE, args=([*chosen.values()],), timeout=580
    ).trace


def measured(rows, trace, clock):
    """Seconds of each plan: from when all ranks of the first stages compute, which wait for nobody,
    to the end of the last update."""
    spans = trace.spans
    start, end = (
        (spans.start, spans.end) if clock == "device" else (spans.wall_start, spans.wall_end)
    )
    work = np.isin(spans.kind, [*COMPUTE, "update"])
    found = {}
    for rank in range(trace.meta["ranks"]):
        mine = np.flatnonzero(spans.rank == rank)
        phases = mine[(spans.kind[mine] == "phase") & (spans.name[mine] == "plan")]
        for (name, row), phase in zip(rows.items(), phases[np.argsort(start[phases])], strict=True):
            inside = (start[mine] >= start[phase]) & (end[mine] <= end[phase]) & work[mine]
            begin, finish = start[mine[inside]].min(), end[mine[inside]].max()
            if rank // row["tp"] % row["pp"]:  # it waits for activations
                begin = -np.inf
            began, finished = found.get(name, (-np.inf, -np.inf))
            found[name] = max(began, begin), max(finished, finish)
    return {name: finish - begin for name, (begin, finish) in found.items()}


def test_a_plan_takes_what_the_planner_says_by_the_device_clock(ran):
    """What norms and lookups take is not in a plan."""
    rows, trace = ran
    took = measured(rows, trace, "device")
    off = {name: abs(took[name] / row["seconds"] - 1) for name, row in rows.items()}
    assert {n: gap for n, gap in off.items() if gap > WITHIN[rows[n]["schedule"]]} == {}


def test_plans_come_in_the_order_of_paced_runs_by_the_wall_clock(ran):
    """Only plans that were on pace: those that other programs held up say nothing."""
    rows, trace = ran
    took, device = (measured(rows, trace, clock) for clock in ("wall", "device"))
    held = LATE if rows.keys() == {*FEW} else ON_TIME
    on_pace = [name for name in rows if took[name] <= (1 + held) * device[name]]
    assert len(on_pace) > len(rows) / 2
    found = order(
        {name: rows[name]["seconds"] for name in on_pace},
        {name: took[name] for name in on_pace},
        TIE,
    )
    assert found.agree and not found.swapped


def test_of_a_tied_gradient_a_step_waits_for_the_sum_alone_where_backwards_hide_the_gradient():
    """A message of it takes a twentieth of a step; under ZB-H1 the last stage has no gradient
    before the first one is through with its backwards."""
    shape = TransformerShape(2, 16, 2, 512, 8)
    machine = Machine(Device("d", 5e6, 1e9, 1e12), Topology.switch(2, Link(0, 1e6)), None)
    found = plans(shape, machine, 2, 4, itemsize=4)
    rows = {
        row["schedule"]: row
        for row in found
        if (row["pp"], row["microbatch"], row["recompute"]) == (2, 2, "none")
    }
    trace = dlviz.launch(train, 2, machine, args=([*rows.values()], shape, 4)).trace
    took = measured(rows, trace, "device")
    one = 512 * 16 * 4 / 1e6  # s
    for name, row in rows.items():
        assert row["seconds"] < 25 * one, name
        assert took[name] == pytest.approx(row["seconds"], abs=0.2 * one), name


def test_the_few_plans_hold_each_axis_and_differ_by_more_than_a_tie():
    rows = all_plans()
    assert len(rows) == 81
    seconds = [rows[name]["seconds"] for name in FEW]
    assert all(later > (1 + LATE) * one for one, later in zip(seconds, seconds[1:], strict=False))
    assert all(any(rows[name][axis] > 1 for name in FEW) for axis in ("dp", "pp", "tp"))


@pytest.mark.parametrize("between", [False, True])
def test_gradients_that_overlap_take_what_the_planner_says(between):
    """Also with dp between two racks."""
    inside, link = Link(1e-3, 2e7), Link(1e-3, 5e6)
    topology = Topology.racks(2, 2, inside, link) if between else Topology.switch(4, link)
    machine = Machine(Device("lab", 1e8, 1e9, 1e9), topology, None)
    how = {"overlap": True, "bucket_bytes": 2**16}
    found = plans(LAB, machine, 4, 8, itemsize=4, **how)
    rows = {
        (row["pp"], row["schedule"]): row
        for row in found
        if row["recompute"] == "none" and row["tp"] == 1
        and (row["dp"], row["microbatch"], row["schedule"])
        in ((4, 1, "1f1b"), (2, 1, "1f1b"), (2, 1, "gpipe"))
    }  # fmt: skip
    assert len(rows) == 3
    for attempt in attempts():  # a busy machine mixes up the messages of two lanes
        with attempt:
            run = dlviz.launch(train, 4, machine, args=([*rows.values()], LAB, 8), kwargs=how)
            took = measured(rows, run.trace, "device")
            for name, row in rows.items():
                assert took[name] == pytest.approx(row["seconds"], rel=0.01), name
