"""Methods compared: trainings from the same weights, each method at its best rate, over seeds.

    rate   seed 0  seed 1  ...      first round at the goal, of each seed
    0.05      9       8             median 9
    0.1       4       3             median 4      <- the method's row in a table
    0.2       5       4             median 5

A method is compared at the best of several rates, or the comparison is one of rates; and over
several seeds, or it is one of chance. Scores are those of `train(evaluate=)`, one a round.

Source: McMahan et al. 2017, section 3: "optimizing the learning rate ... for each".
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from statistics import fmean, median
from typing import Any, NamedTuple, TypeVar

import torch
from torch import nn

from dlviz.analysis import recorded
from dlviz.analysis.recorded import Recorded, last_third
from dlviz.cluster import Comm, launch
from dlviz.federated.aggregation import Combine, weighted_mean
from dlviz.federated.local import Data
from dlviz.federated.rounds import train
from dlviz.models.result import Result

Name = TypeVar("Name", bound=Hashable)
Scores = Sequence[float]  # one a round


class Tuned(NamedTuple):
    """A method at its best rate; the lists have one value for each seed."""

    rate: float
    scores: list[Scores]
    rounds: list[float]  # the first round that reaches the goal, 1 or more; inf: none does
    ends: list[float]  # mean score of the last third of the rounds


class Sweep(Recorded):
    """Recorded trainings: a row has study, method, data, seed, lr, and how many test images
    (`right`, of `of`) the network recognises after each round."""

    def methods(self, study: str, data: str) -> dict[str, dict[float, list[Scores]]]:
        """Of a study's methods, by name, the scores by rate and seed. Raises ValueError for a study
        that was not made."""
        found: dict[str, dict[float, list[Scores]]] = {}
        for row in sorted(self.rows, key=lambda row: row["seed"]):
            if (row["study"], row["data"]) == (study, data):
                runs = found.setdefault(row["method"], {}).setdefault(row["lr"], [])
                runs.append([right / row["of"] for right in row["right"]])
        if not found:
            made = sorted({f"{row['study']}: {row['data']}" for row in self.rows})
            raise ValueError(f"{study}: {data} was not made; there is {', '.join(made)}.")
        return found

    def tuned(self, study: str, data: str, goal: float = 0.9) -> dict[str, Tuned]:
        """Each method of a study at its best rate (`tuned`)."""
        return {name: tuned(runs, goal) for name, runs in self.methods(study, data).items()}


def record(
    path: Path,
    cases: Iterable[dict[str, Any]],
    worker: Callable[[Comm, list[dict[str, Any]]], list[dict[str, Any]]],
    studies: Sequence[str] = (),
) -> None:
    """Make the sweep in the file `path`, or these `studies` of it again: `worker` makes the rows of
    a study's cases on two ranks. The cases of a study follow one another; its rows are in the file
    as soon as it is done."""
    for study, own in groupby(cases, itemgetter("study")):
        if not studies or study in studies:
            rows = launch(worker, 2, args=([*own],), timeout=3600).results[0]
            recorded.record(path, rows, "study")


def scores(result: Result) -> Scores:
    """What `train(evaluate=)` found after each round."""
    return [each.score for each in result["rounds"]]


def train_each(
    comm: Comm, model: nn.Module, cases: Mapping[Name, tuple[Sequence[Data], Any]], **same: Any
) -> dict[Name, Result]:
    """`train` for each case, (clients, its options), one after the other, each from the weights of
    `model`. `same`: options of all of them."""
    return {
        name: train(comm, copy.deepcopy(model), clients, **same, **options)
        for name, (clients, options) in cases.items()
    }


def received(
    comm: Comm, model: nn.Module, clients: Sequence[Data], **options: Any
) -> list[torch.Tensor] | None:
    """On rank 0 the updates as the server receives them, for each round (clients, parameters), in
    the order of the clients; None on the others. `options` are those of `train`; one round, unless
    they say otherwise."""
    combine: Combine = options.pop("combine", weighted_mean)
    rows: list[torch.Tensor] = []

    def keep(updates: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        rows.append(updates)
        return combine(updates, weights)

    given: dict[str, Any] = {"rounds": 1, **options}
    train(comm, copy.deepcopy(model), clients, combine=keep, **given)
    return None if comm.rank else rows


def rounds_to(goal: float, scores: Scores) -> float:
    """How many rounds until a score first reaches the `goal`; inf where none does."""
    return next((float(n) for n, each in enumerate(scores, 1) if each >= goal), float("inf"))


def tuned(runs: Mapping[float, Sequence[Scores]], goal: float) -> Tuned:
    """The best of several rates, `runs` by rate and seed: the fewest rounds to the `goal` (the
    median over the seeds), and of equal ones the best mean score of the last third.

    Raises ValueError where there is no run.
    """
    if not runs or not all(runs.values()):
        raise ValueError("there is a rate without a run: give the scores of one seed at least.")
    found = [
        Tuned(rate, [*seeds], [rounds_to(goal, s) for s in seeds], [last_third(s) for s in seeds])
        for rate, seeds in runs.items()
    ]
    return min(found, key=lambda each: (median(each.rounds), -fmean(each.ends)))


def summary(found: Tuned, goal: float = 0.9) -> dict[str, str]:
    """A row of a table: a method's rate, and what its seeds say, the median (least to greatest)."""
    return {
        "rate": f"{found.rate:g}",
        f"rounds to {100 * goal:g} %": median_and_range(found.rounds),
        "last third (%)": median_and_range([100 * end for end in found.ends]),
    }


def median_and_range(values: Sequence[float], digits: int = 0) -> str:
    """For a table: "43 (41 to 44)", the median of several seeds, the least and the greatest."""
    least, middle, most = (
        "none" if each == float("inf") else f"{each:.{digits}f}"
        for each in (min(values), median(values), max(values))
    )
    return f"{middle} ({least} to {most})"
