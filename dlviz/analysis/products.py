"""Where the products of a tensor-parallel run lie in the whole matrices, and what was communicated.

`dlviz.parallel.tensor` records each product y = x Wᵀ as a span whose fields say which cells of the
whole x, W and y the rank held, and each collective as a span whose fields name its layer and its
direction, forward or backward. `dlviz.parallel.summa` records each product of panels, and in the
spans of its messages which panel they carry.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from dlviz.trace import Trace


@dataclass(frozen=True)
class Cells:
    """A block of a whole tensor of `shape`: from `start[d]` to `stop[d]` in dim d. With
    `summands` above 1 it is partial sum number `summand`, from 0."""

    shape: tuple[int, ...]
    start: tuple[int, ...]
    stop: tuple[int, ...]
    summand: int = 0
    summands: int = 1


@dataclass(frozen=True)
class PlacedProduct:
    """One product of one rank: `x` (..., k), `w` (n, k), `y` (..., n); `time`: when it began;
    `step`: the training step, -1 outside any."""

    rank: int
    step: int
    layer: str
    time: float
    x: Cells
    w: Cells
    y: Cells


@dataclass(frozen=True)
class LayerCollective:
    """One collective of a layer on one rank. `messages`: the rows of those that it sent; `step`:
    the training step, -1 outside any."""

    rank: int
    step: int
    layer: str
    direction: str  # "forward" or "backward"
    collective: str  # "all_reduce", "all_gather" or "reduce_scatter"
    start: float
    end: float
    messages: tuple[int, ...]


Ends = tuple[tuple[int, int], tuple[int, int]]  # rows from, to; columns from, to


@dataclass(frozen=True)
class PanelProduct:
    """One product of SUMMA's panels on one rank: the panels `x` (m/pm, width) and `w` (width, n/pn)
    of the whole matrices, the rank's block `y` to which it adds, the blocks of X and W that the
    rank owns, and its messages by panel: rows of `trace.messages` in which it sent "X" or "W"."""

    rank: int
    x: Ends
    w: Ends
    y: Ends
    own_x: Ends
    own_w: Ends
    messages: dict[str, tuple[int, ...]]


def panel_products(trace: Trace) -> list[PanelProduct]:
    """SUMMA's products of panels, forward, in the order of their start."""
    spans, found = trace.spans, []
    sent = defaultdict(list)  # rows of messages, by rank and panel
    for row in np.flatnonzero((spans.kind == "send") & (spans.flow >= 0)):
        sent[spans.rank[row], (spans.fields[row] or {}).get("panel")].append(int(spans.flow[row]))
    for row in sorted(np.flatnonzero(spans.kind == "forward"), key=lambda row: spans.start[row]):
        fields, rank = spans.fields[row] or {}, int(spans.rank[row])
        if "own_X" in fields:
            x, w, y, own_x, own_w = (
                _ends(fields[name]) for name in ("X", "W", "Y", "own_X", "own_W")
            )
            messages = {name: tuple(sent[rank, fields[name]]) for name in "XW"}
            found.append(PanelProduct(rank, x, w, y, own_x, own_w, messages))
    return found


def _ends(text: str) -> Ends:
    """The block written as "X[0:256, 256:512]"."""
    top, bottom, left, right = map(int, re.findall(r"\d+", text))
    return (top, bottom), (left, right)


def products(trace: Trace) -> list[PlacedProduct]:
    """The products of all ranks, in the order of their start."""
    spans, found = trace.spans, []
    for row in np.flatnonzero(spans.kind == "phase"):
        fields = spans.fields[row] or {}
        if {"layer", "x", "w", "y"} <= fields.keys():
            place = int(spans.rank[row]), int(spans.step[row]), fields["layer"]
            held = cells(fields["x"]), cells(fields["w"]), cells(fields["y"])
            found.append(PlacedProduct(*place, float(spans.start[row]), *held))
    return sorted(found, key=lambda each: each.time)


def layer_collectives(trace: Trace) -> list[LayerCollective]:
    """The collectives of layers, in the order of their start."""
    spans, found = trace.spans, []
    sent = defaultdict(list)  # rows of messages, by rank and call
    for row in np.flatnonzero((spans.kind == "send") & (spans.flow >= 0)):
        sent[spans.rank[row], (spans.fields[row] or {}).get("call")].append(int(spans.flow[row]))
    for row in np.flatnonzero(spans.kind == "collective"):
        fields = spans.fields[row]
        if not fields or "call" not in fields:
            continue
        place = int(spans.rank[row]), int(spans.step[row])
        about = fields["layer"], fields["direction"], fields["collective"]
        times = float(spans.start[row]), float(spans.end[row])
        messages = tuple(sent[spans.rank[row], fields["call"]])
        found.append(LayerCollective(*place, *about, *times, messages))
    return sorted(found, key=lambda each: each.start)


def cells(text: str) -> Cells:
    """The block written as "[0:64, 512:1024] of (64, 2048), summand 2 of 4"."""
    held, whole = text.split("] of (")
    bounds = [tuple(map(int, each.split(":"))) for each in held[1:].split(", ")]
    shape = tuple(map(int, re.findall(r"\d+", whole.partition(")")[0])))
    start, stop = zip(*bounds, strict=True)
    summand = re.search(r"summand (\d+) of (\d+)", whole)
    number, many = map(int, summand.groups()) if summand else (1, 1)
    return Cells(shape, start, stop, number - 1, many)
