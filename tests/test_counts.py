"""No public function takes a count of what cannot be counted: 0 ranks, -1 workers, 1.5 rounds."""

from __future__ import annotations

import importlib
import inspect
import math
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from explorers import EXPLORERS
from torch import nn

import dlviz
from dlviz import collectives, datasets, metrics, models, schedules, sim, viz, widgets
from dlviz.analysis import contributions, descent
from dlviz.cluster import launch, measure_link
from dlviz.federated import accountant, attacks, inversion, partition, privacy, robust, sizes
from dlviz.federated.local import LocalTraining
from dlviz.federated.masked_rounds import Secure
from dlviz.federated.round_record import Round
from dlviz.federated.secure import shares
from dlviz.machine import Link, Topology, classroom
from dlviz.models.placer import learn
from dlviz.models.train import largest_curvature
from dlviz.parallel import data, hybrid, pipeline, tensor, update_rules, zero
from dlviz.parallel.averaging import easgd, gossip, local_sgd
from dlviz.parallel.server import hogwild
from dlviz.patterns import elements_sent

PACKAGES = (
    "cluster", "collectives", "datasets", "federated", "federated.partition", "federated.privacy",
    "federated.sizes", "federated.accountant", "federated.inversion", "machine", "metrics",
    "models", "models.placer",
    "parallel", "parallel.data", "parallel.averaging.easgd", "parallel.averaging.gossip",
    "parallel.averaging.local_sgd", "parallel.hybrid", "parallel.pipeline",
    "parallel.update_rules", "patterns", "schedules",
    "sim", "trace", "analysis.contributions", "analysis.descent", "federated.attacks",
    "federated.robust", "federated.secure", "parallel.server.hogwild", "parallel.tensor",
    "parallel.zero", "viz", "widgets",
)  # fmt: skip
COUNTS = {
    "ranks", "workers", "clients", "rounds", "microbatches", "steps", "nbytes", "stages", "chunks",
    "devices", "batch", "batches", "epochs", "layers", "heads", "hidden", "vocabulary", "sequence",
    "nodes", "ranks_per_node", "radix", "tensor", "itemsize", "servers", "backups", "every",
    "times", "repeats", "buckets", "bucket_bytes", "examples", "width", "window", "classes",
    "per_client", "starts", "dp", "pp", "tp", "inputs", "outputs", "kv_heads", "size", "count",
    "m", "k", "n", "bits", "threshold", "over", "max_spans", "max_frames", "attackers", "inner",
    "widest", "node", "samples", "rows", "columns",
}  # fmt: skip

LINK, MACHINE = Link(1e-5, 1e9), classroom(4)
LABELS = torch.arange(40) % 4
DRAW = torch.Generator().manual_seed(0)
SHAPE = {"layers": 2, "hidden": 8, "heads": 2, "vocabulary": 16, "sequence": 8}
NET = nn.Linear(2, 2)
DATA = torch.ones(6, 2), torch.zeros(6, dtype=torch.int64)

TRAINED = sim.strategy("gossip", [sim.Layer("one", 1.0, 1.0, 4)], batches=2, machine=MACHINE)
RECORDED = Path(__file__).parents[1] / "labs" / "recorded" / "04_consistency" / "sweep.json"
CURVES = {"one": (TRAINED, [1.0, 0.5])}
RING = sim.collective("ring", 4, 64, MACHINE)
ROUND = Round(0, [0], [0], [], [], {}, [], [], 8, 1.0, "", 1.0, False)


def on_time(comm):
    """What takes no time."""


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
    datasets.dealt_by_label: {
        "images": DATA[0], "labels": DATA[1], "labels_of": [[0]], "batch": 2, "steps": 2,
    },
    datasets.joined: {"batches": [DATA, DATA], "count": 2},
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
    zero.shard: {"length": 9, "ranks": 2},
    pipeline.split: {"model": nn.Sequential(NET, NET), "stages": 2},
    models.step_cost: {"model": NET, "batch": DATA, "repeats": 1},
    models.gradient_noise: {"model": NET, "data": DATA, "batch": 2, "draws": 2},
    models.steps_to_error: {
        "model": NET, "data": DATA, "test": DATA, "error": 0.5, "lr": 0.1, "batch": 2, "most": 2,
        "over": 1,
    },
    update_rules.race: {
        "rules": {"sgd": update_rules.make("sgd", 0.1)}, "surface": lambda x, y: x * x + y * y,
        "starts": [(1.0, 1.0)], "rates": [0.1], "steps": 1,
    },
    update_rules.descend: {
        "rule": update_rules.make("sgd", 0.1), "surface": lambda x, y: x * x + y * y,
        "start": (1.0, 1.0), "steps": 2,
    },
    schedules.make: {"name": "interleaved", "ranks": 2, "microbatches": 4, "chunks": 2},
    sim.activation_bytes: {
        "layers": 2, "hidden": 8, "heads": 2, "sequence": 8, "batch": 2, "tensor": 2,
    },
    sim.simulate: {"schedule": "interleaved", "ranks": 4, "microbatches": 8, "chunks": 2},
    sim.collective: {"algorithm": "ring", "ranks": 4, "nbytes": 64, "machine": MACHINE},
    sim.collective_seconds: {
        "algorithm": "ring", "ranks": 4, "nbytes": 64, "alpha": 1e-5, "beta": 1e-9,
    },
    sim.code_bytes: {"name": "fp16", "n": 8},
    sim.compressed_seconds: {
        "how": "all_gather", "ranks": 4, "nbytes": 64, "alpha": 1e-5, "beta": 1e-9,
    },
    sim.expected_union: {"length": 8, "density": 0.5, "ranks": 4},
    sim.saved_activations: {"sequence": 8, "batch": 2, "hidden": 8, "heads": 2, "ranks": 2},
    sim.layer_bytes: {
        "form": "reduce_output", "batch": 4, "inputs": 4, "outputs": 4, "ranks": 2, "itemsize": 4,
    },
    sim.factor_bytes: {"samples": 4, "rows": 4, "columns": 4, "ranks": 2},
    sim.factors_win_below: {"rows": 4, "columns": 4, "ranks": 2},
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
    sim.mlp_layers: {"widths": (4, 2), "batch": 2, "flops": 1e9},
    sim.zero_bytes: {"parameters": 64, "ranks": 4, "stage": 2},
    sim.largest_model: {"memory": 64, "ranks": 4, "stage": 2},
    sim.deepspeed_bytes: {"parameters": 64, "ranks": 4, "stage": 3},
    sim.zero_traffic: {"stage": 2, "microbatches": 4},
    sim.recompute_peak: {"layers": 4, "segments": 2},
    sim.best_segments: {"layers": 4},
    sim.halo_rows: {"rows": 8, "ranks": 2, "kernel": 3},
    sim.halo_cells: {"height": 8, "width": 8, "grid": (2, 2), "kernel": 3},
    sim.channel_filter_words: {
        "samples": 1, "channels": 1, "filters": 1, "height": 4, "width": 4, "p_f": 2, "p_c": 2,
    },
    sim.one_weird_trick: {"batch": 4, "activations": 8, "parameters": 64, "ranks": 4},
    sim.weird_trick_wins_below: {"activations": 8, "parameters": 64, "ranks": 4},
    sim.LayerShape: {"samples": 1, "channels": 1, "filters": 1, "height": 4, "width": 4},
    sim.convolution_cuts: {"ranks": 4},
    sim.net_layers: {"net": "alexnet", "samples": 2},
    sim.cut_seconds: {"candidates": [{"N": 2}], "machine": classroom(2), "samples": 2,
                      "channels": [4], "sizes": [8]},
    sim.Devices: {"count": 4},
    sim.workspace_bytes: {
        "method": "im2col", "batch": 4, "channels": 1, "filters": 1, "kernel": 3, "height": 4,
        "width": 4,
    },
    sim.best_cut: {"costs": {("fft", 1): (1.0, 1)}, "batch": 2, "limit": 1},
    elements_sent: {"transfers": [], "ranks": 2},
    sim.data_parallel_seconds: {
        "ranks": 4, "compute": 1.0, "nbytes": 64, "alpha": 1e-5, "beta": 1e-9, "buckets": 2,
    },
}  # fmt: skip

CALLS |= {
    attacks.flip_labels: {"labels": LABELS, "classes": 4},
    **dict.fromkeys(
        (robust.trimmed_mean, robust.krum, robust.multi_krum, robust.nearest),
        {"updates": torch.eye(5), "weights": torch.ones(5), "attackers": 1},
    ),
    robust.rules: {"attackers": 1},
    shares.share: {"secret": 5, "n": 3, "k": 2},
    schedules.needs: {"action": schedules.Action(0, "F", 0), "stages": 2},
    gossip.check_topology: {"ranks": 4, "topology": "ring"},
    launch: {"worker": on_time, "ranks": 1},
    measure_link: {"repeats": 1},
    sim.data_parallel: {
        "layers": [sim.Layer("one", 1.0, 1.0, 4)], "machine": MACHINE, "bucket_bytes": 8,
    },
    learn: {
        "graph": sim.Graph([1], [()], [1]), "devices": sim.Devices(1), "samples": 2, "batch": 2,
    },
    contributions.decode: {"array": np.zeros(4), "ranks": 4},
    contributions.origins: {"array": np.zeros(4), "ranks": 4},
    contributions.plain: {"array": np.zeros(4), "ranks": 4},
    descent.running_mean: {"values": np.ones(4), "over": 2},
    descent.to_target: {
        "trace": TRAINED, "losses": [1.0, 0.5], "target": 0.8, "examples": 8, "over": 1,
        "clock": "device",
    },
    viz.spectrum_table: {
        "curves": CURVES, "target": 0.8, "examples": 8, "over": 1, "clock": "device",
    },
    viz.compared_table: {"path": RECORDED, "target": 1.0, "over": 2},
    viz.spectrum: {
        "table": viz.spectrum_table(CURVES, target=0.8, examples=8, over=1, clock="device"),
        "target": 0.8, "over": 1,
    },
    viz.losses: {"curves": CURVES, "over": 1, "clock": "device"},
    viz.participation: {"rounds": [ROUND], "clients": 2},
    viz.costs: {"nbytes": [8, 16], "seconds": {"ring": [1.0, 2.0]}, "ranks": 4},
    viz.cost_map: {"price": lambda *shape: float(sum(shape[1:])), "widest": 4},
    viz.timeline: {"trace": TRAINED, "max_spans": 3},
    viz.messages: {"trace": RING, "max_frames": 2},
    widgets.Timeline: {"trace": TRAINED, "max_spans": 3},
    widgets.ScheduleExplorer: {
        "schedule": "interleaved", "ranks": 2, "microbatches": 4, "chunks": 2,
    },
}  # fmt: skip
for name, explorer in EXPLORERS.items():
    if (own := getattr(widgets, name)) not in CALLS:
        CALLS[own] = {each: getattr(explorer, each) for each in COUNTS & {*own.names}}

# Where a count may be 0, and where an amount need not be whole.
ZERO = {
    (widgets.ConsistencyExplorer, "backups"),
    (datasets.batches, "steps"), (models.train, "steps"), (sim.factor_bytes, "samples"),
    (update_rules.descend, "steps"),
    (update_rules.race, "steps"),
    (accountant.epsilon, "steps"), (privacy.poisson, "clients"), (sim.collective, "nbytes"),
    (robust.trimmed_mean, "attackers"), (robust.krum, "attackers"),
    (robust.multi_krum, "attackers"), (robust.nearest, "attackers"),
    (robust.rules, "attackers"), (descent.to_target, "examples"),
    (viz.spectrum_table, "examples"),
}  # fmt: skip
AMOUNTS = {
    metrics.bus_bandwidth, metrics.algorithm_bandwidth, sim.collective_seconds,
    sim.data_parallel_seconds, sim.scaling_curves, Link.seconds, sim.data_parallel,
    descent.to_target, viz.spectrum_table, widgets.ScalingExplorer, sim.compressed_seconds,
}  # fmt: skip

# What takes ranks, a Trace or another's sizes: refused where those are tested.
ELSEWHERE = {
    "cluster.measure.link.link_cost", "cluster.measure.network.NetworkCost",
    "cluster.stuck.waits.Wait", "collectives.trials", "federated.partition.check",
    "federated.rounds.train", "federated.secure.aggregate.secure_sum",
    "federated.secure.observed.observed_sum", "machine.topology.Topology",
    "parallel.data.train.train", "parallel.data.ddp.DDP", "parallel.server.hogwild.increments",
    "parallel.hybrid.trainer.train", "parallel.averaging.local_sgd.average",
    "parallel.averaging.local_sgd.train", "parallel.data.naive.average_gradients",
    "parallel.pipeline.trainer.train", "parallel.zero.train.train",
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
            if typing.is_typeddict(offered):
                continue
            taken = inspect.signature(offered).parameters.values()
            kinds = "int", "float", "int | None", "float | None"
            counts = [p.name for p in taken if p.name in COUNTS and p.annotation in kinds]
            if counts:
                yield f"{offered.__module__}.{offered.__qualname__}"[6:], offered, counts


def test_every_public_function_that_takes_a_count_is_tried_here_or_named():
    offers = {name: (offered, counts) for name, offered, counts in public()}
    tried = {name: offered in {**CALLS, **LAYERS} for name, (offered, _) in offers.items()}
    found = {name for name in offers if not tried[name]}
    assert found == ELSEWHERE, {name: offers[name][1] for name in found if name in offers}


def refused(function, name, value, call=None):
    """Whether `function` says in one sentence that this is no count, or what it does instead."""
    try:
        function(**(call or CALLS[function]) | {name: value})
    except ValueError as error:
        said = str(error)
        told = name in said and repr(value) in said and said.endswith(".") and "\n" not in said
        return told or said
    except Exception as error:
        return repr(error)
    return "is taken"


def tried(function):
    """The counts of its call, each with what is none."""
    for name in sorted(CALLS[function].keys() & COUNTS):
        if isinstance(CALLS[function][name], int):
            zero = (function, name) in ZERO or name in ("nbytes", "step")
            values = (-1, True, math.nan) if zero else (0, -1, True, math.nan)
            yield from ((name, value) for value in values)
            if name not in ("nbytes", "bucket_bytes", "examples") or function not in AMOUNTS:
                yield name, 1.5


@pytest.mark.parametrize("function", CALLS, ids=lambda function: function.__qualname__)
def test_what_is_no_count_is_refused_in_one_sentence(function):
    found = {each: refused(function, *each) for each in tried(function)}
    assert {each: said for each, said in found.items() if said is not True} == {}


@pytest.mark.parametrize("function", CALLS, ids=lambda function: function.__qualname__)
def test_the_same_call_without_nonsense_is_taken(function):
    function(**CALLS[function])


# What a rank makes a layer of.
LAYERS: dict[Callable[..., Any], dict[str, int]] = {
    tensor.ColumnParallelLinear: {"inputs": 2, "outputs": 2},
    tensor.RowParallelLinear: {"inputs": 2, "outputs": 2},
    tensor.NaiveMLP: {"hidden": 2, "inner": 2},
    tensor.ParallelMLP: {"hidden": 2, "inner": 2},
    tensor.ParallelAttention: {"hidden": 4, "heads": 2, "kv_heads": 2},
    tensor.VocabularyParallelEmbedding: {"vocabulary": 2, "hidden": 2},
    tensor.ParallelTransformer: SHAPE | {"kv_heads": 2},
}


def layers_on_a_rank(comm):
    """What they say of counts that are none."""
    return {
        (layer.__qualname__, name, value): refused(layer, name, value, {"comm": comm} | sizes)
        for layer, sizes in LAYERS.items()
        for name in sizes
        for value in (0, -1, 1.5, True, math.nan)
    }


def test_layers_that_are_cut_refuse_them():
    found = dlviz.launch(layers_on_a_rank, 1).results[0]
    assert {each: said for each, said in found.items() if said is not True} == {}


@pytest.mark.parametrize("width", [0, -1, 1.5, True, math.nan])
def test_a_width_that_is_none_is_refused(width):
    with pytest.raises(ValueError, match=f"width={width!r} has to be a whole number, 1 or more"):
        models.MLP((4, width))


@pytest.mark.parametrize("step", [-1, 1.5, True, math.nan])
def test_a_step_that_is_none_is_refused(step):
    """-1 is what a span of no step bears."""
    for draw in (viz.timeline, viz.messages, widgets.Timeline, widgets.MessagePlayer):
        with pytest.raises(ValueError, match=f"step={step!r} has to be a whole number, 0 or more"):
            draw(RING, step=step)


AMOUNTS_OF_A_RANK = "times", "bucket_bytes", "examples"  # 0 or 1.5 may do


def _former(comm, net, schedule, n):
    with pytest.warns(DeprecationWarning, match="is now"):
        pipeline.train(comm, [net], schedule, *DATA, nn.functional.cross_entropy, steps=n)


def on_a_rank(comm):
    """What the strategies say of counts that are none."""
    net, batches = nn.Linear(2, 2), [DATA]
    schedule = schedules.make("gpipe", 1, 2)
    mesh = {"dp": 1, "pp": 1, "tp": 1, "microbatches": 1, "loss": nn.functional.cross_entropy}
    calls = {
        "every": lambda n: local_sgd.train(comm, net, batches, every=n),
        "steps": lambda n: _former(comm, net, schedule, n),
        "repeats": lambda n: collectives.trials(comm, "ring", 8, n),
        "times": lambda n: hogwild.increments(comm, n),
        "microbatches": lambda n: hybrid.train(comm, [net], batches, **mesh | {"microbatches": n}),
        "dp": lambda n: hybrid.train(comm, [net], batches, **mesh | {"dp": n}),
        "bucket_bytes": lambda n: data.train(comm, net, batches, bucket_bytes=n),
        "examples": lambda n: data.average_gradients(comm, net, n),
    }
    said = {}
    for name, call in calls.items():
        for value in (-1, math.nan) if name in AMOUNTS_OF_A_RANK else (0, 1.5, True):
            with pytest.raises(ValueError) as error:
                call(value)
            said[name, value] = str(error.value)
    return said


def test_strategies_refuse_them_before_any_work():
    for (name, value), said in dlviz.launch(on_a_rank, 1).results[0].items():
        assert f"{name}={value}" in said and said.endswith(".") and "\n" not in said
