"""A table of measurements: ours, the peer's, their ratio, the target, and a verdict.

Timings on a machine that also does other work say little alone. Ours and the peer's therefore take
turns, and what counts is the median over the rounds of the ratio within a round.
"""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Callable, Iterator
from statistics import median, quantiles
from time import sleep
from typing import Any, NamedTuple, TypeVar

import torch

import dlviz

K = TypeVar("K")
T = TypeVar("T")
ROUNDS = 5
NOISE = 0.05  # of a target: a ratio that misses it by less may be chance
WIDTHS = (46, 10, 10, 16, 9)
HEADINGS = ("what", "ours", "peer", "ratio", "target")
WAKES = 100


class Row(NamedTuple):
    """One line. `ours` and `peer` are in `unit`: "s", or "" for a bare number; without a peer NaN.

    `ratio`: how many times as good ours is; `target`: its lower bound (None: stated, not judged);
    `most`: an upper bound of ours; `within`: instead of a target, how close to 1 the ratio has to
    be. `remark` follows the verdict. `spread`: the quartiles of the ratio, where rounds have one
    each.
    """

    what: str
    ours: float
    peer: float
    ratio: float
    target: float | None = None
    unit: str = "s"
    most: float | None = None
    within: float | None = None
    remark: str = ""
    spread: tuple[float, float] | None = None


def take_turns(contestants: dict[K, Callable[[], T]], rounds: int = ROUNDS) -> dict[K, list[T]]:
    """What each contestant returns (its seconds, say) in each round."""
    found: dict[K, list[T]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, run in contestants.items():
            found[name].append(run())
    return found


def compare(
    what: str,
    ours: list[float],
    peer: list[float],
    target: float | None = None,
    most: float | None = None,
    remark: str = "",
) -> Row:
    """The row of two lists of seconds, entry i of both measured in round i."""
    ratios = [theirs / own for own, theirs in zip(ours, peer, strict=True)]
    low, middle, high = quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
    times = median(ours), median(peer)
    return Row(what, *times, middle, target, most=most, remark=remark, spread=(low, high))


def verdict(row: Row) -> str:
    """Whether the row reaches its target, in words."""
    if row.within is not None:
        gap = abs(row.ratio - 1)
        words = f"{gap:.2%} apart"
        words += "" if gap <= row.within else f": FALLS SHORT, more than {row.within:.0%}"
    elif row.target is None:
        words = "stated, no target" if row.most is None else f"{amount(row.most, row.unit)} at most"
    elif row.ratio >= row.target:
        words = "reached"
    elif row.ratio >= row.target * (1 - NOISE):
        words = "reached within noise"
    else:
        words = f"FALLS SHORT: {row.ratio / row.target:.2f} of the target"
    if row.most is not None and row.ours > row.most:
        words = f"{words}; FALLS SHORT of {amount(row.most, row.unit)} or less"
    return f"{words}; {row.remark}" if row.remark else words


def falls_short(row: Row) -> bool:
    return "FALLS SHORT" in verdict(row)


def amount(value: float, unit: str = "s") -> str:
    """A number with three digits, seconds with a suitable prefix; - for NaN."""
    if math.isnan(value):
        return "-"
    if unit != "s" or value == 0 or not math.isfinite(value):
        return f"{value:.3g}{unit and ' ' + unit}"
    for scale, name in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if abs(value) >= scale:
            return f"{value / scale:.3g} {name}"
    return f"{value * 1e9:.3g} ns"


def lines(rows: list[Row]) -> Iterator[str]:
    for row in rows:
        target = "" if row.target is None else f">= {row.target:g}"
        if row.within is not None:
            target = f"1 ± {row.within:.0%}"
        cells = (row.what, amount(row.ours, row.unit), amount(row.peer, row.unit))
        ratio = "-" if math.isnan(row.ratio) else f"{row.ratio:.2f}"
        if row.spread is not None:
            ratio += " ({:.2f}-{:.2f})".format(*row.spread)
        yield line((*cells, ratio, target), verdict(row))


def line(cells: tuple[str, ...], last: str) -> str:
    first, *others = (
        cell.ljust(width) if number == 0 else cell.rjust(width)
        for number, (cell, width) in enumerate(zip(cells, WIDTHS, strict=True))
    )
    return "  ".join((first, *others, last))


def heading() -> str:
    """The machine, the versions, and the names of the columns."""
    load = f", load {os.getloadavg()[0]:.1f} when it began" if hasattr(os, "getloadavg") else ""
    versions = f"torch {torch.__version__}, Python {platform.python_version()}"
    return (
        f"{os.cpu_count()} cores ({processor()}), {platform.system()}{load}\n"
        f"dlviz {dlviz.__version__}, {versions}\n"
        f"Waking a rank takes {amount(price_of_a_wake())}\n"
        f"Medians of {ROUNDS} rounds or more in which ours and the peer take turns; "
        "ratio: how many times as fast ours is, with its quartiles.\n\n"
        f"{line(HEADINGS, 'verdict')}\n{'-' * 110}"
    )


def price_of_a_wake() -> float:
    """Seconds from a message to a rank that sleeps until that goes on, on average."""
    return dlviz.launch(_wakes, ranks=2).results[1] * 1e-9


def _wakes(comm: Any) -> int:
    ball = torch.zeros(1)
    for _ in range(WAKES):
        if comm.rank == 0:
            sleep(1e-3)
            comm.send(ball, 1)
        else:
            comm.recv(ball, 0)
    return comm.waiting.wake


def processor() -> str:
    try:
        with open("/proc/cpuinfo") as text:
            return next(part.split(":")[1].strip() for part in text if "model name" in part)
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
