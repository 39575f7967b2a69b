"""What the explorer of convolutions predicts of a layer under a cut: which rank has which block,
and seconds, elements sent and bytes of a training step. No torch here."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from itertools import product
from typing import Any

from dlviz.machine import Device, Link, Machine, Topology
from dlviz.sim.convolution import blocks
from dlviz.sim.layer_costs import LayerCost, convolution_cuts, cut_name, layer_cost
from dlviz.sim.layer_shapes import LayerShape, net_layers

OWN = "own"
LAYERS = {
    "alexnet_first": ("AlexNet, first convolution", "alexnet", "conv1"),
    "alexnet_last": ("AlexNet, last convolution", "alexnet", "conv5"),
    "resnet_first": ("ResNet-50, first convolution", "resnet50", "conv1"),
    "resnet_last": ("ResNet-50, last convolution", "resnet50", "conv5_3c"),
    OWN: ("own sizes", "", ""),
}
DIMS = {"n": "N", "h": "H", "w": "W", "c": "C", "f": "F"}  # a control and the dim that it cuts
DEVICE = Device("explorer", flops=1e9, memory=1e9, memory_bandwidth=1e9)
BEST = 5  # other cuts that the table shows
PARTS = {
    "computing": ("forward", "backward"),
    "halos": ("halo of x", "halo of dx"),
    "channels and filters": (
        "gather x", "reduce-scatter y", "gather dy", "gather x again", "reduce-scatter dx",
    ),
    "sum of dw": ("all-reduce dw",),
}  # fmt: skip
Values = Mapping[str, Any]  # of the controls
Bounds = tuple[int, int]


def layer_of(values: Values) -> LayerShape:
    """The layer that the controls choose. Raises ValueError for a kernel that does not fit."""
    _, net, name = LAYERS[values["layer"]]
    if net:
        return net_layers(net, values["samples"])[name]
    return LayerShape(
        values["samples"], values["channels"], values["filters"], values["size"], values["size"],
        values["kernel"], values["stride"], padding=values["kernel"] // 2, bias=False,
    )  # fmt: skip


def cut_of(values: Values) -> dict[str, int]:
    """The parts of each dim that is cut."""
    return {dim: values[name] for name, dim in DIMS.items() if values[name] > 1}


def ranks_of(values: Values) -> int:
    return math.prod(values[name] for name in DIMS)


def machine_of(values: Values, ranks: int) -> Machine:
    link = Link(values["alpha"], values["bandwidth"])
    return Machine(DEVICE, Topology.switch(ranks, link), None)


def cost(layer: LayerShape, cut: Mapping[str, int], values: Values) -> LayerCost:
    """Of a training step, in which x is gathered once."""
    machine = machine_of(values, math.prod(cut.values()))
    return layer_cost(layer, cut, machine, keep_gathered=True)


def row(layer: LayerShape, cut: Mapping[str, int], values: Values) -> dict[str, Any]:
    """A cut as the table shows it."""
    found = cost(layer, cut, values)
    return {
        "name": cut_name(cut),
        "cut": {name: cut.get(dim, 1) for name, dim in DIMS.items()},
        "seconds": found.seconds,
        "words": found.words,
        "memory": found.memory,
        "parts": [sum(found.parts[one][0] for one in names) for names in PARTS.values()],
        "idle": idle(layer, cut),
    }


def idle(layer: LayerShape, cut: Mapping[str, int]) -> int:
    """The ranks that compute nothing."""
    height, width = layer.outputs
    lengths = {"N": layer.samples, "H": height, "W": width, "C": layer.channels, "F": layer.filters}
    busy = math.prod(min(parts, lengths[dim]) for dim, parts in cut.items())
    return math.prod(cut.values()) - busy


def singles(layer: LayerShape, values: Values) -> list[dict[str, Any]]:
    """All ranks along one dim."""
    ranks = ranks_of(values)
    return [row(layer, {dim: ranks}, values) for dim in DIMS.values()] if ranks > 1 else []


def best(layer: LayerShape, values: Values) -> list[dict[str, Any]]:
    """The fastest cuts over as many ranks."""
    return _best(layer, ranks_of(values), values["alpha"], values["bandwidth"])


@lru_cache(64)
def _best(layer: LayerShape, ranks: int, alpha: float, bandwidth: float) -> list[dict[str, Any]]:
    link = {"alpha": alpha, "bandwidth": bandwidth}
    every = [cut for cut in convolution_cuts(ranks) if [*cut][-2:] != ["F", "C"]]
    rows = [row(layer, cut, link) for cut in every]
    return sorted(rows, key=lambda one: one["seconds"])[:BEST]


def immediate(values: Values) -> bool:
    """Whether `best` takes no longer than a slider waits: few ranks have few cuts."""
    return ranks_of(values) <= 4


def tensors(layer: LayerShape, values: Values) -> list[dict[str, Any]]:
    """x, w and y: the shape, the block of each rank as bounds of each dim, and what moves."""
    n, h, w, c, f = (values[name] for name in DIMS)
    x = (layer.samples, layer.channels, layer.height, layer.width)
    y = (layer.samples, layer.filters, *layer.outputs)
    weights = (layer.filters, layer.channels)
    ranks = [*product(*map(range, (n, h, w, c, f)))]
    halo = ["halos travel"] * (h * w > 1 and layer.kernel > 1)
    gathered = [f"gathered over F, {f} ranks"] * (f > 1)
    summed = [f"summed and scattered over C, {c} ranks"] * (c > 1)
    alike = [f"dw is summed over {n * h * w} ranks"] * (n * h * w > 1)
    blocks_of = {
        "x": [_image(x, (n, h, w), (c, f), at) for at in ranks],
        "w": [[*blocks(weights[0], f)[at[4]], *blocks(weights[1], c)[at[3]]] for at in ranks],
        "y": [_image(y, (n, h, w), (f, c), (*at[:3], at[4], at[3])) for at in ranks],
    }
    moves = {"x": halo + gathered, "w": alike, "y": summed}
    shapes = {"x": x, "w": (*weights, layer.kernel, layer.kernel), "y": y}
    return [
        {
            "name": name,
            "shape": shapes[name],
            "blocks": own,
            "moves": "; ".join(moves[name]) or "stays",
        }
        for name, own in blocks_of.items()
    ]


def _image(shape: tuple[int, ...], parts: tuple[int, ...], channels: Bounds, at: tuple[int, ...]):
    """The bounds of a rank's samples, channels, rows and columns; the first of the two cuts of its
    `channels` divides them first."""
    low, high = blocks(shape[1], channels[0])[at[3]]
    begin, end = blocks(high - low, channels[1])[at[4]]
    (samples, rows, columns) = (
        blocks(length, many)[place]
        for length, many, place in zip((shape[0], *shape[2:]), parts, at, strict=False)
    )
    return [*samples, low + begin, low + end, *rows, *columns]
