"""Draws the figures of the labs for slides, each as PDF and as SVG, from runs and simulations made
here: `make figures`, or `python docs/teaching/figures.py FOLDER [NAME...]`.

A name begins with the number of its lab. Each figure's docstring is the sentence to say over it.
"""

from __future__ import annotations

import copy
import math
import sys
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pandas as pd
import torch

import dlviz
from dlviz.analysis.by_axis import lanes
from dlviz.analysis.compared import at_lowest_loss
from dlviz.analysis.recorded import Recorded
from dlviz.collectives import trials
from dlviz.federated import epsilon, inversion, last_third, partition, received
from dlviz.federated import train as federated
from dlviz.federated.compared import Sweep
from dlviz.machine import Device, Link, Machine, Topology, classroom
from dlviz.machine.hardware import DEVICES, LINKS
from dlviz.metrics import step_seconds
from dlviz.models import Transformer
from dlviz.parallel import hybrid, summa, update_rules
from dlviz.parallel import model as distributed
from dlviz.parallel.averaging.easgd.stability import spectral_radius
from dlviz.parallel.tensor import NaiveMLP, ParallelMLP
from dlviz.patterns import TITLES as ALGORITHMS
from dlviz.schedules import TITLES as SCHEDULES
from dlviz.schedules import make
from dlviz.sim import (
    TransformerShape,
    cheapest_path,
    collective_seconds,
    cut_name,
    layer_bytes,
    net_costs,
    net_layers,
    plans,
    saved_activations,
    scaling_curves,
    zero_bytes,
)
from dlviz.sim.placement import BRANCHES, Devices, play, search
from dlviz.viz import print as paper

ALPHA, BETA = 2e-3, 1e-7  # lab 02's slow network: 2 ms a message, 0.1 ms a KB
SLOW = Link(ALPHA, 1 / BETA)
RECORDED = Path(__file__).parents[2] / "labs" / "recorded"
FIGURES: dict[str, Callable[[], Any]] = {}


def figure(draw: Callable[[], Any]) -> Callable[[], Any]:
    """Register the figure by its name without "lab_"."""
    FIGURES[draw.__name__.removeprefix("lab_")] = draw
    return draw


# -- lab 00 ----------------------------------------------------------------------------------------
@cache
def watched(algorithm: str, cells: int = 12) -> dlviz.Trace:
    starts = [dlviz.viz.encode(rank, 4, cells) for rank in range(4)]
    return dlviz.launch(_all_reduce, 4, args=(algorithm, starts)).trace


def _all_reduce(comm: dlviz.Comm, algorithm: str, starts: list[list[float]]) -> None:
    tensor = torch.tensor(starts[comm.rank], dtype=torch.float64)
    comm.watch(tensor, "tensor")
    dlviz.collectives.all_reduce(comm, tensor, algorithm)


@cache
def digits() -> tuple[Any, list[Any]]:
    images, labels = dlviz.datasets.digits("train")
    batches = list(dlviz.datasets.batches(images, labels, batch=64, steps=60))
    return dlviz.models.MLP((64, 128, 128, 10)), batches


@cache
def trained(method: str, paced: bool) -> dlviz.cluster.Run:
    """Data parallel on four ranks, by the wall clock or on the classroom machine."""
    model, batches = digits()
    return dlviz.launch(
        dlviz.parallel.data.train,
        4,
        machine=classroom(4, step=0.01, link=Link(1e-3, 1e9)) if paced else None,
        args=(model, batches[: 6 if paced else 60]),
        kwargs={"lr": 0.3, "bucket_bytes": 40_000, "method": method},
    )


@figure
def lab_00_ring_messages() -> Any:
    """Three rounds add, three rounds copy: then every rank has every sum."""
    return paper.messages(watched("ring"), title="Ring all-reduce on four ranks")


@figure
def lab_00_breakdown() -> Any:
    """A small network on few cores: nearly all of the time goes to communication and waiting."""
    trace = trained("ddp", False).trace.only(step=range(60))
    return dlviz.viz.breakdown(trace, title="Where the time of 60 steps went")


@figure
def lab_00_losses() -> Any:
    """Four ranks learn what one process with the whole batch learns."""
    one = dlviz.models.MLP((64, 128, 128, 10))
    alone = dlviz.models.train(one, dlviz.datasets.digits("train"), steps=60, lr=0.3, batch=64)
    curves = {"four ranks": trained("ddp", False).results[0]["losses"], "one process": alone}
    return dlviz.viz.curve(curves, title="Loss on the digits")


@figure
def lab_00_naive_step() -> Any:
    """The naive method: after the last backward nothing is left but communication."""
    return paper.timeline(trained("naive", True).trace, step=3, messages=False, title="Naive")


@figure
def lab_00_ddp_step() -> Any:
    """DDP: two buckets travel while backward goes on, and a rank waits only for the third."""
    return paper.timeline(trained("ddp", True).trace, step=3, messages=False, title="DDP")


@figure
def lab_00_deadlock() -> Any:
    """Every rank receives first, so nobody ever sends: the run ends and says who waits."""
    try:
        dlviz.launch(_receive_first, 4, timeout=600)
    except dlviz.DeadlockError as error:
        return paper.timeline(error.trace, title="Nobody sends")
    raise AssertionError("the ranks did not hang")


def _receive_first(comm: dlviz.Comm) -> None:
    token = torch.zeros(1)
    comm.recv(token, (comm.rank - 1) % comm.size)
    comm.send(token, (comm.rank + 1) % comm.size)


# -- lab 01 ----------------------------------------------------------------------------------------
def distances(name: str, surface: Any, weights: int, steps: int, **options: Any) -> list[float]:
    """How far from the minimum, 0, an update rule is after each step from (1, ...)."""
    rule = update_rules.make(name, **options)
    return update_rules.descend(rule, surface, weights * [1.0], steps).norm(dim=1).tolist()


@figure
def lab_01_storage() -> Any:
    """All that a step makes, layer by layer, and the part of it that autograd saves."""
    model = dlviz.models.MLP((64, 128, 128, 10))
    return dlviz.viz.storage(dlviz.models.layer_storage(model, torch.rand(64, 64)))


@figure
def lab_01_ravine() -> Any:
    """Momentum turns the ratio of the curvatures into its root."""
    options = {"sgd": {"lr": 2 / 101}, "momentum": {"lr": 4 / 121, "momentum": (9 / 11) ** 2}}
    far = {
        name: distances(name, lambda x, y: (x**2 + 100 * y**2) / 2, 2, 700, **given)
        for name, given in options.items()
    }
    return dlviz.viz.curve(far, log=True, title="Down a ravine", ylabel="distance")


@figure
def lab_01_nesterov_as_printed() -> Any:
    """The printed form looks back instead of ahead: at a usual rate it blows up."""
    forms = {"torch": False, "as printed": True}
    far = {
        n: distances("nesterov", lambda w: w**2 / 2, 1, 100, lr=0.1, printed=form)
        for n, form in forms.items()
    }
    return dlviz.viz.curve(far, log=True, title="Nesterov, η = 0.1", ylabel="distance")


@figure
def lab_01_batches() -> Any:
    """With the rate scaled steps halve up to a wall; at its best rate each batch needs fewer."""
    sweep = pd.read_csv(RECORDED / "01_training_step" / "steps.csv", comment="#")
    runs = sweep.groupby(["batch", "rate"]).steps.apply(list)
    middle = sweep.fillna(math.inf).groupby(["batch", "rate"]).steps.median().unstack()
    rates = {
        "rate 0.1": lambda batch: 0.1,
        "rate 0.1·B/32": lambda batch: 0.1 * batch / 32,
        "best of eight rates": lambda batch: middle.loc[batch].idxmin(),
    }
    lines = {name: {b: runs[b, rate(b)] for b in middle.index} for name, rate in rates.items()}
    return dlviz.viz.spread(lines, title="Steps to 5 % error", missing="never arrived")


# -- lab 02 ----------------------------------------------------------------------------------------
@figure
def lab_02_butterfly_messages() -> Any:
    """Two rounds of whole tensors: after the second every rank has the sum."""
    return paper.messages(watched("butterfly", 8), title="Butterfly on four ranks")


@figure
def lab_02_tree_messages() -> Any:
    """Up in pairs, and down again: half of the ranks are idle in each round."""
    return paper.messages(watched("tree", 8), title="Tree on four ranks", columns=2)


@figure
def lab_02_halving_doubling_messages() -> Any:
    """Half of the tensor, then a quarter, and all the steps back."""
    return paper.messages(watched("halving_doubling", 8), title="Halving-doubling", columns=2)


@cache
def priced() -> tuple[np.ndarray, dict[str, list[float]]]:
    sizes = np.geomspace(1e2, 1e7, 201)
    names = [name for name in ALGORITHMS if name != "hierarchical"]  # one link prices these
    return sizes, {n: [collective_seconds(n, 8, s, ALPHA, BETA) for s in sizes] for n in names}


@cache
def measured(algorithm: str, nbytes: int, network: str) -> dlviz.Trace:
    topology = {
        "switch": lambda: Topology.switch(8, SLOW),
        "ring": lambda: Topology.ring(8, SLOW),
        "racks": lambda: Topology.racks(2, 4, SLOW, Link(ALPHA, 0.1 / BETA)),
    }[network]()
    machine = Machine(classroom(8).device, topology)
    return dlviz.launch(trials, 8, machine=machine, args=(algorithm, nbytes)).trace


@cache
def points() -> dict[str, list[tuple[int, float]]]:
    sizes = 10_000, 1_000_000
    return {
        name: [(n, float(step_seconds(measured(name, n, "switch"), "wall")[0])) for n in sizes]
        for name in ("ring", "butterfly", "halving_doubling")
    }


@figure
def lab_02_costs() -> Any:
    """Short tensors: the fewest rounds win. Long ones: the fewest bytes."""
    return dlviz.viz.costs(*priced(), measured=points(), title="Eight ranks on a switch")


@figure
def lab_02_bus_bandwidth() -> Any:
    """Halving-doubling and the ring come near to what the link can do, 10 MB/s."""
    return dlviz.viz.costs(*priced(), show="bus", ranks=8, link=1 / BETA, title="Bus bandwidth")


@figure
def lab_02_parameter_server() -> Any:
    """All tensors queue at one port."""
    machine = Machine(classroom(4).device, Topology.switch(4, SLOW))
    arguments = ("parameter_server", 100_000)
    trace = dlviz.launch(trials, 4, machine=machine, args=arguments).trace
    return paper.timeline(trace, step=0, title="Four ranks and a parameter server")


@figure
def lab_02_racks_ring() -> Any:
    """The ring sends 1.75 tensors over the slow link between the racks, in each direction."""
    return dlviz.viz.traffic(measured("ring", 100_000, "racks"), title="Ring on two racks")


@figure
def lab_02_racks_hierarchical() -> Any:
    """Added up inside the racks first, one tensor crosses in each direction."""
    trace = measured("hierarchical", 100_000, "racks")
    return dlviz.viz.traffic(trace, title="Hierarchical on two racks")


# -- lab 03 ----------------------------------------------------------------------------------------
@cache
def step_of_ddp(bucket_bytes: float, factors: tuple[float, ...] | None = None) -> dlviz.Trace:
    """Lab 03's last step on four ranks, paced: one rank computes 378.8 ms for a batch."""
    device = Device("slow", flops=23.443e6, memory=1e9, memory_bandwidth=1e10)
    machine = Machine(device, Topology.switch(4, Link(1e-4, 5e6)), step=None, factors=factors)
    model, batches = digits()
    options = {"bucket_bytes": bucket_bytes}
    arguments = model, batches[:3]
    train = dlviz.parallel.STRATEGIES["ddp"]
    return dlviz.launch(train, 4, machine=machine, args=arguments, kwargs=options).trace


@figure
def lab_03_one_bucket() -> Any:
    """Four ranks, one all-reduce after the backward: a third of the time that they compute."""
    return paper.timeline(step_of_ddp(10**6), step=2, title="One bucket, 4 ranks")


@figure
def lab_03_three_buckets() -> Any:
    """Two buckets travel while the backward ends: a shorter step where bytes take the time."""
    return paper.timeline(
        step_of_ddp(40_000), step=2, critical=True, title="Three buckets, 4 ranks"
    )


@figure
def lab_03_slow_rank() -> Any:
    """No bucket is complete before the slow rank has added its gradients."""
    trace = step_of_ddp(40_000, (1, 1, 2, 1))
    return paper.timeline(trace, step=2, critical=True, title="Three buckets, rank 2 twice as slow")


@figure
def lab_03_scaling() -> Any:
    """Each rank computes less, and each sends nearly 2|θ| still: so the speed-up has a limit."""
    curves = scaling_curves(0.3788, 104_488, 1e-4, 2e-7)
    return dlviz.viz.scaling({}, curves=curves, title="Where does the missing quarter go?")


# -- lab 04 ----------------------------------------------------------------------------------------
@cache
def sixteens(batches: int) -> list[Any]:
    images, labels = dlviz.datasets.digits("train")
    whole = len(labels) // 16 * 16
    return list(dlviz.datasets.batches(images[:whole], labels[:whole], batch=16, steps=batches))


@cache
def consistent(method: str, lr: float, slow: float = 3) -> dlviz.Trace:
    """Lab 04's run by a server, rank 4 `slow`."""
    device = Device("slow", flops=16 * 20_224 / 0.06, memory=1e9, memory_bandwidth=1e15)
    topology = Topology.switch(5, Link(0, math.inf))
    machine = Machine(device, topology, step=None, factors=(1, 1, 1, 1, slow))
    arguments = dlviz.models.MLP((64, 64, 10)), sixteens(84)
    train = dlviz.parallel.STRATEGIES[method]
    return dlviz.launch(train, 5, machine=machine, args=arguments, kwargs={"lr": lr}).trace


@figure
def lab_04_synchronous() -> Any:
    """Everybody waits for rank 4: three workers compute for a third of the time."""
    return paper.timeline(consistent("sync_server", 0.5), step=2, title="Synchronous server")


@figure
def lab_04_staleness() -> Any:
    """Three updates old on average, whoever is slow; only the shares differ."""
    runs = {"four alike": 1, "rank 4 slow": 3}
    traces = {name: consistent("async_server", 0.25, slow) for name, slow in runs.items()}
    return paper.staleness(traces, title="How old the gradients of each worker are")


@figure
def lab_04_stability() -> Any:
    """Four workers pull at one centre: the more they pull, the sooner it overshoots."""

    def radius(eta: float, alpha: float) -> float:
        return spectral_radius(4, eta, alpha, "synchronous")

    ranges = {"eta": (0.05, 1.95), "alpha": (0.0, 0.6)}
    return paper.stability(radius, None, **ranges, title="Four workers and their centre")


@figure
def lab_04_spectrum() -> Any:
    """Who waits loses examples per second, who does not needs more of them to the same loss."""
    sweep = RECORDED / "04_consistency" / "sweep.json"
    goal = {"target": 1.2, "over": 12}
    table = dlviz.viz.compared_table(sweep, **goal)
    return paper.spectrum(table, **goal, title="One worker always three times as slow")


# -- lab 05 ----------------------------------------------------------------------------------------
@figure
def lab_05_one_bit() -> Any:
    """What one bit loses in each step is all that is missing: carried over, it does no harm."""
    rows = Recorded.load(RECORDED / "05_compression" / "sweep.json").rows
    best = at_lowest_loss(rows)
    lines = {
        name: [row["losses"] for row in rows if (row["method"], row["lr"]) == (name, best[name].lr)]
        for name in ("dense", "one bit", "one bit, feedback")
    }
    every = range(20, 401, 20)
    return paper.curve(lines, x=every, title="Five seeds, each method at its best rate")


# -- lab 06 ----------------------------------------------------------------------------------------
@cache
def two_halves(side_by_side: bool) -> dlviz.Trace:
    """A step of lab 06's network in two parts on two ranks, paced: a layer's forward takes 40 ms, a
    message 20 ms."""
    layers = [torch.nn.Linear(128, 128), torch.nn.ReLU(), torch.nn.Linear(128, 128)]
    halves = [torch.nn.Sequential(*layers), torch.nn.Sequential(*copy.deepcopy(layers))]
    net = distributed.SideBySide(halves) if side_by_side else torch.nn.Sequential(*halves)
    device = Device("slow", flops=2 * 32 * 128 * 128 / 0.04, memory=1e9, memory_bandwidth=5e8)
    link = Link(0, 32 * 128 * 4 / 0.02)
    machine = Machine(device, Topology.switch(2, link), step=None)
    data = 3 * [(torch.rand(32, 128), torch.zeros(32, dtype=torch.int64))]
    run = dlviz.launch(distributed.train, 2, machine=machine, args=(net, data))
    return run.trace.only(step=1)


@figure
def lab_06_in_sequence() -> Any:
    """One rank computes while the other waits: two ranks save memory, and no time."""
    return paper.timeline(two_halves(False), title="Two halves in sequence")


@figure
def lab_06_side_by_side() -> Any:
    """Neither branch needs the other's output: two ranks compute at the same time."""
    return paper.timeline(two_halves(True), title="Two halves side by side")


@figure
def lab_06_cost_map() -> Any:
    """Many rows: cut the batch; wide outputs: cut columns of W; wide inputs: cut rows of W."""
    return paper.cost_map(partial(layer_bytes, ranks=4))


@cache
def mlp_on_ranks(naive: bool) -> dlviz.Trace:
    return dlviz.launch(_mlp, 4, args=(NaiveMLP if naive else ParallelMLP,)).trace


def _mlp(comm: dlviz.Comm, kind: type[torch.nn.Module]) -> None:
    mlp = kind(comm, 512, 2048)
    mlp(torch.ones(64, 512, requires_grad=True)).sum().backward()


@figure
def lab_06_matrices() -> Any:
    """Columns, then rows: nothing is sent between the two products."""
    return paper.matrices(mlp_on_ranks(False), title="An MLP cut by columns, then by rows")


@figure
def lab_06_naive_matrices() -> Any:
    """Columns twice: each product is gathered, the wide one as well."""
    return paper.matrices(mlp_on_ranks(True), title="An MLP cut by columns twice")


@figure
def lab_06_saved() -> Any:
    """Tensor parallelism leaves 10 of 34 whole on every rank; sequence parallelism cuts them."""
    ways = {"one rank": (1, False), "4 ranks": (4, False), "sequence parallel": (4, True)}
    kept = {n: saved_activations(64, 8, 64, 4, *way).values() for n, way in ways.items()}
    values = {"published": {name: sum(parts) / (64 * 8 * 64) for name, parts in kept.items()}}
    return paper.bars(values, title="What a layer keeps on a rank", ylabel="bytes / s·b·h")


def _square(comm: dlviz.Comm) -> None:
    x, w = (summa.block(torch.ones(512, 512), comm.rank, (2, 1, 2), which) for which in "xw")
    summa.multiply(comm, x, w, (2, 1, 2))


@figure
def lab_06_summa() -> Any:
    """Panels of X travel along rows of ranks, panels of W along columns; blocks of Y stay."""
    trace = dlviz.launch(_square, 4).trace
    return paper.matrices(trace, title="SUMMA on a grid of 2 × 2 ranks")


# -- lab 07 ----------------------------------------------------------------------------------------
@figure
def lab_07_path() -> Any:
    """ResNet-50, two images on eight ranks: rows first, then channels and filters."""
    machine = Machine(
        Device("chosen", 1e13, 32e9, 1e12), Topology.switch(8, Link(1e-5, 1e10)), step=None
    )
    cuts = [
        {"N": 2, "H": 4},
        {"N": 2, "C": 4},
        {"N": 2, "F": 4},
        {"C": 4, "F": 2},
        {"F": 4, "C": 2},
    ]
    layers = net_layers("resnet50", 2)
    found = net_costs([*layers.values()], cuts, machine)
    _, path = cheapest_path(found.seconds, found.switches)
    names = [cut_name(cut) for cut in cuts]
    title = "ResNet-50, two images, eight ranks: a cut for each layer"
    return dlviz.viz.layer_path(*found[:2], path, layers=[*layers], cuts=names, title=title)


# -- lab 08 ----------------------------------------------------------------------------------------
@figure
def lab_08_branches() -> Any:
    """Greedy's placement at c = 4, which promises 13 s: a port sends one value after the other."""
    devices = Devices(2, Link(4, math.inf))
    greedy = search(BRANCHES, devices, "greedy")
    trace = play(BRANCHES, greedy.placement, devices)
    return dlviz.viz.placement(trace, BRANCHES.parents, title="Promised 13 s, played in 16")


# -- labs 09 and 09b -------------------------------------------------------------------------------
@cache
def planned(name: str, ranks: int = 4, microbatches: int = 8) -> dlviz.Trace:
    schedule = make(name, ranks, microbatches)
    forward = 0.01 / schedule.chunks  # the stages of a rank share its 10 ms
    costs = dlviz.Costs(forward=forward, backward_input=forward, backward_weight=forward)
    return dlviz.simulate(schedule, costs)


@cache
def ran(name: str, microbatches: int = 8) -> dlviz.Trace:
    """Three steps of it on eight real ranks."""
    model = dlviz.models.MLP((64, *7 * [32], 10))
    stages = dlviz.parallel.pipeline.split(
        model, 8, [isinstance(x, torch.nn.Linear) for x in model]
    )
    images, labels = (part[:64] for part in dlviz.datasets.digits())
    how = {"schedule": name, "microbatches": microbatches}
    machine = classroom(8, step=0.01, link=Link(0, float("inf")))
    worker, given = dlviz.parallel.pipeline.train, (stages, [(images, labels)] * 3)
    return dlviz.launch(worker, 8, machine=machine, args=given, kwargs=how).trace


def schedule(name: str, critical: bool = False, **sizes: int) -> Any:
    trace = planned(name, **sizes)
    return paper.timeline(trace, messages=False, critical=critical, title=SCHEDULES[name])


@figure
def lab_09_naive() -> Any:
    """One microbatch at a time: one rank works, the others wait."""
    return schedule("naive", ranks=4, microbatches=2)


@figure
def lab_09_gpipe() -> Any:
    """The pipeline fills, turns round and drains: (p-1)(F+B) of idle time on each rank."""
    return schedule("gpipe", critical=True)


@figure
def lab_09_1f1b() -> Any:
    """The bubble is that of GPipe; what a rank stores is not."""
    return schedule("1f1b", critical=True)


@figure
def lab_09_interleaved() -> Any:
    """Two chunks on each rank: half of the bubble, more than twice the messages."""
    return schedule("interleaved")


@figure
def lab_09_bubble() -> Any:
    """(p-1)/m, simulated and measured: more microbatches, less bubble."""
    traces = [planned("gpipe", 8, m) for m in (1, 2, 4, 8, 16, 32, 64)]
    return paper.bubble({"GPipe": [*traces, ran("gpipe", 8), ran("gpipe", 16)]}, title="GPipe")


@figure
def lab_09_simulated_and_measured() -> Any:
    """Action by action: what the simulator says and what the ranks did."""
    return dlviz.viz.compare(planned("gpipe", 8, 8), ran("gpipe", 8))


@figure
def lab_09_memory_gpipe() -> Any:
    """Rank 0 stores the activations of all 16 microbatches."""
    return paper.memory(planned("gpipe", 4, 16), title="GPipe, 16 microbatches")


@figure
def lab_09_memory_1f1b() -> Any:
    """Rank 0 stores those of 4, however many there are."""
    return paper.memory(planned("1f1b", 4, 16), title="1F1B, 16 microbatches")


@figure
def lab_09b_pipedream() -> Any:
    """No flush, no bubble between steps: and weights that are up to p-1 updates old."""
    return schedule("pipedream", microbatches=16)


@figure
def lab_09b_zb_h1() -> Any:
    """W fills what was idle: a third of the bubble of 1F1B, in its memory."""
    return schedule("zb_h1")


@figure
def lab_09b_zb_h2() -> Any:
    """No rank is idle between its first action and its last; it stores 2p-1 microbatches."""
    return schedule("zb_h2")


@figure
def lab_09b_zbv() -> Any:
    """Two chunks on each rank, there and back in a V: no gap, and no rank fuller than 1F1B's."""
    return schedule("zbv")


@figure
def lab_09b_bubbles() -> Any:
    """Six schedules on four ranks."""
    names = ("gpipe", "1f1b", "interleaved", "zb_h1", "zb_h2", "zbv")
    traces = {SCHEDULES[n]: [planned(n, 4, m) for m in (4, 8, 16, 32)] for n in names}
    return paper.bubble(traces, title="Six schedules, four ranks")


# -- lab 10 ----------------------------------------------------------------------------------------
RACKS = Topology.racks(2, 4, Link(0, 20e6), Link(0, 2e6))
SWITCH = Topology.switch(8, Link(0, 20e6))


@cache
def on_mesh(dp: int, pp: int, tp: int, topology: Topology, *order: str) -> dlviz.Trace:
    """A step of the lab's Transformer on eight ranks."""
    device = Device("slow", flops=3e8, memory=1e9, memory_bandwidth=2e8)
    texts = (3 * torch.arange(65) + torch.arange(8 * dp)[:, None]) % 127 + 1  # (8 dp, 65)
    with torch.device("meta"):  # each rank draws its own part
        model = Transformer(4, 64, 4, 128, 64)
    work = model, [(texts[:, :-1], texts[:, 1:])]
    sizes = {"dp": dp, "pp": pp, "tp": tp, "microbatches": 4, "order": order}
    machine = Machine(device, topology, step=None)
    return dlviz.launch(hybrid.train, 8, machine=machine, args=work, kwargs=sizes).trace


def cube(*order: str) -> dlviz.Trace:
    """2 x 2 x 2 on two racks of four."""
    return on_mesh(2, 2, 2, RACKS, *order)


@figure
def lab_10_step() -> Any:
    """Sums of tp inside each action, one message of pp after it, gradients of dp at the end."""
    trace = lanes(cube("dp", "pp", "tp").only(step=0, rank=range(4)))
    return paper.timeline(trace, messages=False, title="2 x 2 x 2, by axis: the first replica")


@figure
def lab_10_data_pipeline() -> Any:
    """Replicas from top to bottom, two stages each: they communicate only at its end."""
    trace = lanes(on_mesh(4, 2, 1, SWITCH, "dp", "pp", "tp").only(step=0, rank=range(4)))
    title = "Data x pipeline, dp 4, pp 2: two replicas of four"
    return paper.timeline(trace, messages=False, title=title)


@figure
def lab_10_data_tensor() -> Any:
    """No bubble: the two ranks of a replica wait for each other in every layer instead."""
    trace = lanes(on_mesh(4, 1, 2, SWITCH, "dp", "pp", "tp").only(step=0, rank=range(4)))
    title = "Data x tensor, dp 4, tp 2: two replicas of four"
    return paper.timeline(trace, messages=False, title=title)


@figure
def lab_10_axis_bytes() -> Any:
    """The axis between the racks decides what the slow link carries."""
    orders = {"dp between racks": ("dp", "pp", "tp"), "tp between racks": ("tp", "pp", "dp")}
    return dlviz.viz.axis_bytes({name: cube(*order) for name, order in orders.items()})


@figure
def lab_10_memory() -> Any:
    """The first stage stores the activations of two microbatches, the last stage those of one."""
    return paper.memory(cube("dp", "pp", "tp"), title="Activations on eight ranks")


@figure
def lab_10_plans() -> Any:
    """8.3 billion parameters on 512 GPUs: what fits, and which plan is fastest."""
    nodes = Topology.racks(32, 16, LINKS["NVLink 2"].link, Link(14e-6, 100e9))
    machine = Machine(DEVICES["V100 SXM2 32GB"].device, nodes, step=None)
    shape = TransformerShape(72, 3072, 32, 51_200, 1024)
    return paper.plans(plans(shape, machine, 512, 512), title="8.3 billion parameters, 512 GPUs")


# -- lab 11 ----------------------------------------------------------------------------------------
@figure
def lab_11_stages() -> Any:
    """Sixteen bytes a parameter, on 64 ranks: each stage cuts one more of three parts."""
    parts = {"values": (2, 0, 0), "gradients": (0, 2, 0), "update rule": (0, 0, 12)}
    held = {
        f"stage {stage}": {
            name: zero_bytes(7.5e9, 64, stage, *each) for name, each in parts.items()
        }
        for stage in range(4)
    }
    title = "7.5 billion parameters in mixed precision, 64 ranks: bytes a rank"
    return dlviz.viz.memory_bars(held, xlabel="of ZeRO", title=title)


# -- labs 12 and 12b -------------------------------------------------------------------------------
RECOGNISED = {"xlabel": "round (0 is the first)", "ylabel": "test images recognised (fraction)"}


@figure
def lab_12_round() -> Any:
    """Weights go out, each client trains, updates come back: half of the round is training."""
    link = Link(latency=0.010, bandwidth=1e6)
    images, labels = dlviz.datasets.digits("train")
    clients = partition.dealt(images, labels, partition.identical(labels, 4))
    arguments = dlviz.models.MLP((64, 32, 10)), clients
    options = {"rounds": 3, "batch": 40}
    machine = classroom(5, link=link)
    run = dlviz.launch(federated, 5, machine=machine, args=arguments, kwargs=options)
    return paper.timeline(run.trace, step=1, title="A round: server, then four clients")


@figure
def lab_12_clients_asked() -> Any:
    """Where clients have two labels each, asking fewer of them costs many rounds."""
    asked = Sweep.load(RECORDED / "12_federated" / "sweep.json").tuned("asked", "two labels")
    lines: Any = {name: found.scores for name, found in asked.items()}
    return paper.curve(lines, title="Two labels a client", **RECOGNISED)


@figure
def lab_12_remedies() -> Any:
    """Drift and three remedies, each at its best rate, over five seeds."""
    found = Sweep.load(RECORDED / "12_federated" / "sweep.json").tuned("remedies", "two labels")
    names = "FedAvg", "FedProx, μ = 0.1", "FedAvgM, β = 0.5"
    lines: Any = {name: found[name].scores for name in names}
    return paper.curve(lines, title="Two labels a client: remedies for drift", **RECOGNISED)


@figure
def lab_12_who_has_learnt_what() -> Any:
    """A deadline that the slow clients miss: no 8 and no 9 is recognised."""
    sweep, data = Sweep.load(RECORDED / "12_federated" / "sweep.json"), "8 and 9 on slow clients"
    best = sweep.tuned("stragglers", data, goal=math.inf)
    groups = {each: sweep.methods(f"stragglers, {each}", data) for each in ("0 to 7", "8 and 9")}
    recognised = {
        name: {
            group: 100 * median([*map(last_third, runs[name][found.rate])])
            for group, runs in groups.items()
        }
        for name, found in best.items()
    }
    title = "Who has learnt what: median of five seeds"
    return paper.bars(recognised, xlabel="labels", ylabel="recognised (%)", title=title)


@figure
def lab_12b_recovered() -> Any:
    """A division is enough: what eight clients have, and what the server recovers."""
    images, labels = dlviz.datasets.digits("train")
    clients = [(images[[k]], labels[[k]]) for k in range(8)]
    model = dlviz.models.MLP((64, 32, 10))
    (updates,) = dlviz.launch(received, 2, args=(model, clients)).results[0]
    found = [inversion.found(model, update)[0] for update in updates]
    pictures = {"on the phone": images[:8], "recovered by the server": torch.stack(found)}
    return dlviz.viz.images(pictures, title="What eight updates reveal")


@figure
def lab_12b_what_privacy_costs() -> Any:
    """Half the noise is three times the epsilon; a small epsilon is cheaper with more noise."""
    sweep = Sweep.load(RECORDED / "12b_federated_privacy" / "sweep.json")
    noises, sigmas = sweep.tuned("noise", "1,000 clients"), (1, 2, 4)
    lines: Any = {f"σ = {sigma}": noises[f"σ = {sigma}"].scores for sigma in sigmas}
    spent = {f"σ = {s}": [epsilon(s, 0.1, n, 1e-5) for n in range(1, 41)] for s in sigmas}
    names = {**RECOGNISED, "xlabel": "ε spent so far, at most (δ = 10⁻⁵)"}
    return paper.curve(lines, x=spent, log_x=True, title="What privacy costs", **names)


@figure
def lab_12b_attackers() -> Any:
    """One of ten attacks: the mean is undone; Krum withstands it and rejects honest clients too."""
    sweep = Sweep.load(RECORDED / "12b_federated_privacy" / "sweep.json")
    recognised = {}
    for data in ("identical", "two labels"):
        found = sweep.tuned("attackers", data, goal=math.inf)
        recognised[data] = {
            name.partition(",")[0]: 100 * median(each.ends)
            for name, each in found.items()
            if name.endswith(", 1 of 10")
        }
    title = "One of ten sends its update x -10: median of five seeds"
    return paper.bars(recognised, ylabel="test images recognised (%)", title=title)


def save(drawn: Any, stem: Path) -> None:
    """Write the figure as `stem`.pdf and .svg; matplotlib and plotly have different methods."""
    write = getattr(drawn, "savefig", None) or drawn.write_image
    for ending in (".pdf", ".svg"):
        write(stem.with_name(stem.name + ending))


def main(folder: Path, names: list[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names or FIGURES:
        save(FIGURES[name](), folder / name)
        print(f"{folder / name}.pdf and .svg: {FIGURES[name].__doc__}", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
