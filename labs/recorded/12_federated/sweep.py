"""The trainings that lab 12 compares: each method at several rates, five seeds each.

    python labs/recorded/12_federated/sweep.py        about 10 minutes of processor time

writes sweep.json beside it: when and where it was made, and a row for each training, with the
number of test images, of 360, that the network recognises after each round (of stragglers: of the
labels 0 to 7, and of 8 and 9). The seed deals the images, draws the initial weights and the
clients, and orders the batches.
"""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Callable, Iterator
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import torch

import dlviz
from dlviz.datasets import digits
from dlviz.federated import Arrivals, partition, train
from dlviz.models import MLP

FILE = Path(__file__).with_name("sweep.json")
SEEDS = range(5)
RATES = 0.02, 0.05, 0.1, 0.2, 0.5
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
    "FedProx, μ = 0.1": {"proximal": 0.1},
    "FedProx, μ = 1": {"proximal": 1.0},
    "FedAvgM, β = 0.5": {"server_momentum": 0.5},
    "FedAvgM, β = 0.9": {"server_momentum": 0.9},
    "FedAvgM, β = 0.9, server 0.1": {"server_momentum": 0.9, "server_lr": 0.1},
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
    for seed in SEEDS:
        for (epochs, batch), rounds in WORK.items():
            for lr in (*RATES[1:], 1.0, 2.0):
                how = {"rounds": rounds, "fraction": 0.5, "epochs": epochs, "batch": batch}
                yield row("local work", f"E = {epochs}, B = {batch or '∞'}", "identical", seed, lr, how)
        for data in ("identical", "two labels"):
            for lr in RATES:
                for fraction in FRACTIONS:
                    how = {"rounds": 20 if data == "identical" else 60, "fraction": fraction}
                    how |= {"epochs": 5, "batch": 10}
                    yield row("asked", f"C = {fraction:g}", data, seed, lr, how)
            for lr in (0.2, 0.5, 1.0, 2.0):
                for fraction in FRACTIONS[1:]:
                    how = {"rounds": 120, "fraction": fraction}
                    yield row("FedSGD", f"C = {fraction:g}", data, seed, lr, how)
        for lr in RATES:
            how = {"rounds": 60, "fraction": 0.2, "epochs": 5, "batch": 10}
            turns = {**how, "selection": "round_robin"}
            yield row("selection", "in turn", "two labels", seed, lr, turns)
            for fraction in (0.2, 0.5):
                for name, remedy in REMEDIES.items():
                    options = {**how, "fraction": fraction, **remedy}
                    yield row(f"remedies, C = {fraction:g}", name, "two labels", seed, lr, options)
        for lr in (0.05, 0.1, 0.2, 0.5):
            for name, policy in POLICIES.items():
                how = {"batch": 24, "arrivals": PHONES, **policy}
                yield row("stragglers", name, "8 and 9 on slow clients", seed, lr, how)


def row(study: str, method: str, data: str, seed: int, lr: float, how: dict[str, Any]) -> Case:
    return {
        "study": study, "method": method, "data": data, "seed": seed, "lr": lr, "how": how,
    }  # fmt: skip


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
    return [(images[part], labels[part]) for part in parts]


def counting(data: str, right: list[Any]) -> Callable[[torch.nn.Module], float]:
    """What `train` calls after each round: appends how many test images are recognised."""
    images, labels = digits("test")

    def evaluate(model: torch.nn.Module) -> float:
        with torch.no_grad():
            found = model(images).argmax(1) == labels
        rare = labels >= 8
        split = [int(found[~rare].sum()), int(found[rare].sum())]
        right.append(split if data == "8 and 9 on slow clients" else sum(split))
        return sum(split) / len(labels)

    return evaluate


def trained(comm: dlviz.Comm, cases: list[Case]) -> list[Case]:
    """The cases, one after the other, each with the number of images recognised by round."""
    torch.set_num_threads(1)
    rows = []
    for case in comm.progress(cases, "sweep"):
        right: list[Any] = []
        net, clients = MLP((64, 32, 10), seed=case["seed"]), dealt(case["data"], case["seed"])
        score = counting(case["data"], right)
        how = {"lr": case["lr"], "seed": case["seed"], "evaluate": score, **case["how"]}
        train(comm, net, clients, **how)
        rows.append({key: case[key] for key in case if key != "how"} | {"right": right})
    return rows


def main() -> None:
    begin = time.process_time(), time.perf_counter()
    rows = []
    for _, own in groupby(sorted(cases(), key=itemgetter("study")), itemgetter("study")):
        rows += dlviz.launch(trained, 2, args=([*own],), timeout=1800).results[0]
    made = {
        "date": time.strftime("%Y-%m-%d"),
        "machine": f"{platform.machine()}, {platform.system()}, torch {torch.__version__}",
        "wall seconds": round(time.perf_counter() - begin[1]),
        "test images": len(digits("test")[1]),
    }
    lines = ",\n".join(json.dumps(each, ensure_ascii=False) for each in rows)
    head = json.dumps({"made": made}, ensure_ascii=False)[:-1]
    FILE.write_text(f'{head},\n"rows": [\n{lines}\n]}}\n', encoding="utf-8")


if __name__ == "__main__":
    main()
