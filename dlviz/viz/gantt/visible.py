"""What a timeline shows of a Trace: a step or all of it, and only the longest of many spans."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dlviz.analysis.clocks import message_times, span_times
from dlviz.analysis.hosts import impossible
from dlviz.analysis.steps import spans_in
from dlviz.counts import check_counts
from dlviz.viz.gantt.layout import Plan, laid_out
from dlviz.viz.words.hosts import impossible_lines, message_lines

if TYPE_CHECKING:
    from dlviz.trace import Trace


@dataclass(frozen=True)
class Shown:
    """What a timeline shows: its plan, the spans that are drawn and those that are left out as too
    many, the messages (all by their rows in the Trace), and remarks on these and on the clocks of
    hosts."""

    plan: Plan
    drawn: np.ndarray
    left_out: np.ndarray
    arrows: np.ndarray
    lines: list[str]
    hosts: list[str]

    @property
    def spans(self) -> np.ndarray:
        """The spans drawn and left out."""
        return np.concatenate([self.drawn, self.left_out])


def shown(trace: Trace, clock: str, step: int | None, most: int, messages: bool = True) -> Shown:
    """What a timeline shows of `step` (None: of all steps): at most `most` spans, and the messages
    that spans of the step carry. It leaves out what has no times by `clock`, and messages that
    arrived before they were sent by more than the bound of the hosts' clocks."""
    check_counts(max_spans=most)
    start, end = span_times(trace, clock)
    drawn = spans_in(trace, step)
    arrows = np.arange(len(trace.messages) if messages else 0)
    if step is not None:
        arrows = np.intersect1d(arrows, trace.spans.flow[drawn])
    drawn = drawn[np.isfinite(end - start)[drawn]]
    arrows = arrows[np.isfinite(message_times(trace, clock)[0][arrows])]
    hosts = [*impossible_lines(trace, clock, arrows), *message_lines(trace, clock, arrows)]
    arrows = np.setdiff1d(arrows, impossible(trace, clock))
    plan = laid_out(trace, clock, drawn, arrows)
    if len(drawn) <= most:
        return Shown(plan, drawn, drawn[:0], arrows, [], hosts)
    lasted = end - start
    for level in plan.shared:
        lasted[level] = np.inf  # drawn for all ranks or for none
    order = drawn[np.argsort(-lasted[drawn], kind="stable")]
    line = f"The longest {most:,} of {len(drawn):,} spans are drawn."
    return Shown(plan, np.sort(order[:most]), np.sort(order[most:]), arrows, [line], hosts)
