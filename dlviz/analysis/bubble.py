"""The bubble of a pipeline, measured and in closed form.

A rank is *busy* while a forward or backward span is open on any of its lanes (two lanes at the same
time count once); an update is work, but outside the bubble, whose window is a step: the first
compute of any rank to the last.

    busy     |F0|F1|      |B0|B1|     bubble ratio    = mean idle / mean busy   (p-1)/m for GPipe
    window   |<--------------->|      bubble fraction = idle / total      (p-1)/(m+p-1) for GPipe
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from dlviz.analysis.columns import COMPUTE, by_known_rank, of_kinds, seconds_open, times_of, union
from dlviz.counts import check_amounts, check_counts, closed_form
from dlviz.trace import Trace

CHUNKED = ("interleaved", "looped_bfs", "interleaved_zb")  # schedules of any number of chunks
FORMULAS = {  # the bubble ratio of each schedule that has a closed form, in words
    "naive": "p−1",
    "gpipe": "(p−1)/m",
    "1f1b": "(p−1)/m",
    "pipedream": "(p−1)/m",
    "interleaved": "(p−1)/(vm)",
    "looped_bfs": "(p−1)/(vm)",
    "zb_h1": "(p−1)max(F, I, F+I−W) / m(F+I+W)",
    "interleaved_zb": "(p−1)max(F, I, F+I−W) / vm(F+I+W)",
    "zb_h2": "(p−1)/3m",
    "zbv": "(p−1)/6m",
    "inference": "(p−1)/m",
}
_WITHOUT = ("dualpipev",)  # the schedules without one
_ALIKE = 1e-6  # of a cost: costs closer than this are equal


def busy(trace: Trace, clock: str = "device") -> np.ndarray:
    """Seconds per rank in which a forward or backward span is open on any lane of it."""
    return by_known_rank(trace, seconds_open(trace, COMPUTE, clock))


def bubble_ratio(trace: Trace, clock: str = "device", whole_actions: bool = False) -> float:
    """Mean idle / mean busy over the ranks, in the window of a step; the median of several steps.

    GPipe and 1F1B with p ranks and m microbatches of equal length: (p-1)/m. NaN where no rank
    computes. Source: Narayanan et al., SC 2021, section 2.2 (bubble time / ideal time).

    In a stage that communicates, a rank does not compute during a layer's all-reduce, so the
    all-reduce counts as idle. With `whole_actions` a rank is busy from the beginning of an action
    to its end: (p-1)/m then holds, as the paper's time of a forward includes these all-reduces.
    """
    return _median(_ratios(trace, clock, whole_actions))


def bubble_fraction(trace: Trace, clock: str = "device") -> float:
    """Idle / total rank-seconds in the window of a step; the median of several steps.

    GPipe and 1F1B with p ranks and m microbatches of equal length: (p-1)/(m+p-1). NaN where no
    rank computes. Source: Huang et al., GPipe, NeurIPS 2019, section 2.3.
    """
    return _median(map(fraction_of, _ratios(trace, clock)))


def fraction_of(ratio: Any) -> Any:
    """The bubble fraction idle / total where the bubble ratio idle / busy is `ratio`."""
    return ratio / (1 + ratio)


def idle_inside(trace: Trace, clock: str = "device") -> np.ndarray:
    """Seconds per rank, between its first and its last forward or backward of a step, in which it
    runs none; the median of several steps.

    The bubble without fill and drain: the part that remains if ranks start the next step without
    waiting for each other. Source: Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024,
    section 2.2.
    """
    spans, start, end = times_of(trace.spans, clock, COMPUTE)
    ranks = trace.meta["ranks"]
    found = []
    for step in np.unique(spans.step):
        rows = spans.step == step
        first, last = np.full(ranks, np.inf), np.full(ranks, -np.inf)
        np.minimum.at(first, spans.rank[rows], start[rows])
        np.maximum.at(last, spans.rank[rows], end[rows])
        worked = union(spans.rank[rows], start[rows], end[rows], ranks)
        found.append(np.maximum(last - first - worked, 0.0))
    return by_known_rank(trace, np.median(found, axis=0) if found else np.zeros(ranks))


@closed_form
def bubble_formula(
    schedule: str,
    ranks: int,
    microbatches: int,
    forward: float = 1.0,
    backward_input: float = 1.0,
    backward_weight: float = 1.0,
) -> float:
    """Seconds that each rank idles in a step of `schedule`, by its closed form; NaN without one.

    Numbers may be arrays, which are broadcast. Raises ValueError for a schedule that
    `dlviz.schedules` does not have, counts below 1 and negative costs.

    The costs are those of a microbatch's pass through a stage, equal for all stages; a backward
    takes input + weight, and a message no time. Divided by the work of a rank, m passes through
    each of its v stages, this is the bubble ratio: chunks shorten a pass, and so the bubble.

        naive                                m(p-1)(F+B)
        gpipe, 1f1b, pipedream               (p-1)(F+B)
        interleaved, looped_bfs  (m >= p)    (p-1)(F+B)
        zb_h1, interleaved_zb  (m >= p)      (p-1) max(F, I, F+I-W)
        zb_h2  (m >= 2p-1), zbv  (m >= 2p)   (p-1) F where F = I = W
        inference                            (p-1) F

    All the time between the first action of any rank and the last counts. The zero-bubble paper
    leaves out idle time before a rank's own first action and after its own last, so that zb_h2 is
    (p-1)(F+I-2W) there, 0 where F = I = W (the paper writes B for I): `idle_inside`.

    Source: the papers named in dlviz/schedules, with each schedule.
    """
    check_counts(ranks=ranks, microbatches=microbatches)
    check_amounts(forward=forward, backward_input=backward_input, backward_weight=backward_weight)
    if schedule not in (*FORMULAS, *_WITHOUT):
        known = ", ".join([*FORMULAS, *_WITHOUT])
        raise ValueError(f"schedule={schedule!r} is not known: use one of {known}.")
    p, m = ranks, microbatches
    F, I, W = forward, backward_input, backward_weight  # noqa: E741
    whole_pass, alike = F + I + W, max(F, I, W) - min(F, I, W) <= _ALIKE * F
    zero_bubble = max(F, I, F + I - W)
    forms = {
        "naive": (1, m * whole_pass),
        "gpipe": (1, whole_pass),
        "1f1b": (1, whole_pass),
        "pipedream": (1, whole_pass),
        "interleaved": (p, whole_pass),
        "looped_bfs": (p, whole_pass),
        "zb_h1": (p, zero_bubble),
        "interleaved_zb": (p, zero_bubble),
        "zb_h2": (2 * p - 1, F if alike else np.nan),
        "zbv": (2 * p, F if alike else np.nan),
        "inference": (1, F),
    }
    fewest, fill = forms.get(schedule, (1, np.nan))
    return float((p - 1) * fill) if m >= fewest else float("nan")


@closed_form
def bubble_ratio_formula(
    schedule: str,
    ranks: int,
    microbatches: int,
    chunks: int = 1,
    forward: float = 1.0,
    backward_input: float = 1.0,
    backward_weight: float = 1.0,
) -> float:
    """The bubble ratio of `schedule` in closed form (in words: FORMULAS); NaN without one.

    The seconds of `bubble_formula` over the work of a rank, m passes through each of its v
    `chunks`. The costs are those of one pass; inference has no backward, whatever a backward costs.
    Arrays and errors are those of `bubble_formula`.
    """
    check_counts(chunks=chunks)
    costs = forward, backward_input, backward_weight
    seconds = bubble_formula(schedule, ranks, microbatches, *costs)
    work = microbatches * chunks * (forward if schedule == "inference" else sum(costs))
    return seconds / work if work else float("nan")


def pass_seconds(trace: Trace) -> tuple[float, float, float]:
    """The mean device seconds of a stage pass: forward, input gradient and weight gradient (a whole
    backward counts as the input gradient)."""
    spans, start, end = times_of(trace.spans, "device")

    def mean(kind: str) -> float:
        rows = spans.kind == kind
        return float((end - start)[rows].mean()) if rows.any() else 0.0

    split = mean("backward_input"), mean("backward_weight")
    return mean("forward"), *(split if any(split) else (mean("backward"), 0.0))


def _ratios(trace: Trace, clock: str, whole_actions: bool = False) -> Iterator[float]:
    """For each step idle / busy of the mean rank, from the step's first compute to its last."""
    spans = trace.spans
    action = (spans.kind == "phase") & (spans.microbatch >= 0) & whole_actions
    spans, start, end = times_of(spans[of_kinds(spans, COMPUTE) | action], clock)
    ranks = trace.ranks
    order = np.argsort(spans.step, kind="stable")
    edges = np.flatnonzero(np.diff(spans.step[order])) + 1
    for rows in np.split(order, edges) if len(order) else ():
        window = end[rows].max() - start[rows].min()
        seconds = union(spans.rank[rows], start[rows], end[rows], trace.meta["ranks"])
        if seconds.any():
            yield max(float(window / seconds[ranks].mean() - 1), 0.0)


def _median(values: Iterable[float]) -> float:
    found = [*values]
    return float(np.median(found)) if found else float("nan")
