"""The trainings that lab 12 compares: each method at several rates, five seeds each.

    python labs/recorded/12_federated/sweep.py [STUDY ...]      takes some minutes

writes sweep.json beside it: when and where it was made, and a row for each training with the number
of test images that the network recognises after each round (of stragglers three rows: of all, of
the labels 0 to 7, and of 8 and 9). The seed deals the images, draws the initial weights and the
clients, and orders the batches.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import torch

import dlviz
from dlviz.datasets import digits
from dlviz.federated import Arrivals, partition, train
from dlviz.federated.compared import record
from dlviz.models import MLP

FILE = Path(__file__).with_name("sweep.json")
SEEDS = range(5)
RATES = 0.1, 0.2, 0.5
WORK = {  # E, B: how many rounds are enough
    (1, None): 60,
    (5, None): 40,
    (20, None): 20,
    (1, 10): 40,
    (5, 10): 20,
    (20, 10): 10,
}
FRACTIONS = 0.1, 0.2, 0.5, 1.0
REMEDIES = {
    "FedAvg": {},
    "FedProx, μ = 0.1": {"proximal": 0.1},
    "FedProx, μ = 1": {"proximal": 1.0},
    "FedAvgM, β = 0.5": {"server_momentum": 0.5},
    "FedAvgM, β = 0.9": {"server_momentum": 0.9, "server_lr": 0.1},
}
POLICIES = {  # about 4.4 seconds of the modelled clock each
    "wait for all": {"rounds": 12},
    "deadline, drop": {"rounds": 22, "deadline": 0.2},
    "deadline, take late": {"rounds": 22, "deadline": 0.2, "late_weight": 2.0},
    "first 6 of 8": {"rounds": 30, "fraction": 0.75, "spare": 2},
}
PHONES = Arrivals(0.02, factors=(1.0,) * 6 + (3.0,) * 2, latency=0.001, bandwidth=1e7)

Case = dict[str, Any]  # a row's keys; "how" holds the options of `train`


def cases() -> Iterator[Case]:
    """All of them, each study's together."""
    for seed, lr, (epochs, batch) in product(SEEDS, (0.05, *RATES, 1.0, 2.0), WORK):
        how = {"rounds": WORK[epochs, batch], "fraction": 0.5, "epochs": epochs, "batch": batch}
        name = f"E = {epochs}, B = {batch or '∞'}"
        yield row("local work", name, "identical", seed, lr, how)
    for seed, lr, fraction in product(SEEDS, (0.2, 0.5, 1.0, 2.0), FRACTIONS[1:]):
        for data in ("identical", "two labels"):
            how = {"rounds": 120, "fraction": fraction}
            yield row("FedSGD", f"C = {fraction:g}", data, seed, lr, how)
    local = {"epochs": 5, "batch": 10}
    for seed, lr, fraction in product(SEEDS, RATES, FRACTIONS):
        for data, rounds in (("identical", 15), ("two labels", 60)):
            how = {"rounds": rounds, "fraction": fraction, **local}
            yield row("asked", f"C = {fraction:g}", data, seed, lr, how)
    for seed, lr, name in product(SEEDS, RATES, REMEDIES):
        how = {"rounds": 60, "fraction": 0.5, **local, **REMEDIES[name]}
        yield row("remedies", name, "two labels", seed, lr, how)
    for seed, lr in product(SEEDS, RATES):
        how = {"rounds": 60, "fraction": 0.2, "selection": "round_robin", **local}
        yield row("selection", "in turn", "two labels", seed, lr, how)
    for seed, lr, name in product(SEEDS, (*RATES, 1.0), POLICIES):
        how = {"batch": 24, "arrivals": PHONES, **POLICIES[name]}
        yield row("stragglers", name, "8 and 9 on slow clients", seed, lr, how)


def row(study: str, method: str, data: str, seed: int, lr: float, how: dict[str, Any]) -> Case:
    found = {"study": study, "method": method, "data": data, "seed": seed, "lr": lr}
    return {**found, "how": how}


def dealt(data: str, seed: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """The clients' images and labels."""
    images, labels = digits("train")
    if data == "8 and 9 on slow clients":
        common, rare = (labels < 8).nonzero()[:, 0], (labels >= 8).nonzero()[:, 0]
        parts = [common[p][:144] for p in partition.identical(labels[common], 6, seed=seed)]
        parts += [rare[p] for p in partition.identical(labels[rare], 2, seed=seed)]
    elif data == "identical":
        parts = partition.identical(labels, 10, seed=seed)
    else:
        parts = partition.by_label(labels, 10, per_client=2, seed=seed)
    return partition.dealt(images, labels, parts)


def trained(comm: dlviz.Comm, cases: list[Case]) -> list[Case]:
    """The rows of the cases, trained one after the other."""
    torch.set_num_threads(1)
    rows = []
    for case in comm.progress(cases, "sweep"):
        clients = dealt(case["data"], case["seed"])
        net, score = MLP((64, 32, 10), seed=case["seed"]), Recognised()
        train(comm, net, clients, lr=case["lr"], seed=case["seed"], evaluate=score, **case["how"])
        found = {key: case[key] for key in case if key != "how"}
        groups = {"": [*range(10)]}
        if case["study"] == "stragglers":
            groups |= {", 0 to 7": [*range(8)], ", 8 and 9": [8, 9]}
        for name, chosen in groups.items():
            counts = {"of": score.of(chosen), "right": score.right(chosen)}
            rows.append({**found, "study": found["study"] + name, **counts})
    return rows


class Recognised:
    """What `train` calls after each round; stores how many images of each label are recognised."""

    def __init__(self) -> None:
        self.images, self.labels = digits("test")
        self.rounds: list[list[int]] = []

    def __call__(self, model: torch.nn.Module) -> float:
        with torch.no_grad():
            found = self.labels[model(self.images).argmax(1) == self.labels]
        self.rounds.append(found.bincount(minlength=10).tolist())
        return len(found) / len(self.labels)

    def of(self, labels: list[int]) -> int:
        """The images of these labels."""
        return int(self.labels.bincount(minlength=10)[labels].sum())

    def right(self, labels: list[int]) -> list[int]:
        """Those recognised after each round."""
        return [sum(counts[label] for label in labels) for counts in self.rounds]


if __name__ == "__main__":
    record(FILE, cases(), trained, sys.argv[1:])
