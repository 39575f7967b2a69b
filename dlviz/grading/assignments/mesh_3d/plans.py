"""The best plan under a memory limit, chosen by a student's function, and its check.

    choose(table, memory)      a row of the table: the fastest plan within so many bytes a rank

The table is one of `dlviz.sim.plans`, its rows in any order, of a Transformer with 1.3 billion
parameters on V100 in nodes of 8.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from dlviz.cluster import Comm
from dlviz.grading.harness.attempt import attempt
from dlviz.grading.harness.check import at_each, check
from dlviz.grading.harness.feedback import CheckFailed, listed
from dlviz.grading.harness.sizes import Size
from dlviz.machine import Machine, Topology
from dlviz.machine.hardware import DEVICES, LINKS
from dlviz.sim import TransformerShape, plans

Row = dict[str, Any]
SHAPE = TransformerShape(layers=24, hidden=2048, heads=16, vocabulary=51200, sequence=1024)
BATCH, NODE, SLOWER = 128, 8, 1.05
NAMED = ("dp", "tp", "pp", "microbatch", "schedule", "recompute")
KNOWN = {  # hints by a phrase of the error of a run that did not finish
    "KeyError": "a row is a dict with the names that the text lists: which one is misspelled?",
    "empty": "no row is left. In which unit is the limit, and in which one the rows' memory? It is "
    "that of one rank.",
    "positional argument": "choose gets (table, memory).",
}


@dataclass(frozen=True)
class PlanSize(Size):
    """Devices, and the limit of a rank in GB."""

    legend = "devices x GB"
    devices: int
    gigabytes: float

    @property
    def limit(self) -> float:
        return round(self.gigabytes * 1e9)

    def __str__(self) -> str:
        return f"on {self.devices} devices with {self.gigabytes:.10g} GB a rank"


def plan_table(devices: int) -> list[Row]:
    """All plans for that many devices, in any order."""
    nodes, inside = max(1, devices // NODE), LINKS["NVLink 2"].link
    topology = Topology.racks(nodes, NODE, inside, LINKS["InfiniBand HDR"].link)
    machine = Machine(DEVICES["V100 SXM2 32GB"].device, topology)
    rows = plans(SHAPE, machine, devices, BATCH)
    Random(devices).shuffle(rows)
    return rows


@dataclass(frozen=True)
class Chosen:
    """What a student's function chose of a table."""

    size: PlanSize
    table: list[Row]
    got: Any


def attempt_choice(program: Callable[..., Any], size: PlanSize) -> Chosen:
    """Raises CheckFailed if the function does not finish."""
    table = plan_table(size.devices)
    run = attempt(
        _choose, 1, program, table, size.limit,
        where=size, expects="a row of the table", known=KNOWN, plain=True,
    )  # fmt: skip
    return Chosen(size, table, run.results[0])


def _choose(comm: Comm, program: Callable[..., Any], table: list[Row], limit: float) -> Any:
    """The values of a row as plain ints and strings: code of the program's own objects runs
    here, not in the judge."""
    got = program(table, limit)
    try:
        row = {name: got[name] for name in NAMED}
        return {name: v if type(v) in (int, str) else int(v) for name, v in row.items()}
    except (TypeError, ValueError, KeyError, IndexError):
        return str.__str__(repr(got)[:80])


# In the third the best plan needs exactly the limit; the next best takes 11 % longer.
SIZES = ((32, 2), (8, 5), (24, 1.444868096))


@check(
    "the plan fits, and none that fits is 5 % faster",
    points=4,
    size=PlanSize,
    sizes=SIZES,
    run=lambda programs, sizes: at_each(sizes, lambda size: attempt_choice(programs[0], size)),
)
def check_plan(chosen: Chosen) -> None:
    """choose(table, memory) returns a row within the memory limit; no other such row takes less
    than 1/1.05 of its seconds."""
    size = chosen.size
    row = _row_of(chosen)
    fitting = [each for each in chosen.table if each["memory"] <= size.limit]
    best = min(fitting, key=lambda each: each["seconds"])
    if row["memory"] > size.limit:
        raise CheckFailed(
            f"{size}, {_summary(row)} needs {row['memory'] / 1e9:.2f} GB on its fullest rank",
            f"a plan whose memory is {size.gigabytes:g} GB or less",
            _why_too_large(chosen, row),
        )
    if row["seconds"] > SLOWER * best["seconds"]:
        raise CheckFailed(
            f"{size}, {_summary(row)} takes {row['seconds']:.3f} s a step",
            "a plan that fits, such that no other that fits is 5 % faster",
            _why_slow(row, fitting, size),
        )


def _row_of(chosen: Chosen) -> Row:
    """The chosen row of the table, found by its names, so that its numbers are the table's."""
    if isinstance(chosen.got, dict):
        for row in chosen.table:
            if all(row[name] == chosen.got.get(name) for name in NAMED):
                return row
    raise CheckFailed(
        f"{chosen.size}, choose returns {chosen.got!s:.80}",
        f"a row of the table, a dict with {listed([*NAMED])} and more",
        "which line returns the row itself?",
    )


def _summary(row: Row) -> str:
    return (
        f"dp {row['dp']} x pp {row['pp']} x tp {row['tp']}, microbatches of {row['microbatch']}, "
        f"{row['schedule']}, recompute {row['recompute']},"
    )


def _why_too_large(chosen: Chosen, row: Row) -> str:
    table, limit = chosen.table, chosen.size.limit
    if row is min(table, key=lambda each: each["seconds"]):
        return (
            "that is the fastest plan of all, or of those whose column fits is true: that column "
            "assumes the device's whole memory. Which limit is yours?"
        )
    if row["fits"] and row["memory"] > 2 * limit:
        return (
            "the column fits assumes the device's whole memory. The limit is another one: with "
            "which column is it compared?"
        )
    if row["memory"] <= limit * 2**30 / 1e9:
        return "it would fit if the limit were in GiB. The limit is given in bytes, as memory is."
    return f"memory={limit:g} is in bytes, as the column memory. How do you compare the two?"


def _why_slow(row: Row, fitting: Sequence[Row], size: PlanSize) -> str:
    below = [each for each in fitting if each["memory"] < size.limit]
    if below and row is min(below, key=lambda each: each["seconds"]):
        return "a plan that needs exactly the limit fits too. Does your choice include it?"
    ends = [
        f"{end} {name}"
        for name in ("seconds", "memory", "bubble", "compute_seconds", "tp_bytes", "dp_bytes")
        for end, of in (("smallest", min), ("largest", max))
        if row is of(fitting, key=lambda each, name=name: each[name])
    ]
    if not ends:
        return "of the rows that fit, which column should be as small as possible?"
    summary = f"of those that fit that is the plan with the {listed(ends)}."
    if ends[0] == "smallest memory":
        return f"{summary} Unused memory gains nothing: what is wanted?"
    if ends[0] == "largest seconds":
        return f"{summary} Is the fastest plan the one with many of them, or with few?"
    return f"{summary} A step waits for other things too: which column has its total time?"
