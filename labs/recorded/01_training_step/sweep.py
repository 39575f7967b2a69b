"""Lab 01's recorded sweeps: `python sweep.py` in this folder writes both tables.

    steps.csv       steps of a 64-64-10 network to 5 % test error, by batch, learning rate and seed
    curvature.csv   the largest curvature of its loss along some of these runs, every ten steps

A run of `steps.csv` ends where the test error of the last ten steps is at most 5 % in the mean, or
after 2,000 steps without a number.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import torch
from torch.nn.functional import cross_entropy

from dlviz.datasets import batches, digits
from dlviz.models import MLP, largest_curvature, steps_to_error

FOLDER = Path(__file__).parent
BATCHES = [8 * 2**i for i in range(8)]
RATES = [0.025 * 2**i for i in range(8)]  # 0.1 B / 32 of each batch is one of them
WATCHED = [(256, 0.8), (512, 1.6), (1024, 0.8), (1024, 3.2)]  # batch, rate
SEEDS = range(5)


def steps(batch: int, rate: float, seed: int) -> float:
    """Steps to 5 % test error; NaN where 2,000 are not enough."""
    model = MLP((64, 64, 10), seed=seed)
    return steps_to_error(
        model, digits("train"), digits("test"), 0.05, lr=rate, batch=batch, seed=seed
    )


def curvatures(batch: int, rate: float, seed: int, steps: int = 60) -> Iterator[tuple[int, float]]:
    """The largest curvature of the loss on all training images, before the first step and after
    every tenth."""
    model, train = MLP((64, 64, 10), seed=seed), digits("train")
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    yield 0, largest_curvature(model, train)
    for step, (images, labels) in enumerate(batches(*train, batch, seed, steps), 1):
        optimizer.zero_grad()
        cross_entropy(model(images), labels).backward()
        optimizer.step()
        if step % 10 == 0:
            yield step, largest_curvature(model, train)


def write(name: str, head: str, rows: list[str]) -> None:
    where = f"{platform.processor() or platform.machine()}, one core, torch {torch.__version__}"
    made = f"# made by labs/recorded/01_training_step/sweep.py on {date.today()}: {where}"
    (FOLDER / name).write_text("\n".join([made, head, *rows]) + "\n", encoding="utf-8")


def main() -> None:
    torch.set_num_threads(1)
    rows = [
        f"{batch},{rate:g},{seed},{steps(batch, rate, seed):g}"
        for batch in BATCHES
        for rate in RATES
        for seed in SEEDS
    ]
    write("steps.csv", "batch,rate,seed,steps", rows)
    rows = [
        f"{batch},{rate:g},{seed},{step},{curvature:.4g}"
        for batch, rate in WATCHED
        for seed in SEEDS
        for step, curvature in curvatures(batch, rate, seed)
    ]
    write("curvature.csv", "batch,rate,seed,step,curvature", rows)


if __name__ == "__main__":
    main()
