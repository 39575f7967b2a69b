"""What the explorer of memory predicts of a stage of ZeRO: bytes of a rank by kind, and bytes sent.

The model is of equal linear layers, each a square matrix without a bias and a tanh, which saves its
output. No torch here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dlviz.sim.recompute import best_segments, recompute_peak
from dlviz.sim.zero import largest_model, zero_bytes, zero_traffic
from dlviz.viz.words import text

STAGES = {
    0: "0: all whole",
    1: "1: optimizer in shards",
    2: "2: and gradients",
    3: "3: and parameters",
}
PARAMETER = {"float32": (4, 4, 8), "bfloat16": (2, 2, 12)}  # bytes: value, gradient, rule of Adam
PREFETCH = 1  # layers that stage 3 gathers ahead
KINDS = ("parameters", "gradients", "optimizer", "activations", "communication", "other")
Values = Mapping[str, Any]  # of the controls


def width(values: Values) -> int:
    """Rows and columns of a layer."""
    return max(1, round((values["parameters"] / values["layers"]) ** 0.5))


def parameters(values: Values) -> int:
    """Of the whole model."""
    return values["layers"] * width(values) ** 2


def parts(values: Values, stage: int, ranks: int) -> dict[str, float]:
    """Bytes of a rank by kind, but "other"."""
    value, gradient, rule = PARAMETER[values["precision"]]

    def held(*each: int) -> float:
        return zero_bytes(parameters(values), ranks, stage, *each)

    return {
        "parameters": held(value, 0, 0),
        "gradients": held(0, gradient, 0),
        "optimizer": held(0, 0, rule),
        "activations": activations(values),
        "communication": buffers(values, stage),
    }


def activations(values: Values) -> int:
    """Bytes of the outputs of layers that a rank holds at most, of a microbatch."""
    layers = values["layers"]
    held = recompute_peak(layers, best_segments(layers)) if values["recompute"] else layers
    return held * values["rows"] * width(values) * PARAMETER[values["precision"]][0]


def buffers(values: Values, stage: int) -> int:
    """Bytes of what stages 2 and 3 have whole for a moment: a bucket of gradients, which has a
    layer or more; at stage 3 the layers that are gathered, too: the one at work and those ahead, or
    all of a segment that runs again."""
    layer, layers = width(values) ** 2, values["layers"]
    value, gradient, _ = PARAMETER[values["precision"]]
    together = min(layers, max(1, values["bucket"] // (layer * gradient)))
    bucket = together * layer * gradient if stage >= 2 else 0
    segment = -(-layers // best_segments(layers)) if values["recompute"] else 1
    gathered = min(layers, max(1 + PREFETCH, segment)) if stage == 3 else 0
    return bucket + gathered * layer * value


def row(values: Values, stage: int) -> dict[str, Any]:
    """A stage at these controls, as the table shows it."""
    ranks, each = values["ranks"], PARAMETER[values["precision"]]
    held = parts(values, stage, ranks)
    units = zero_traffic(stage, values["microbatches"])
    return {
        "stage": stage,
        "parts": [held.get(kind, 0.0) for kind in KINDS],
        "total": sum(held.values()),
        "units": units,
        "sent": units * (ranks - 1) / ranks * parameters(values) * each[0],
        "largest": text.count(largest_model(values["memory"], ranks, stage, *each)),
    }
