"""A linear layer Y = X W, or an MLP of two, cut between ranks in one of several forms: what a rank
sends, and what a step takes on the explorer's machine.

    form                    cut between ranks                 messages of a step
    data                    rows of X and Y                   all-reduce of dW
    partition_output        rows of X, columns of W and Y     all-gather X, reduce-scatter dX
    partition_output_whole  columns of W and Y                all-reduce of dX
    reduce_output           columns of X, rows of W           all-reduce of Y
    mlp_data                rows of X, Z and Y                all-reduce of dW1, of dW2
    mlp                     columns of W1 and Z, rows of W2   all-reduce of Y, of dX

X (B, C_in), W (C_in, C_out), Y (B, C_out); of the MLP X (B, C_in), W1 (C_in, C_out), Z (B, C_out),
W2 (C_out, C_in), Y (B, C_in). torch stores the transpose of W. The elements are those of
dlviz/sim/layers.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dlviz.machine import Device, Link, Machine, Topology
from dlviz.sim.costs import collective_seconds
from dlviz.sim.layers import layer_elements

RANKS = (1, 8)
LARGEST = 4096  # of B, C_in and C_out
SIZES = sorted({2**k for k in range(13)} | {3 * 2**k for k in range(11)})  # 1, 2, 3, 4, 6, …, 4096
ITEMSIZE = 4  # bytes: float32
PHASES = ("forward", "backward", "gradient sync")
NAMES = {"batch": "B", "inputs": "C_in", "outputs": "C_out"}
DEVICE = Device("explorer", flops=1e9, memory=1e9, memory_bandwidth=1e9)
LINK = Link(latency=2e-3, bandwidth=1e8)

Values = Mapping[str, Any]  # form, ranks, batch, inputs, outputs


@dataclass(frozen=True)
class Form:
    """A form: `title`, its common name; `elements`, the lecture's, in symbols; the collective of
    each of PHASES, "" where nothing is sent; `cuts`, what the ranks divide, and what each gets."""

    title: str
    elements: tuple[str, str, str]
    collectives: tuple[str, str, str]
    cuts: Mapping[str, str]
    mlp: bool = False

    @property
    def data(self) -> bool:
        return bool(self.collectives[2])


FORMS = {
    "data": Form(
        "data parallel", ("0", "0", "2·C_out·C_in"), ("", "", "all-reduce"),
        {"batch": "rows of X"},
    ),
    "partition_output": Form(
        "partition output, X cut", ("B·C_in", "B·C_in", "0"), ("all-gather", "reduce-scatter", ""),
        {"outputs": "columns of W", "batch": "rows of X"},
    ),
    "partition_output_whole": Form(
        "partition output, X whole", ("0", "2·B·C_in", "0"), ("", "all-reduce", ""),
        {"outputs": "columns of W"},
    ),
    "reduce_output": Form(
        "reduce output", ("2·B·C_out", "0", "0"), ("all-reduce", "", ""),
        {"inputs": "rows of W"},
    ),
    "mlp_data": Form(
        "MLP: data parallel", ("0", "0", "4·C_out·C_in"), ("", "", "all-reduce"),
        {"batch": "rows of X"}, mlp=True,
    ),
    "mlp": Form(
        "MLP: column, then row", ("2·B·C_in", "2·B·C_in", "0"), ("all-reduce", "all-reduce", ""),
        {"outputs": "columns of W₁ and rows of W₂"}, mlp=True,
    ),
}  # fmt: skip


def elements(form: str, batch: int, inputs: int, outputs: int) -> tuple[int, ...]:
    """Elements of each of PHASES, as the lecture counts them."""
    if form == "partition_output_whole":
        return 0, sum(layer_elements("partition_output", batch, inputs, outputs)), 0
    if form == "mlp_data":
        layers = (batch, inputs, outputs), (batch, outputs, inputs)
        return tuple(map(sum, zip(*(layer_elements("data", *own) for own in layers), strict=True)))
    if form == "mlp":
        forward = layer_elements("reduce_output", batch, outputs, inputs)
        return sum(forward), elements("partition_output_whole", batch, inputs, outputs)[1], 0
    return layer_elements(form, batch, inputs, outputs)


def sent(form: str, ranks: int, **sizes: int) -> list[float]:
    """Bytes that a rank sends in each of PHASES."""
    return [many * ITEMSIZE * (ranks - 1) / ranks for many in elements(form, **sizes)]


def seconds(form: str, ranks: int, *, batch: int, inputs: int, outputs: int) -> float:
    """Seconds of a step on the machine: products, messages, update, one after the other."""
    made, layers = FORMS[form], 2 if FORMS[form].mlp else 1
    products = 3 * 2 * batch * inputs * outputs * layers / ranks / DEVICE.flops
    own = inputs * outputs * layers / (1 if made.data else ranks)
    sends = 0.0
    for collective, many in zip(
        made.collectives, elements(form, batch, inputs, outputs), strict=True
    ):
        if collective:
            calls = layers if made.data else 1
            nbytes = many * ITEMSIZE / (2 if collective == "all-reduce" else 1) / calls
            name = collective.replace("-", "_")
            sends += calls * collective_seconds(
                name, ranks, nbytes, LINK.latency, 1 / LINK.bandwidth, DEVICE.gamma
            )
    return products + sends + 3 * ITEMSIZE * own / DEVICE.memory_bandwidth


def machine_of(ranks: int) -> Machine:
    return Machine(DEVICE, Topology.switch(ranks, LINK), None)


def prices(form: str, ranks: int, **sizes: int) -> list[dict[str, Any]]:
    """The forms that do the same work, each with a rank's bytes and the seconds of a step."""
    there = {name: made for name, made in FORMS.items() if made.mlp == FORMS[form].mlp}
    return [
        {
            "form": name,
            "elements": made.elements,
            "directions": sent(name, ranks, **sizes),
            "bytes": sum(sent(name, ranks, **sizes)),
            "seconds": seconds(name, ranks, **sizes),
        }
        for name, made in there.items()
    ]


def cost_map(form: str, inputs: int) -> dict[str, Any]:
    """Which form sends least over C_out and B, by elements: for each C_out of `columns` the `best`
    cut of the layer, and the B from which data parallelism sends less; and the lines on which two
    forms send the same."""
    mlp = FORMS[form].mlp
    data, cuts = ("mlp_data", ["mlp"]) if mlp else ("data", ["partition_output", "reduce_output"])
    columns = sorted({*SIZES, inputs})
    best, threshold = [], []
    for outputs in columns:
        row = {name: sum(elements(name, 1, inputs, outputs)) for name in cuts}
        best.append(min(cuts, key=row.__getitem__))
        threshold.append(sum(elements(data, 1, inputs, outputs)) / row[best[-1]])
    low, high = SIZES[0], SIZES[-1]
    lines = [{"says": "B = C_out", "ends": [[low, low], [high, high]]}]  # (B, C_out)
    if not mlp:
        lines += [
            {"says": "B = C_in", "ends": [[inputs, low], [inputs, high]]},
            {"says": "C_out = C_in", "ends": [[low, inputs], [high, inputs]]},
        ]
    return {
        "data": data, "columns": columns, "best": best, "threshold": threshold, "lines": lines,
    }  # fmt: skip
