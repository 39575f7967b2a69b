"""The event engine: when each action of a schedule would run, and the Trace of it.

An action starts once its rank is free and its input from another stage has arrived; it lasts what
`Costs` says, on a slow rank so many times as long; its result reaches the next stage `latency`
seconds later, or immediately if that stage is on the same rank.

The loop that finds the starts is dlviz/schedules/progress.py; everything around it is on columns.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from operator import itemgetter
from typing import Any, NoReturn

import numpy as np

from dlviz.counts import of_numbers
from dlviz.machine import Machine
from dlviz.machine.machine import Factors, check_factors, check_length, slow_ranks, slowdown
from dlviz.schedules import RECEIVES_FROM, Action, Schedule, make
from dlviz.schedules.action import KIND_NAMES, KINDS
from dlviz.schedules.progress import Work, run
from dlviz.schedules.rules import check_actions, check_progress, is_overlap
from dlviz.trace import Trace

Seconds = float | Sequence[float]

_PRICES = ("forward", "backward", "backward_input", "backward_weight", "latency", "overlapped")
_CODE = {kind: code for code, kind in enumerate(KINDS)}
_F, _B, _I, _W = _CODE.values()
_STEP = np.array([RECEIVES_FROM[kind] for kind in KINDS])
_RESULT = np.array([0, 1, 1, 2])  # activations, the gradient of the input, that of the weights
_NAMED = 1024  # microbatch numbers that a part of a schedule may use even with fewer actions
_STAGE, _KIND, _MICROBATCH, _PARTS = map(itemgetter, range(4))  # the columns of actions, fast


@dataclass(frozen=True)
class Costs:
    """Seconds of a microbatch's pass through a stage: a number, or one for each stage.

    `backward=None` is input + weight. An overlap takes `overlapped` (of the stage that runs its
    forward), by default the sum of its halves: nothing is gained. `latency` passes from the end of
    an action until another rank has its result. `factors` are those of a Machine: the actions of
    rank r take factors[r] times as long. Raises ValueError for an invalid time or factor.
    """

    forward: Seconds = 1.0
    backward: Seconds | None = None
    backward_input: Seconds = 1.0
    backward_weight: Seconds = 1.0
    latency: float = 0.0
    overlapped: Seconds | None = None
    factors: Factors | None = None

    @classmethod
    def of(cls, machine: Machine) -> Costs:
        """What each action takes on a rank of `machine`, and the latency of its messages from one
        rank to the next, the largest of them. Raises ValueError for a machine without a step."""
        path, last = machine.topology.path, machine.ranks - 1
        latency = max((path(rank, rank + 1).latency for rank in range(last)), default=0.0)
        takes = {kind: machine.seconds(kind) for kind in KIND_NAMES.values()}
        return cls(**takes, latency=latency, factors=machine.factors)

    def __post_init__(self) -> None:
        if self.factors is not None:
            object.__setattr__(self, "factors", check_factors("Costs", self.factors))
        for name in _PRICES:
            value = getattr(self, name)
            if value is None and name in ("backward", "overlapped"):
                continue
            if isinstance(value, (list, tuple, np.ndarray)) and name != "latency":
                times = tuple(_time(f"{name}[{stage}]", one) for stage, one in enumerate(value))
                object.__setattr__(self, name, times)
            else:
                object.__setattr__(self, name, _time(name, value))

    def seconds(self, action: Action) -> float:
        """How long `action` takes."""
        if action.parts:
            if self.overlapped is None:
                return sum(map(self.seconds, action.parts))
            return self._at("overlapped", next(a.stage for a in action.parts if a.kind == "F"))
        if action.kind == "B" and self.backward is None:
            stage = action.stage
            return self._at("backward_input", stage) + self._at("backward_weight", stage)
        return self._at(KIND_NAMES[action.kind], action.stage)

    def check_stages(self, stages: int) -> None:
        """Raises ValueError where costs by stage are not `stages` many."""
        for name in _PRICES:
            value = getattr(self, name)
            if isinstance(value, tuple) and len(value) != stages:
                raise ValueError(
                    f"{name} has {len(value)} costs and the schedule {stages} stages: give a "
                    "number, or one cost for each stage."
                )

    def __str__(self) -> str:
        """One line for a figure: `F 1 s, I 1 s, W 1 s, latency 0.1 s`."""
        named = {
            "F": self.forward,
            "B": self.backward,
            "I": self.backward_input,
            "W": self.backward_weight,
            "F&B": self.overlapped,
            "latency": self.latency or None,
        }
        prices = [
            f"{name} by stage" if isinstance(value, tuple) else f"{name} {value:g} s"
            for name, value in named.items()
            if value is not None
        ]
        return ", ".join([*prices, *slow_ranks(self.factors)])

    def _at(self, name: str, stage: int) -> float:
        value = getattr(self, name)
        return value[stage] if isinstance(value, tuple) else value


def _time(name: str, value: Any) -> float:
    number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if number and 0 <= value < math.inf:
        return float(value)
    raise ValueError(f"{name}={value!r} is not a cost: it must be a number of seconds, 0 or more.")


@of_numbers
def simulate(
    schedule: Schedule | str,
    costs: Costs | None = None,
    *,
    ranks: int | None = None,
    microbatches: int | None = None,
    chunks: int | None = None,
) -> Trace:
    """The Trace of `schedule` where each action takes what `costs` say (by default 1 s each). A
    schedule's name needs `ranks` and `microbatches`, and may have `chunks`, as `schedules.make`.

    A span for each F, B, I and W, whose `flow` is the message that it waited for; the halves of an
    overlap lie on the lanes compute and compute2. Messages are those between ranks. `memory` counts
    the microbatches (of a stage) whose activations a rank holds, as "bytes" of "activations":
    from the start of a forward to the end of its B or W, or of itself without a backward.

    A partial schedule is allowed. Raises ScheduleError for one that deadlocks, naming the rank, the
    action before which it stops and what that needs; ValueError for costs of another length, and
    for sizes that are missing or out of place.
    """
    schedule = _made(schedule, ranks, microbatches, chunks)
    costs = Costs() if costs is None else costs
    if not isinstance(costs, Costs):
        raise ValueError(f"costs={costs!r} has to be a Costs, as in Costs(forward=2.0).")
    rows = _columns(schedule, costs)
    source = _sources(rows)
    start = _starts(rows, source, costs.latency)
    spans, messages = _spans_and_messages(rows, source, start, costs.latency)
    meta = {
        "clock": "simulated",
        "ranks": schedule.ranks,
        "machine": str(costs),
        "schedule": schedule.name,
        "microbatches": int(rows.microbatch.max()) + 1,
        "chunks": schedule.chunks,
    }
    return Trace(spans, messages, _memory(rows, start), meta=meta)


def _made(
    schedule: Schedule | str, ranks: int | None, microbatches: int | None, chunks: int | None
) -> Schedule:
    """The schedule, made if it is a name."""
    given = {"ranks": ranks, "microbatches": microbatches, "chunks": chunks}
    named = ", ".join(f"{name}={value!r}" for name, value in given.items() if value is not None)
    if isinstance(schedule, str):
        if ranks is None or microbatches is None:
            raise ValueError(
                f"{schedule!r} has no size: give ranks and microbatches, as in "
                f"simulate({schedule!r}, ranks=4, microbatches=8)."
            )
        return make(schedule, ranks, microbatches, chunks)
    if not isinstance(schedule, Schedule):
        raise ValueError(f"schedule={schedule!r} has to be a Schedule, or a schedule's name.")
    if named:
        raise ValueError(f"{named} is out of place: {schedule!r} has its own sizes.")
    return schedule


def start_times(schedule: Schedule, costs: Costs) -> list[list[float]]:
    """When each action of each row starts, in s: what `simulate` finds, without a Trace of it.
    Raises what `simulate` does."""
    rows = _columns(schedule, costs)
    ends = np.cumsum([len(row) for row in schedule.actions])
    start = _starts(rows, _sources(rows), costs.latency)
    own = start[np.append(True, rows.number[1:] != rows.number[:-1])]
    return [each.tolist() for each in np.split(own, ends[:-1])]


@dataclass(frozen=True)
class _Rows:
    """The actions as columns, rank by rank; an overlap is two rows of one `number`."""

    schedule: Schedule
    number: np.ndarray
    rank: np.ndarray
    stage: np.ndarray
    kind: np.ndarray  # its code: _F, _B, _I, _W
    microbatch: np.ndarray
    seconds: np.ndarray

    def __len__(self) -> int:
        return len(self.number)


def _columns(schedule: Schedule, costs: Costs) -> _Rows:
    costs.check_stages(len(schedule.stage_rank))
    check_length("Costs", costs.factors, schedule.ranks)
    actions = [*chain.from_iterable(schedule.actions)]
    if not actions:
        _explain(schedule)
    rank = np.repeat(np.arange(schedule.ranks), [len(row) for row in schedule.actions])
    number, halves = np.arange(len(actions)), actions
    overlaps = []
    if any(map(_PARTS, actions)):
        overlaps = [i for i, action in enumerate(actions) if action.parts]
        if not all(is_overlap(actions[i]) for i in overlaps):
            _explain(schedule)
        widths = np.ones(len(actions), dtype=int)
        widths[overlaps] = 2
        rank, number = np.repeat(rank, widths), np.repeat(number, widths)
        halves = [half for action in actions for half in action.halves]

    stages, n = len(schedule.stage_rank), len(halves)
    stage = np.fromiter(map(_STAGE, halves), int, n)
    microbatch = np.fromiter(map(_MICROBATCH, halves), int, n)
    legal = (0 <= stage) & (stage < stages)
    legal &= (0 <= microbatch) & (microbatch < max(n, _NAMED))
    if not legal.all() or not set(map(_KIND, halves)) <= _CODE.keys():
        _explain(schedule)
    kind = np.fromiter(map(_CODE.__getitem__, map(_KIND, halves)), int, n)
    pass_seconds = [[costs.seconds(Action(s, one, 0)) for s in range(stages)] for one in KINDS]
    seconds = np.array(pass_seconds)[kind, stage]
    first = np.searchsorted(number, overlaps)
    seconds[first] = seconds[first + 1] = [costs.seconds(actions[i]) for i in overlaps]
    if costs.factors is not None:
        seconds *= _slowdowns(schedule, costs.factors)[number]
    return _Rows(schedule, number, rank, stage, kind, microbatch, seconds)


def _slowdowns(schedule: Schedule, factors: Factors) -> np.ndarray:
    """How many times as long each action takes; actions are numbered rank by rank, as a paced run
    numbers its operations."""
    rows = enumerate(schedule.actions)
    return np.array([slowdown(factors, rank, i) for rank, row in rows for i in range(len(row))])


def _explain(schedule: Schedule) -> NoReturn:
    """Raises ScheduleError with the rule that `schedule`, which cannot be simulated, breaks."""
    check_actions(schedule)
    check_progress(schedule)
    schedule.check()
    raise AssertionError(f"{schedule!r} breaks no rule and cannot go on")


def _sources(rows: _Rows) -> np.ndarray:
    """The row whose result each row receives from another stage: n, the number of rows, where it
    receives none, n + 1 where no action in the schedule produces it."""
    n, stage_rank = len(rows), np.array(rows.schedule.stage_rank)
    result = _RESULT[rows.kind]
    made = np.full((3, len(stage_rank) + 2, rows.microbatch.max() + 1), n + 1)
    made[:, [0, -1]] = n  # before the first stage the inputs, behind the last one the loss
    made[result, rows.stage + 1, rows.microbatch] = np.arange(n)

    own = made[np.maximum(result - 1, 0), rows.stage + 1, rows.microbatch]
    late = np.append(rows.number, [n, n])[own] >= rows.number
    unsplit = np.append(rows.kind, [-1, -1])[own] != _I
    illegal = np.where(rows.kind == _F, False, late) | np.where(rows.kind == _W, unsplit, False)
    illegal |= made[result, rows.stage + 1, rows.microbatch] != np.arange(n)  # a duplicate
    illegal |= stage_rank[rows.stage] != rows.rank
    if illegal.any():
        _explain(rows.schedule)
    received = made[result, rows.stage + 1 + _STEP[rows.kind], rows.microbatch]
    return np.where(rows.kind == _W, n, received)


def _starts(rows: _Rows, source: np.ndarray, latency: float) -> np.ndarray:
    """When each row starts."""
    n, ranks = len(rows), rows.schedule.ranks
    ends = np.searchsorted(rows.rank, np.arange(ranks), side="right").tolist()
    start, reached = run(
        Work(
            ends,
            needs=source.tolist(),
            makes=[*range(n)],
            joined=[*(rows.number[1:] == rows.number[:-1]).tolist(), False],
            seconds=rows.seconds.tolist(),
            delay=np.where(_is_sent(rows), latency, 0.0).tolist(),
            things=n,
        )
    )
    if reached != ends:
        _explain(rows.schedule)
    return np.array(start)


def _is_sent(rows: _Rows) -> np.ndarray:
    """Whether another rank receives a row's result: the stage after an F, before a B or an I."""
    stage_rank = np.array(rows.schedule.stage_rank)
    to = rows.stage - _STEP[rows.kind]
    inside = (to >= 0) & (to < len(stage_rank))
    return inside & (stage_rank[np.where(inside, to, 0)] != rows.rank)


def _spans_and_messages(
    rows: _Rows, source: np.ndarray, start: np.ndarray, latency: float
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """The columns of both; a message for each row that receives from another rank."""
    n, end = len(rows), start + rows.seconds
    rank = np.append(rows.rank, [-1, -1])
    received = np.flatnonzero((source < n) & (rank[source] != rows.rank))
    sender = source[received]
    flow = np.full(n, -1)
    flow[received] = np.arange(len(received))
    lane = np.full(n, "compute", dtype=object)
    lane[1:][rows.number[1:] == rows.number[:-1]] = "compute2"
    spans = {
        "rank": rows.rank,
        "lane": lane,
        "kind": np.array([*KIND_NAMES.values()], dtype=object)[rows.kind],
        "start": start,
        "end": end,
        "stage": rows.stage,
        "microbatch": rows.microbatch,
        "flow": flow,
    }
    messages = {
        "src": rows.rank[sender],
        "dst": rows.rank[received],
        "sent": end[sender],
        "arrived": end[sender] + latency,
        "received": start[received],
    }
    return spans, messages


def _memory(rows: _Rows, start: np.ndarray) -> dict[str, Any]:
    """The number of microbatches that each rank holds, at each time when it changes."""
    forward, trained = rows.kind == _F, (rows.kind != _F).any()
    release = (rows.kind == _B) | (rows.kind == _W) if trained else forward
    rank = np.concatenate([rows.rank[forward], rows.rank[release]])
    time = np.concatenate([start[forward], (start + rows.seconds)[release]])
    change = np.repeat([1, -1], [forward.sum(), release.sum()])
    order = np.lexsort((time, rank))
    rank, time, change = rank[order], time[order], change[order]
    held = np.cumsum(change)
    first = np.searchsorted(rank, rank)
    held -= (held - change)[first]
    last = np.append((rank[1:] != rank[:-1]) | (time[1:] > time[:-1]), True)
    return {
        "rank": rank[last],
        "time": time[last],
        "what": np.full(last.sum(), "activations", dtype=object),
        "nbytes": held[last],
    }
