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
from dlviz import collectives, datasets, metrics, models, schedules, sim
from dlviz.analysis import contributions
from dlviz.federated import accountant, inversion, partition, privacy, sizes
from dlviz.federated.local import LocalTraining
from dlviz.federated.masked import Secure
from dlviz.machine import Link, Topology, classroom
from dlviz.models.train import largest_curvature
from dlviz.parallel import (
    data,
    easgd,
    gossip,
    hogwild,
    hybrid,
    local_sgd,
    pipeline,
    update_rules,
)
from dlviz.patterns import elements_sent

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
        "model": NET, "update": torch.ones(6), "shape": (2, 2),
        "epochs": 1, "steps": 1, "starts": 1,
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
    Topology.tree: {"ranks": 4, "radix": 4, "link": LINK},
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
    sim.kept_activations: {"sequence": 8, "batch": 2, "hidden": 8, "heads": 2, "ranks": 2},
    sim.layer_bytes: {
        "form": "reduce_output", "batch": 4, "inputs": 4, "outputs": 4, "ranks": 2, "itemsize": 4,
    },
    sim.layer_elements: {"form": "reduce_output", "batch": 4, "inputs": 4, "outputs": 4},
    sim.transformer_flops: {name: n for name, n in SHAPE.items() if name != "heads"} | {"batch": 2},
    sim.transformer_parameters: {name: n for name, n in SHAPE.items() if name != "heads"},
    sim.TransformerShape: SHAPE,
    sim.matmul_words: {"m": 4, "k": 4, "n": 4, "grid": (2, 1, 1)},
    sim.matmul_lower_bound: {"m": 4, "k": 4, "n": 4, "ranks": 2},
    sim.matmul_table: {"m": 4, "k": 4, "n": 4, "ranks": 2},
    sim.best_grid: {"m": 4, "k": 4, "n": 4, "ranks": 2},
    sim.mesh_step: {
        "axes": {"dp": 2, "pp": 2, "tp": 1}, "machine": MACHINE, "layers": 2, "hidden": 8,
        "vocabulary": 16, "sequence": 8, "batch": 8, "microbatches": 2,
    },
    sim.plans: {
        "shape": sim.TransformerShape(**SHAPE), "machine": MACHINE, "devices": 4, "batch": 8,
    },
    sim.strategy: {
        "name": "gossip", "layers": [sim.Layer("one", 1.0, 1.0, 4)], "batches": 2,
        "machine": MACHINE,
    },
    sim.scaling_curves: {
        "compute": 1.0, "nbytes": 64, "alpha": 1e-5, "beta": 1e-9, "buckets": 2,
    },
    elements_sent: {"transfers": [], "ranks": 2},
    sim.data_parallel_seconds: {
        "ranks": 4, "compute": 1.0, "nbytes": 64, "alpha": 1e-5, "beta": 1e-9, "buckets": 2,
    },
}  # fmt: skip

# Where a count may be 0, and where an amount need not be whole.
ZERO = {
    (datasets.batches, "steps"), (models.train, "steps"), (update_rules.descend, "steps"),
    (accountant.epsilon, "steps"), (privacy.poisson, "clients"), (sim.collective, "nbytes"),
}  # fmt: skip
AMOUNTS = {
    metrics.bus_bandwidth, metrics.algorithm_bandwidth, sim.collective_seconds,
    sim.data_parallel_seconds, sim.scaling_curves, Link.seconds,
}  # fmt: skip

# What takes ranks, a Trace or another's sizes: refused where those are tested.
ELSEWHERE = {
    "DDP", "Layer", "Topology", "Wait", "average", "average_gradients", "check", "check_topology",
    "data_parallel", "launch", "measure_link", "needs", "train", "trials",
}  # fmt: skip


def public() -> Iterator[tuple[str, Callable[..., Any], list[str]]]:
    """What the packages offer that takes a count."""
    for package in PACKAGES:
        module = importlib.import_module(f"dlviz.{package}")
        for name in getattr(module, "__all__", [n for n in vars(module) if n[0] != "_"]):
            offered = getattr(module, name)
            if not callable(offered) or not offered.__module__.startswith("dlviz."):
                continue
            if inspect.isclass(offered) and issubclass(offered, BaseException):
                continue
            taken = inspect.signature(offered).parameters.values()
            kinds = "int", "float", "int | None", "float | None"
            counts = [p.name for p in taken if p.name in COUNTS and p.annotation in kinds]
            if counts:
                yield name, offered, counts


def test_every_public_function_that_takes_a_count_is_tried_here_or_named():
    for name, offered, counts in public():
        called = CALLS.get(offered, {})
        assert called or name in ELSEWHERE, f"{offered.__module__}.{name} takes {counts}"


TRIED = [
    (function, name, value)
    for function, call in CALLS.items()
    for name in sorted(call.keys() & COUNTS)
    if isinstance(call[name], int)
    for value in (0, -1, 1.5, True, math.nan)
    if not (value == 0 and ((function, name) in ZERO or name == "nbytes"))
    if not (value == 1.5 and name == "nbytes" and function in AMOUNTS)
]


@pytest.mark.parametrize(
    ("function", "name", "value"), TRIED, ids=[f"{f.__qualname__}-{n}-{v}" for f, n, v in TRIED]
)
def test_what_is_no_count_is_refused_in_one_sentence(function, name, value):
    with pytest.raises(ValueError) as error:
        function(**CALLS[function] | {name: value})
    said = str(error.value)
    assert name in said and repr(value) in said and said.endswith(".") and "\n" not in said


@pytest.mark.parametrize("function", CALLS, ids=lambda function: function.__qualname__)
def test_the_same_call_without_nonsense_is_taken(function):
    function(**CALLS[function])


def on_a_rank(comm):
    """What the strategies say of counts that are none."""
    net, batches = nn.Linear(2, 2), [DATA]
    schedule = schedules.make("gpipe", 1, 2)
    mesh = {"dp": 1, "pp": 1, "tp": 1, "microbatches": 1, "loss": nn.functional.cross_entropy}
    calls = {
        "every": lambda n: local_sgd.train(comm, net, batches, every=n),
        "steps": lambda n: pipeline.train(
            comm, [net], schedule, *DATA, nn.functional.cross_entropy, steps=n
        ),
        "repeats": lambda n: collectives.trials(comm, "ring", 8, n),
        "times": lambda n: hogwild.increments(comm, n),
        "microbatches": lambda n: hybrid.train(comm, [net], batches, **mesh | {"microbatches": n}),
        "dp": lambda n: hybrid.train(comm, [net], batches, **mesh | {"dp": n}),
        "bucket_bytes": lambda n: data.train(comm, net, batches, bucket_bytes=n),
    }
    said = {}
    for name, call in calls.items():
        for value in (-1, math.nan) if name in ("times", "bucket_bytes") else (0, 1.5, True):
            with pytest.raises(ValueError) as error:
                call(value)
            said[name, value] = str(error.value)
    return said


def test_strategies_refuse_them_before_any_work():
    for (name, value), said in dlviz.launch(on_a_rank, 1).results[0].items():
        assert f"{name}={value}" in said and said.endswith(".") and "\n" not in said
