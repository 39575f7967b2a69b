"""The trainings that lab 12b compares: five seeds each, of which each deals the images, draws the
initial weights and the clients, and orders the batches.

    python labs/recorded/12b_federated_privacy/sweep.py [STUDY ...]   takes some minutes

writes sweep.json beside it: when and where it was made, and a row for each training, with the
number of test images, of 360, that the network recognises after each round; of the study
"recovered", how many of a client's images the server recovers from one update, by their number.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch

import dlviz
from dlviz.datasets import digits
from dlviz.federated import (
    Private,
    attacks,
    inversion,
    partition,
    privacy,
    received,
    robust,
    train,
)
from dlviz.federated.compared import record
from dlviz.models import MLP, accuracy

FILE = Path(__file__).with_name("sweep.json")
SEEDS = range(5)
COUNTS = 1, 2, 4, 8, 16, 32, 64  # images of a client
BOUND = 2.0  # to which thousand clients clip
RATES = 0.05, 0.1, 0.2, 0.5

Case = dict[str, Any]  # a row's keys; "how" holds the options of `train`


def cases() -> Iterator[Case]:
    """All of them, each study's together."""
    for seed, epochs in product(SEEDS, (1, 5)):
        yield row("recovered", f"E = {epochs}", "20 clients", seed, 0.1, {"epochs": epochs})
    for seed, lr, sigma in product(SEEDS, (0.5, 1.0, 2.0, 4.0), (0, 1, 2, 4)):
        how = {"rounds": 40, "fraction": 0.1, "selection": "poisson"}
        how |= {"private": Private(BOUND, sigma, 1e-5)}
        yield row("noise", f"σ = {sigma}", "1,000 clients", seed, lr, how)
    for seed, lr, sigma in product(SEEDS, RATES, (0.0, 0.4, 1.0)):
        how = {"rounds": 12, "batch": 10, "outgoing": noised(sigma, seed)}
        yield row("noise of each", f"σ = {sigma:g}", "eight clients", seed, lr, how)
    local = {"rounds": 12, "epochs": 5, "batch": 10}
    for seed, lr, data, f in product(SEEDS, RATES, ("identical", "two labels"), (0, 1, 3, 4)):
        attack = attacks.by(range(10 - f, 10), partial(attacks.scale, factor=-10))
        for name, rule in robust.rules(f).items():
            how = {**local, "combine": rule, "outgoing": attack}
            yield row("attackers", f"{name}, {f} of 10", data, seed, lr, how)
    for seed, f in product(SEEDS, (1, 3, 4)):
        for name, rule in robust.rules(f).items():
            how = {**local, "combine": rule}
            yield row("false labels", f"{name}, {f} of 10", "identical", seed, 0.1, how)


def row(study: str, method: str, data: str, seed: int, lr: float, how: dict[str, Any]) -> Case:
    found = {"study": study, "method": method, "data": data, "seed": seed, "lr": lr}
    return {**found, "how": how}


def noised(sigma: float, seed: int) -> Any:
    """Each of eight clients clips its update to 1 and adds its part of the noise on the sum."""

    def outgoing(update: torch.Tensor, client: int, number: int) -> torch.Tensor:
        source = torch.Generator().manual_seed(1000 * seed + 8 * number + client)
        part = sigma / 8**0.5
        return privacy.local(update, bound=1.0, noise_multiplier=part, generator=source)

    return outgoing


def dealt(case: Case) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """The clients' images and labels."""
    images, labels = digits("train")
    seed = case["seed"]
    if case["data"] == "two labels":
        parts = partition.by_label(labels, 10, per_client=2, seed=seed)
    elif case["data"] == "identical":
        parts = partition.identical(labels, 10, seed=seed)
    elif case["data"] == "eight clients":
        parts = [part[:179] for part in partition.identical(labels, 8, seed=seed)]
    elif case["data"] == "1,000 clients":
        parts = partition.identical(labels, 1000, seed=seed)
    else:
        twenty = partition.identical(labels, 20, seed=seed)
        parts = [part[:count] for count in COUNTS for part in twenty]
    clients = partition.dealt(images, labels, parts)
    if case["study"] == "false labels":
        false = int(case["method"].split(", ")[1][0])
        for k in range(10 - false, 10):
            clients[k] = clients[k][0], attacks.flip_labels(clients[k][1], 10)
    return clients


def recovered(comm: dlviz.Comm, net: torch.nn.Module, clients: Any, how: Any) -> list[int]:
    """For each number of images how many of them are recovered, of 20 clients together."""
    rounds = received(comm, net, clients, **how)
    if rounds is None:
        return []
    found = [
        inversion.recovered(net, update, images)
        for update, (images, _) in zip(rounds[0], clients, strict=True)
    ]
    return torch.tensor(found).view(len(COUNTS), 20).sum(1).tolist()


def trained(comm: dlviz.Comm, cases: list[Case]) -> list[Case]:
    """The rows of the cases, one after the other."""
    torch.set_num_threads(1)
    images, labels = digits("test")
    rows = []
    for case in comm.progress(cases, "sweep"):
        net, clients = MLP((64, 32, 10), seed=case["seed"]), dealt(case)
        how = {"lr": case["lr"], "seed": case["seed"], **case["how"]}
        if case["study"] == "recovered":
            found = {"of": 20, "right": recovered(comm, net, clients, how)}
        else:
            score = partial(accuracy, images=images, labels=labels)
            rounds = train(comm, net, clients, evaluate=score, **how)["rounds"]
            right = [round(each.score * len(labels)) for each in rounds]
            found = {"of": len(labels), "right": right}
        rows.append({key: case[key] for key in case if key != "how"} | found)
    return rows


if __name__ == "__main__":
    record(FILE, cases(), trained, sys.argv[1:])
