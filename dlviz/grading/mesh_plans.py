"""The best plan under a limit of memory that a student's function chooses, and its check.

    choose(table, memory)      a row of the table: the fastest plan that takes so many bytes a rank

The table is one of `dlviz.sim.plans`, its rows in any order, of a Transformer with 1.3 billion
parameters on V100 in nodes of 8.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from dlviz.cluster import Comm, RunError
from dlviz.grading.alone import ended_by, run_alone, why_ended
from dlviz.grading.check import at_each, check
from dlviz.grading.feedback import CheckFailed, listed
from dlviz.machine import Machine, Topology
from dlviz.machine.hardware import DEVICES, LINKS
from dlviz.sim import TransformerShape, plans

Row = dict[str, Any]
SHAPE = TransformerShape(layers=24, hidden=2048, heads=16, vocabulary=51200, sequence=1024)
BATCH, NODE, SLOWER = 128, 8, 1.05
NAMED = ("dp", "tp", "pp", "microbatch", "schedule", "recompute")
KNOWN = {  # hints by what stands in the message of a run that did not come to its end
    "KeyError": "a row is a dict with the names that the text lists: which is spelled otherwise?",
    "empty": "no row is left. In which unit is the limit, and in which one the rows' memory? It is "
    "that of one rank.",
    "positional argument": "choose gets (table, memory).",
}


@dataclass(frozen=True)
class PlanSize:
    """Devices, and the limit of a rank in GB."""

    devices: int
    gigabytes: float

    trivial = False

    @property
    def limit(self) -> float:
        return self.gigabytes * 1e9

    def __str__(self) -> str:
        return f"on {self.devices} devices with {self.gigabytes:g} GB a rank"

    @staticmethod
    def listed(sizes: Sequence[PlanSize]) -> str:
        return f"at devices x GB = {listed([f'{s.devices}x{s.gigabytes:g}' for s in sizes])}"

    @staticmethod
    def in_common(passed: Sequence[PlanSize], failed: Sequence[PlanSize]) -> str:
        return ""


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
    """Raises CheckFailed where the function does not come to its end."""
    table = plan_table(size.devices)
    try:
        got = run_alone(_choose, 1, program, table, size.limit).results[0]
    except RunError as error:
        raise CheckFailed(
            f"{size}, {ended_by(error, plain=True)}",
            "a row of the table",
            why_ended(error, KNOWN),
        ) from error
    return Chosen(size, table, got)


def _choose(comm: Comm, program: Callable[..., Any], table: list[Row], limit: float) -> Any:
    got = program(table, limit)
    return dict(got) if isinstance(got, Mapping) else repr(got)


@check(
    "the plan fits, and none that fits is 5 % faster",
    points=4,
    size=PlanSize,
    sizes=((8, 8), (8, 4), (32, 2)),
    run=lambda programs, sizes: at_each(sizes, lambda size: attempt_choice(programs[0], size)),
)
def check_plan(chosen: Chosen) -> None:
    """choose(table, memory) returns a row whose memory is within the limit; no other such row takes
    less than 1/1.05 of its seconds."""
    size = chosen.size
    row = _row_of(chosen)
    fitting = [each for each in chosen.table if each["memory"] <= size.limit]
    best = min(fitting, key=lambda each: each["seconds"])
    if row["memory"] > size.limit:
        raise CheckFailed(
            f"{size}, {_told(row)} needs {row['memory'] / 1e9:.2f} GB on its fullest rank",
            f"a plan whose memory is {size.gigabytes:g} GB or less",
            _why_too_large(chosen, row),
        )
    if row["seconds"] > SLOWER * best["seconds"]:
        raise CheckFailed(
            f"{size}, {_told(row)} takes {row['seconds']:.3f} s a step",
            "a plan that fits, such that no other that fits is 5 % faster",
            _why_slow(row, fitting),
        )


def _row_of(chosen: Chosen) -> Row:
    """The row of the table that was chosen, by its names: its numbers are those of the table."""
    if isinstance(chosen.got, dict):
        for row in chosen.table:
            if all(row[name] == chosen.got.get(name) for name in NAMED):
                return row
    raise CheckFailed(
        f"{chosen.size}, choose returns {chosen.got!r:.80}",
        f"a row of the table, a dict with {listed([*NAMED])} and more",
        "which line returns the row itself?",
    )


def _told(row: Row) -> str:
    return (
        f"dp {row['dp']} x pp {row['pp']} x tp {row['tp']}, microbatches of {row['microbatch']}, "
        f"{row['schedule']}, recompute {row['recompute']},"
    )


def _why_too_large(chosen: Chosen, row: Row) -> str:
    if row["seconds"] <= min(each["seconds"] for each in chosen.table):
        return (
            "that is the fastest plan of all, and a run of it ends with a rank out of memory. "
            "Which rows may be compared at all?"
        )
    return (
        "the column fits goes by all the memory that the device has. The limit is another one: "
        "with which column is it compared?"
    )


def _why_slow(row: Row, fitting: Sequence[Row]) -> str:
    if row["memory"] <= min(each["memory"] for each in fitting):
        return (
            "that is the plan with the least memory. Memory that is left over buys nothing: what "
            "is wanted?"
        )
    if row["bubble"] <= min(each["bubble"] for each in fitting):
        return (
            "that is a plan with the smallest bubble. A step waits for the all-reduces of tp and "
            "dp too: which column has the time of it all?"
        )
    return "of the rows that fit, which column is to be as small as possible?"
