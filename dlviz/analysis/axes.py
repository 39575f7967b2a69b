"""What a run on a mesh communicates along each axis: bytes, and seconds, by rank.

    comm.mesh(dp=2, pp=2, tp=2)     rank 0's groups: dp (0, 4)   pp (0, 2)   tp (0, 1)

A mesh names its groups like this, axis and members, and every message and collective of a Trace
names its group: nothing here is computed from sizes of layers. A message is *between nodes* where
its two ranks are on two nodes of a Topology. How many of an axis's messages are depends on the
placement: the order of the axes; ranks of the last axis are neighbours.

In PyTorch: the dims of torch.distributed.device_mesh.DeviceMesh.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dlviz.analysis.columns import COMMUNICATION, COMPUTE, UPDATE, of_kinds, times_of, union
from dlviz.analysis.steps import messages_in, spans_in
from dlviz.trace import Trace

if TYPE_CHECKING:
    from dlviz.machine import Topology

_GROUP = re.compile(r"(\w+) \((\d+(?:, \d+)*),?\)")


@dataclass(frozen=True)
class AxisTraffic:
    """The communication along one axis. `groups`: the global ranks of each of its groups; each
    array has an entry for each rank of the run."""

    groups: tuple[tuple[int, ...], ...]
    sent: np.ndarray  # bytes
    forward: np.ndarray  # of these, in the forward: activations
    backward: np.ndarray  # of these, in the backward: gradients of activations
    between: np.ndarray  # of these, to a rank of another node
    seconds: np.ndarray  # in which a message or a collective of this axis is in progress
    exposed: np.ndarray  # of these, seconds in which the rank does not compute

    def exposed_in_a_step(self, steps: int) -> float:
        """Exposed seconds of one of so many steps, the mean over the ranks."""
        return float(self.exposed.mean()) / steps


def axes(
    trace: Trace,
    topology: Topology | None = None,
    step: int | None = None,
    clock: str = "device",
) -> dict[str, AxisTraffic]:
    """The communication of a run, or of one step of it, by axis, in the order of the placement: the
    axis whose ranks are neighbours comes last.

    Bytes are those of messages: a collective of the backend has only seconds. The part of `sent`
    that is neither forward nor backward: gradients of parameters, a loss. Where two axes
    communicate at the same time, on two lanes of a rank, the seconds count for both. Groups of no
    mesh are left out. The nodes are those of `topology`, by default of the machine of a paced run;
    without one all ranks are on one node. Raises ValueError for a step that the Trace lacks.
    """
    ranks, messages = trace.meta["ranks"], trace.messages
    rows = messages_in(trace, step)
    src, dst, nbytes = messages.src[rows], messages.dst[rows], np.maximum(messages.nbytes[rows], 0)
    of = axis_of(messages.group[rows])
    direction = directions(trace)[rows]
    node = _nodes(trace, topology)
    apart = node[src] != node[dst]

    spans, start, end = times_of(trace.spans[spans_in(trace, step)], clock)
    working = of_kinds(spans, COMPUTE + UPDATE)
    named = spans.group.copy()
    carried = (named == "") & (spans.flow >= 0)  # by a message
    named[carried] = messages.group[spans.flow[carried]]
    named[~of_kinds(spans, COMMUNICATION)] = ""
    open_on = axis_of(named)

    def sum_of(chosen: np.ndarray) -> np.ndarray:
        sent = np.zeros(ranks, np.int64)
        np.add.at(sent, src[chosen], nbytes[chosen])
        return sent

    def seconds(chosen: np.ndarray) -> np.ndarray:
        return union(spans.rank[chosen], start[chosen], end[chosen], ranks)

    found = {}
    for name, groups in _groups([*messages.group[rows], *named]).items():
        own, in_progress = of == name, open_on == name
        found[name] = AxisTraffic(
            groups,
            sent=sum_of(own),
            forward=sum_of(own & (direction == "forward")),
            backward=sum_of(own & (direction == "backward")),
            between=sum_of(own & apart),
            seconds=seconds(in_progress),
            exposed=np.maximum(seconds(in_progress | working) - seconds(working), 0.0),
        )
    return found


def axis_of(groups: np.ndarray) -> np.ndarray:
    """The axis of each group, by the groups' names; "" for one of no mesh."""
    known = {group: _GROUP.match(group) for group in {*groups.tolist()}}
    names = {group: found[1] if found else "" for group, found in known.items()}
    return np.array([names[group] for group in groups.tolist()], object)


def directions(trace: Trace) -> np.ndarray:
    """For each message "forward" where it carries activations, "backward" where it carries their
    gradients, else "".

    A layer's collective records it (`dlviz.parallel.tensor`); between the stages of a pipeline it
    follows from the action that the message is for.
    """
    spans = trace.spans
    found = np.full(len(trace.messages), "", object)
    brought = np.flatnonzero((spans.flow >= 0) & (spans.microbatch >= 0) & of_kinds(spans, COMPUTE))
    kinds = spans.kind[brought]
    found[spans.flow[brought]] = np.where(kinds == "forward", "forward", "backward")
    for row in np.flatnonzero((spans.flow >= 0) & (spans.kind == "send")).tolist():
        if direction := (spans.fields[row] or {}).get("direction"):
            found[spans.flow[row]] = direction
    return found


def _nodes(trace: Trace, topology: Topology | None) -> np.ndarray:
    """The number of each rank's node."""
    ranks = trace.meta["ranks"]
    if topology is not None:
        return np.array([topology.node(rank) for rank in range(ranks)])
    return np.arange(ranks) // trace.meta.get("topology", {"sizes": [ranks]})["sizes"][0]


def _groups(names: list[str]) -> dict[str, tuple[tuple[int, ...], ...]]:
    """The groups of each axis, the axis with the ranks furthest apart first."""
    found: dict[str, set[tuple[int, ...]]] = {}
    for group in map(_GROUP.match, dict.fromkeys(names)):
        if group:
            members = tuple(map(int, group[2].split(", ")))
            found.setdefault(group[1], set()).add(members)

    def apart(axis: str) -> int:
        return max(members[min(1, len(members) - 1)] - members[0] for members in found[axis])

    return {axis: tuple(sorted(found[axis])) for axis in sorted(found, key=apart, reverse=True)}
