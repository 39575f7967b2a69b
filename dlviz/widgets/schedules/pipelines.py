"""What the explorer of schedules makes, simulates and runs: a pipeline schedule with its costs.

A rank that holds v stages spends 1/v of the costs on each: the same model, cut finer, so that
schedules with any number of stages compare.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from dlviz import metrics
from dlviz.analysis.bubble import FORMULAS, fraction_of
from dlviz.board.drawing import Drawing, drawn, laid_out
from dlviz.board.pipeline import Pipeline
from dlviz.schedules import NAMES, RECEIVES_FROM, TITLES, Schedule, from_csv, make
from dlviz.schedules.action import CODES
from dlviz.schedules.orders import loop
from dlviz.sim import Costs, simulate
from dlviz.trace import Table, Trace
from dlviz.viz import palette
from dlviz.widgets.view import column, styled

DRAWN = "drawn"  # the name of the schedule on the board
NAMED = {**TITLES, DRAWN: "your own drawing"}
SIZES = {"ranks": 16, "microbatches": 128, "chunks": 8}  # from 1 to
COSTS = tuple(CODES)
OVER = (1, 2, 4, 8, 16, 32, 64, 128)  # microbatches of the chart
INSIDE = "Qi et al. count as bubble only idle time between a rank's first and last action."


def check(values: dict[str, Any]) -> None:
    """Raises ValueError, one sentence, for an invalid value."""
    for name in ("schedule", "beside"):
        known = [*NAMES, DRAWN, *([""] if name == "beside" else [])]
        if values[name] not in known:
            raise ValueError(f"{name}={values[name]!r} is unknown: use one of {', '.join(known)}.")
    for name, most in SIZES.items():
        value = values[name]
        if name == "chunks" and value is None:
            continue
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
            raise ValueError(f"{name}={value!r} has to be a whole number, 1 to {most}.")
    Costs(**{name: values[name] for name in (*COSTS, "latency")})
    stage, slow = values["slow_stage"], values["slow"]
    if stage is not None and (not isinstance(stage, int) or isinstance(stage, bool) or stage < 0):
        raise ValueError(
            f"slow_stage={stage!r} is not a stage: use a whole number from 0, or none."
        )
    number = isinstance(slow, int | float) and not isinstance(slow, bool)
    if not number or not 0 < slow < math.inf:
        raise ValueError(f"slow={slow!r} has to be a number above 0: how many times as long.")
    if not isinstance(values["csv"], str):
        raise ValueError(f"csv={values['csv']!r} has to be text.")


def schedule_of(name: str, values: dict[str, Any]) -> Schedule:
    """The schedule called `name` of the controls' size. ValueError where there is none."""
    chunks = values["chunks"] if name in metrics.CHUNKED else None
    return make(name, values["ranks"], values["microbatches"], chunks)


def costs_of(stage_rank: tuple[int, ...], values: dict[str, Any]) -> Costs:
    """The costs of a pass of each stage on the ranks of `stage_rank`. Raises ValueError for
    a slow stage that does not exist."""
    chunks = max(map(stage_rank.count, stage_rank))
    slowed, last = values["slow_stage"], len(stage_rank) - 1
    factors: Any = 1 / chunks
    if slowed is not None:
        if slowed > last:
            raise ValueError(f"slow_stage={slowed} is not a stage: the stages are 0 to {last}.")
        factors = np.full(last + 1, factors)
        factors[slowed] *= values["slow"]
    times: dict[str, Any] = {
        name: None if values[name] is None else values[name] * factors for name in COSTS
    }
    return Costs(**times, latency=values["latency"])


def predicted(name: str, values: dict[str, Any]) -> tuple[Schedule, Trace]:
    """The schedule called `name` and its simulated Trace. ValueError where it cannot run."""
    schedule = schedule_of(name, values)
    return schedule, played(schedule, costs_of(schedule.stage_rank, values))


def played(schedule: Schedule, costs: Costs) -> Trace:
    """The simulated Trace. ValueError where the schedule cannot run."""
    trace = simulate(schedule, costs)
    if not metrics.makespan(trace) > 0:
        raise ValueError("The costs are 0: give at least one kind of action a cost above 0.")
    return trace


def board_for(
    values: dict[str, Any], before: Drawing | None, stage_rank: tuple[int, ...]
) -> Drawing:
    """The drawing for the controls: `before`, or an empty grid where that is None or of another
    size. A new grid has the ranks of `stage_rank` where these fit the size."""
    ranks, microbatches = values["ranks"], values["microbatches"]
    chunks = values["chunks"] or max(map(stage_rank.count, stage_rank))
    if max(stage_rank) + 1 != ranks or len(stage_rank) != ranks * chunks:
        stage_rank = loop(ranks, chunks)
    costs = costs_of(stage_rank, values)
    if before is None:
        return Drawing(Pipeline(stage_rank, microbatches, costs, backward="either"))
    pipeline = replace(
        before.pipeline, stage_rank=stage_rank, microbatches=microbatches, costs=costs
    )
    same = (before.pipeline.stage_rank, before.pipeline.microbatches) == (stage_rank, microbatches)
    try:
        return laid_out(before.schedule(), pipeline) if same else Drawing(pipeline)
    except ValueError:  # the drawing cannot run, and its actions last another time now
        return Drawing(pipeline)


def board_of(text: str, values: dict[str, Any]) -> Drawing:
    """The drawing of a CSV, each action as early as possible. ValueError where it cannot run, or is
    too large."""
    made = from_csv(text, DRAWN)
    for name, most in SIZES.items():
        if (size := getattr(made, name)) > most:
            raise ValueError(f"The CSV has {size} {name}: the explorer takes {most} at most.")
    return drawn(made, costs_of(made.stage_rank, values))


def formula(name: str, made: Schedule, values: dict[str, Any], microbatches: int) -> float | None:
    """The bubble ratio by the closed form at a number of microbatches; None where there is none."""
    if name not in FORMULAS or values["latency"] or values["slow_stage"] is not None:
        return None
    I, W = (values[cost] for cost in ("backward_input", "backward_weight"))  # noqa: E741
    if values["backward"] is not None and any(
        half.kind == "B" for row in made.actions for action in row for half in action.halves
    ):
        I, W = values["backward"], 0.0  # noqa: E741
    costs = (cost / made.chunks for cost in (values["forward"], I, W))
    ratio = metrics.bubble_ratio_formula(name, made.ranks, microbatches, made.chunks, *costs)
    return ratio if math.isfinite(ratio) else None


def picture_of(schedule: Schedule, trace: Trace, values: dict[str, Any]) -> dict[str, Any]:
    """A simulated schedule as columns for the front end, in seconds; spans in the Trace's order,
    rank by rank."""
    microbatches = trace.meta["microbatches"]
    ratio = formula(schedule.name, schedule, values, microbatches)
    spans, memory = trace.spans, trace.memory
    total = metrics.makespan(trace)
    digits = 8 - math.floor(math.log10(total))
    stages = np.arange(len(schedule.stage_rank))
    homes = np.array(schedule.stage_rank)
    kinds = "".join(map(CODES.__getitem__, spans.kind.tolist()))
    return {
        "name": schedule.name,
        "title": NAMED[schedule.name],
        "ranks": schedule.ranks,
        "microbatches": microbatches,
        "chunks": schedule.chunks,
        "chunk": [int((homes[:stage] == homes[stage]).sum()) for stage in stages],
        "counts": np.bincount(spans.rank, minlength=schedule.ranks).tolist(),
        "kind": kinds,
        "stage": column(spans.stage),
        "microbatch": column(spans.microbatch),
        "shades": shades(kinds, schedule.chunks),
        "start": column(np.round(spans.start, digits)),
        "length": column(np.round(spans.end - spans.start, digits)),
        "half": column(halves_of(spans)),
        "source": column(sources_of(spans, kinds, len(stages))),
        "path": metrics.critical_path(trace).span.tolist(),
        "held": {
            "counts": np.bincount(memory.rank, minlength=schedule.ranks).tolist(),
            "time": column(np.round(memory.time, digits)),
            "many": column(memory.nbytes),
        },
        "latency": values["latency"],
        "makespan": total,
        "ratio": metrics.bubble_ratio(trace),
        "fraction": metrics.bubble_fraction(trace),
        "inside": round(float(metrics.idle_inside(trace).max()), digits),
        "peak": metrics.peak_in_flight(trace).tolist(),
        "formula": None if ratio is None else {"text": FORMULAS[schedule.name], "ratio": ratio},
        "remark": INSIDE if schedule.name in ("zb_h2", "zbv") and ratio is not None else "",
    }


def shades(kinds: str, chunks: int) -> dict[str, list[dict[str, str]]]:
    """The style of each kind of action in `kinds`, for each of a rank's chunks."""
    return {
        kind: [styled(palette.shade(palette.style(name), chunk, chunks)) for chunk in range(chunks)]
        for name, kind in CODES.items()
        if kind in kinds
    }


def halves_of(spans: Table) -> np.ndarray:
    """For each span 0, or of an overlap 1 for its first half and 2 for its second."""
    second = spans.lane == "compute2"
    return np.where(second, 2, np.where(np.append(second[1:], False), 1, 0))


def sources_of(spans: Table, kinds: str, stages: int) -> np.ndarray:
    """For each span, of these `kinds`, the row of the span whose result it receives from another
    stage, or -1."""
    kind = np.array([*kinds])
    forward, weights = kind == "F", kind == "W"
    made = np.full((2, stages + 2, int(spans.microbatch.max()) + 1), -1)
    for result, own in enumerate((forward, ~forward & ~weights)):
        made[result, spans.stage[own] + 1, spans.microbatch[own]] = np.flatnonzero(own)
    neighbour = spans.stage + 1 + np.where(forward, RECEIVES_FROM["F"], RECEIVES_FROM["B"])
    return np.where(weights, -1, made[np.where(forward, 0, 1), neighbour, spans.microbatch])


def chart(names: list[str], values: dict[str, Any]) -> dict[str, Any]:
    """The bubble fraction of each schedule over the number of microbatches, simulated and by its
    closed form; None where it is not defined."""
    over = sorted({*OVER, values["microbatches"]})
    lines = {name: [_at(name, values, m) for m in over] for name in names}
    return {
        "over": over,
        "lines": {name: [simulated for simulated, _ in line] for name, line in lines.items()},
        "formulas": {name: [closed for _, closed in line] for name, line in lines.items()},
    }


def _at(name: str, values: dict[str, Any], microbatches: int) -> tuple[float | None, float | None]:
    try:
        made, trace = predicted(name, {**values, "microbatches": microbatches})
    except ValueError:
        return None, None
    ratio = formula(name, made, values, microbatches)
    return metrics.bubble_fraction(trace), None if ratio is None else fraction_of(ratio)
