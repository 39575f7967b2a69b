"""The trainings that lab 05 compares: each code of gradients at several rates, five seeds each.

    python labs/recorded/05_compression/sweep.py [METHOD ...]      takes some minutes

writes sweep.json beside it: when and where it was made, and a row for each training: `losses`, the
mean of each 20 steps (None: not finite), and how many of the 360 test digits are recognised at the
end (`right`). The seed draws the initial weights and the order of the digits.

One process renders four data-parallel ranks: it computes the gradient of each rank's shard, and the
same compressors code it, a rank with its own residual and draws.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import cross_entropy

from dlviz.analysis.recorded import means, record
from dlviz.compression import Feedback, make
from dlviz.datasets import batches, digits
from dlviz.models import MLP
from dlviz.parallel.data.buckets import fill_buckets

FILE = Path(__file__).with_name("sweep.json")
SEEDS = range(5)
RATES = 0.05, 0.1, 0.2, 0.4, 0.8, 1.6
RANKS, BATCH, STEPS, MEAN_OF = 4, 64, 400, 20  # 400 steps: 18 times through the digits
Options = dict[str, Any]
CODES: dict[str, Options] = {  # keyword arguments of data.train
    "one bit": {"compress": "one_bit"},
    "top 0.1 %": {"compress": "topk", "share": 0.001},
    "top 1 %": {"compress": "topk", "share": 0.01},
    "QSGD, 2 bits": {"compress": "qsgd", "bits": 2},
    "QSGD, 4 bits": {"compress": "qsgd", "bits": 4},
}
METHODS: dict[str, Options] = {"dense": {}} | {
    f"{name}{', feedback' * feedback}": {**code, "feedback": feedback}
    for name, code in CODES.items()
    for feedback in (False, True)
}


def data(seed: int, steps: int = STEPS) -> list[Any]:
    """The batches of a training."""
    return [*batches(*digits("train"), batch=BATCH, seed=seed, steps=steps)]


def training(method: str, seed: int, lr: float) -> tuple[MLP, Iterator[float]]:
    """A model, and the losses of the steps that train it."""
    model = MLP((64, 128, 128, 10), seed=seed)
    return model, steps(model, data(seed), lr, **METHODS[method])


def steps(
    model: torch.nn.Module,
    given: list[Any],
    lr: float,
    compress: str | None = None,
    feedback: bool = True,
    **options: Any,
) -> Iterator[float]:
    """The loss of each batch before its step, as by `data.train` on four ranks."""
    (bucket,) = fill_buckets(model, math.inf)
    shapes = [p.shape for p in bucket.parameters]
    codes = []
    if compress is not None:
        shared = make(compress, **options)
        own = [shared.for_bucket(shapes, rank, 0) for rank in range(RANKS)]
        codes = [Feedback(code, feedback) for code in own]
    for images, labels in given:
        losses, total = 0.0, torch.zeros_like(bucket.values)
        shards = zip(images.tensor_split(RANKS), labels.tensor_split(RANKS), strict=True)
        for rank, (x, y) in enumerate(shards):
            share = len(y) / len(labels)
            loss = cross_entropy(model(x), y)
            gradients = torch.autograd.grad(loss, bucket.parameters)
            v = share * torch.cat([g.flatten() for g in gradients])
            losses += share * loss.item()
            if codes and math.isfinite(losses):
                v = codes[rank].apply(v)
                code = codes[rank].compressor
                encoded = code.encode(v)
                decoded = code.decode(encoded, len(v))
                codes[rank].keep(encoded)
                v = decoded
            total += v
        yield losses
        if not (math.isfinite(losses) and total.isfinite().all()):
            return
        moves = total.split([p.numel() for p in bucket.parameters])
        with torch.no_grad():
            for p, move in zip(bucket.parameters, moves, strict=True):
                p -= lr * move.view_as(p)


def row(method: str, seed: int, lr: float) -> dict[str, Any]:
    """A training's row."""
    model, every = training(method, seed, lr)
    losses = means(every, MEAN_OF, STEPS // MEAN_OF)
    images, labels = digits("test")
    right = int((model(images).argmax(1) == labels).sum())
    return {"method": method, "seed": seed, "lr": lr, "losses": losses, "right": right}


def main(chosen: list[str]) -> None:
    torch.set_num_threads(1)
    for method in chosen or METHODS:
        record(FILE, [row(method, *each) for each in product(SEEDS, RATES)], "method")


if __name__ == "__main__":
    main(sys.argv[1:])
