"""No public function takes a count of what cannot be counted: 0 ranks, -1 workers, 1.5 rounds."""

from __future__ import annotations

import importlib
import inspect
import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

import dlviz
from dlviz import datasets, metrics, models, schedules, sim
from dlviz.analysis import contributions
from dlviz.federated import accountant, inversion, partition, privacy, sizes
from dlviz.federated.local import LocalTraining
from dlviz.federated.masked import Secure
from dlviz.machine import Link, Topology, classroom
from dlviz.models.train import largest_curvature
from dlviz.parallel import easgd, gossip, pipeline, update_rules

PACKAGES = (
    "cluster", "collectives", "datasets", "federated", "federated.partition", "federated.privacy",
    "federated.sizes", "federated.accountant", "federated.inversion", "machine", "metrics",
    "models", "parallel", "parallel.data", "parallel.easgd", "parallel.gossip", "parallel.hybrid",
    "parallel.local_sgd", "parallel.pipeline", "parallel.update_rules", "patterns", "schedules",
    "sim", "trace",
)  # fmt: skip
COUNTS = {
    "ranks", "workers", "clients", "rounds", "microbatches", "steps", "nbytes", "stages", "chunks",
    "devices", "batch", "batches", "epochs", "layers", "heads", "hidden", "vocabulary", "sequence",
    "nodes", "ranks_per_node", "radix", "tensor", "itemsize", "servers", "backups", "every",
    "times", "repeats", "buckets", "bucket_bytes", "examples", "width", "window", "classes",
    "per_client", "starts", "dp", "pp", "tp", "inputs", "outputs", "kv_heads", "size", "count",
    "m", "k", "n", "bits", "threshold",
}  # fmt: skip

LINK, MACHINE = Link(1e-5, 1e9), classroom(4)
LABELS = torch.arange(40) % 4
DRAW = torch.Generator().manual_seed(0)
SHAPE = {"layers": 2, "hidden": 8, "heads": 2, "vocabulary": 16, "sequence": 8}
NET = nn.Linear(2, 2)
DATA = torch.ones(6, 2), torch.zeros(6, dtype=torch.int64)

# Of each function a call that is right, and the counts in it.
CALLS: dict[Callable[..., Any], dict[str, Any]] = {
    metrics.bubble_formula: {"schedule": "1f1b", "ranks": 4, "microbatches": 8},
    metrics.bubble_ratio_formula: {
        "schedule": "interleaved", "ranks": 4, "microbatches": 8, "chunks": 2,
    },
    metrics.bus_bandwidth: {
        "collective": "all_reduce", "ranks": 4, "nbytes": 8, "seconds": 1.0,
    },
    metrics.algorithm_bandwidth: {"nbytes": 8, "seconds": 1.0},
    contributions.encode: {"rank": 1, "ranks": 4, "length": 4},
    datasets.batches: {"images": DATA[0], "labels": DATA[1], "batch": 2, "steps": 2},
    datasets.shard: {"tensor": DATA[0], "rank": 0, "size": 2},
    accountant.epsilon: {
        "noise_multiplier": 1.0, "sample_rate": 0.1, "steps": 10, "delta": 1e-5,
    },
    partition.identical: {"labels": LABELS, "clients": 4},
    partition.by_label: {"labels": LABELS, "clients": 4, "per_client": 1},
    partition.dirichlet: {"labels": LABELS, "clients": 4, "alpha": 1.0},
    partition.unequal: {"labels": LABELS, "clients": 4},
    partition.resample: {"images": torch.ones(40, 8, 8), "labels": LABELS, "examples": 5},
    sizes.dirichlet_sizes: {"counts": [10, 10], "clients": 2, "alpha": 1.0},
    privacy.poisson: {"clients": 4, "sample_rate": 0.5, "generator": DRAW},
    privacy.central: {
        "updates": torch.ones(2, 3), "weights": torch.ones(2), "bound": 1.0,
        "noise_multiplier": 1.0, "sample_rate": 0.5, "clients": 4, "generator": DRAW,
    },
    inversion.match: {
        "model": NET, "update": torch.ones(6), "shape": (2, 2), "epochs": 1, "steps": 1, "starts": 1,
    },
    Secure: {"threshold": 2, "clip": 4.0, "bits": 32},
    LocalTraining: {
        "epochs": 1, "batch": 2, "lr": 0.1, "loss": nn.functional.mse_loss, "proximal": 0.0,
        "seed": 0,
    },
    classroom: {"ranks": 4},
    Topology.switch: {"ranks": 4, "link": LINK},
    Topology.ring: {"ranks": 4, "link": LINK},
    Topology.racks: {"nodes": 2, "ranks_per_node": 2, "inside": LINK, "between": LINK},
    Topology.tree: {"ranks": 4, "radix": 2, "link": LINK},
    Link.seconds: {"self": LINK, "nbytes": 8},
    models.LSTM: {"vocabulary": 8, "width": 4, "window": 4},
    models.train: {"model": NET, "data": DATA, "steps": 1, "batch": 2},
    largest_curvature: {
        "model": NET, "data": DATA, "loss": nn.functional.cross_entropy, "rounds": 1,
    },
    models.Transformer: SHAPE | {"kv_heads": 2},
    gossip.contraction: {"ranks": 4, "topology": "ring"},
    gossip.neighbours: {"rank": 0, "ranks": 4, "topology": "ring", "number": 0},
    easgd.spectral_radius: {"workers": 4, "eta": 0.1, "alpha": 0.1, "form": "synchronous"},
    easgd.stable_alpha: {"workers": 4, "eta": 0.1, "form": "synchronous"},
    pipeline.split: {"model": nn.Sequential(NET, NET), "stages": 2},
    update_rules.descend: {
        "rule": update_rules.make("sgd", 0.1), "surface": lambda x, y: x * x + y * y,
        "start": (1.0, 1.0), "steps": 2,
    },
    schedules.make: {"name": "interleaved", "ranks": 2, "microbatches": 4, "chunks": 2},
    sim.activation_bytes: {
        "layers": 2, "hidden": 8, "heads": 2, "sequence": 8, "batch": 2, "tensor": 2,
    },
    sim.collective: {"algorithm": "ring", "ranks": 4, "nbytes": 64, "machine": MACHINE},
    sim.collective_seconds: {
        "algorithm": "ring", "ranks": 4, "nbytes": 64, "alpha": 1e-5, "beta": 1e-9,
    },
    sim.data_parallel_seconds: {
        "ranks": 4, "compute": 1.0, "nbytes": 64, "alpha": 1e-5, "beta": 1e-9, "buckets": 2,
    },
}  # fmt: skip

NONSENSE = [0, -1, 1.5, True, math.nan]


def accepted() -> Iterator[str]:
    for function, call in CALLS.items():
        try: function(**call)
        except Exception as e: yield f'{function.__qualname__} ITSELF {e}'[:200]; continue
        for name in call.keys() & COUNTS:
            if isinstance(call[name], int):
                for value in NONSENSE:
                    try:
                        function(**call | {name: value})
                    except ValueError as error:
                        text = str(error)
                        if "\n" in text or not text.endswith(".") or name not in text:
                            yield f"{function.__qualname__} {name}={value}: SAYS {text[:150]}"
                    except Exception as error:
                        yield f"{function.__qualname__} {name}={value}: {type(error).__name__} {error}"[:150]
                    else:
                        yield f"{function.__qualname__} {name}={value}: accepted"
for a in accepted(): print(a)
