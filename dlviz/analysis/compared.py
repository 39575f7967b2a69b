"""Methods compared at their best rates, from trainings that were recorded over several seeds.

    rate    seed 0   seed 1   ...      examples to target
    0.25      688      720             median 704
    0.5       512      496             median 504      <- the method's row
    1.0      never     640             median never

At one rate for all the comparison would be one of rates, and with one seed one of chance.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, median
from typing import NamedTuple

import numpy as np

from dlviz.analysis.descent import OVER, running_mean
from dlviz.analysis.recorded import Row, last_third


class Compared(NamedTuple):
    """A method at its best rate; the lists have one value for each seed."""

    method: str
    lr: float
    alpha: float | None  # of elastic averaging
    examples_per_second: float
    examples: list[float]  # to the target; inf: never
    seconds: list[float]  # examples / examples_per_second
    ends: list[float]  # mean loss of the last third of the batches
    right: list[float]  # test examples recognised at the end; the mean over the ranks' models
    averaged: list[float]  # by the averaged predictions of the ranks' models


def at_best_rates(rows: Sequence[Row], target: float, over: int = OVER) -> list[Compared]:
    """Each method at the best of its recorded rates (lr, and alpha where it has one): the fewest
    examples until the mean loss of the last `over` batches is `target` or less (the median over the
    seeds), and of equal ones the lowest mean loss of the last third.

    `rows` are of two `study`s. "speed", one a method: its `rate` (examples/s while all workers have
    batches), how many batches are done until then (`together`; later ones do not count), `used`
    (examples of a batch that go into an update). "losses", one a training: seed, lr, perhaps
    alpha, its `losses` (None: not finite) in the order in which batches are done; `right`,
    `averaged`.
    """
    found = []
    for speed in (row for row in rows if row["study"] == "speed"):
        runs: dict[tuple[float, float | None], list[Row]] = {}
        for row in sorted(rows, key=lambda row: row.get("seed", -1)):
            if (row["study"], row["method"]) == ("losses", speed["method"]):
                runs.setdefault((row["lr"], row.get("alpha")), []).append(row)
        each = [_compared(speed, *at, seeds, target, over) for at, seeds in runs.items()]
        found.append(min(each, key=lambda one: (median(one.examples), fmean(one.ends))))
    return found


def _compared(
    speed: Row, lr: float, alpha: float | None, seeds: list[Row], target: float, over: int
) -> Compared:
    examples, ends, rate = [], [], speed["rate"]
    for row in seeds:
        done = row["losses"][: speed["together"]]
        losses = np.array([np.inf if loss is None else loss for loss in done])
        low = np.flatnonzero(running_mean(losses, over) <= target)
        examples.append(speed["used"] * (low[0] + 1.0) if len(low) else np.inf)
        ends.append(last_third(losses.tolist()))
    right, averaged = ([row[name] for row in seeds] for name in ("right", "averaged"))
    seconds = [each / rate for each in examples]
    return Compared(speed["method"], lr, alpha, rate, examples, seconds, ends, right, averaged)


class Lowest(NamedTuple):
    """A method at the rate of its lowest loss; the lists have one value for each seed."""

    lr: float
    ends: list[float]  # mean loss of the last third; inf: not finite
    right: list[int]  # test examples recognised at the end


def at_lowest_loss(rows: Sequence[Row]) -> dict[str, Lowest]:
    """Each method of the recorded trainings at the rate with the lowest mean loss of the last third
    (the median over the seeds); of equal ones that with the most test examples right.

    A row is a training: `method`, `seed`, `lr`, its `losses` (None: not finite), `right`.
    """
    found: dict[str, dict[float, Lowest]] = {}
    for row in sorted(rows, key=lambda row: row["seed"]):
        losses = [math.inf if loss is None else loss for loss in row["losses"]]
        one = found.setdefault(row["method"], {}).setdefault(row["lr"], Lowest(row["lr"], [], []))
        one.ends.append(last_third(losses))
        one.right.append(row["right"])
    return {
        method: min(rates.values(), key=lambda one: (median(one.ends), -fmean(one.right)))
        for method, rates in found.items()
    }


class Searched(NamedTuple):
    """A search at the rate of its best mean; the lists have one value for each seed."""

    lr: float | None
    seconds: list[float]  # of the best placement
    last: list[float]  # mean seconds of the last third of the samples
    gains: list[list[tuple[int, float]]]  # (samples until then, seconds) of each new best one

    def best_so_far(self, samples: int) -> list[list[float]]:
        """Of each seed the best seconds until each of its `samples`."""
        found = []
        for gains in self.gains:
            ends = [number for number, _ in gains[1:]] + [samples + 1]
            steps = zip(gains, ends, strict=True)
            found.append([best for (first, best), end in steps for _ in range(first, end)])
        return found


def at_best_seconds(rows: Sequence[Row]) -> dict[str, Searched]:
    """Each method of the recorded searches at the rate at which its best placements are shortest
    (the mean over the seeds); of equal ones that with the shortest last third.

    A row is a search: `method`, `seed`, `lr` (None: it has none), `seconds`, `last`, `gains`.
    """
    found: dict[str, dict[float | None, Searched]] = {}
    for row in sorted(rows, key=lambda row: row["seed"]):
        rates = found.setdefault(row["method"], {})
        one = rates.setdefault(row["lr"], Searched(row["lr"], [], [], []))
        one.seconds.append(row["seconds"])
        one.last.append(row["last"])
        one.gains.append([*map(tuple, row["gains"])])
    return {
        method: min(rates.values(), key=lambda one: (fmean(one.seconds), fmean(one.last)))
        for method, rates in found.items()
    }
