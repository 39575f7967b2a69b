"""What the explorer of convolutions runs: a few training steps of one layer on real ranks, paced.

A layer that is too large for two cores is cut down, and the prediction beside the run is that of
the sizes that ran. Bytes and memory are those of the last step, from the Trace.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dlviz.analysis.memory import peak_by_use
from dlviz.analysis.steps import step_seconds
from dlviz.sim.layer_shapes import LayerShape
from dlviz.trace import Trace
from dlviz.widgets.convolution import cuts
from dlviz.widgets.running import Found, Progress, late_words

if TYPE_CHECKING:
    from dlviz.cluster import Comm

RUN = 8  # ranks of a run
STEPS = 3  # of a run
LARGEST = 200_000_000  # multiplications of all ranks' forward
LATE = 5e-3  # s that a step may be late, whatever it takes
KINDS = {"parameters", "gradients", "activations"}


def run(values: dict[str, Any], progress: Progress) -> Found:
    """Train on real ranks, paced: what the front end shows, its seconds by the device clock, and
    the Trace."""
    from dlviz.cluster import launch

    layer = cut_down(cuts.layer_of(values), cuts.cut_of(values))
    machine = cuts.machine_of(values, cuts.ranks_of(values))
    done = launch(train, machine.ranks, machine, args=(values, layer), progress=progress)
    return found(values, layer, done.trace), done.trace


def cut_down(layer: LayerShape, cut: dict[str, int]) -> LayerShape:
    """The layer with fewer images, then smaller ones, then fewer filters and channels, until two
    cores can compute it; each dim stays as long as it has parts."""
    while layer.multiplications > LARGEST:
        sizes = {
            "samples": (layer.samples, cut.get("N", 1)),
            "height": (layer.height, max(cut.get("H", 1), cut.get("W", 1), 2 * layer.kernel)),
            "filters": (layer.filters, 8 * cut.get("F", 1)),
            "channels": (layer.channels, 8 * cut.get("C", 1)),
        }
        name, (size, _) = next((n, s) for n, s in sizes.items() if s[0] >= 2 * s[1])
        less = {name: size // 2} | ({"width": size // 2} if name == "height" else {})
        layer = replace(layer, **less)
    return layer


def sizes(layer: LayerShape) -> str:
    """A layer in words."""
    kernel = f"{layer.kernel} × {layer.kernel}"
    return (
        f"{layer.samples} × {layer.channels} × {layer.height} × {layer.width}, {layer.filters} "
        f"filters of {kernel}"
    )


def found(values: dict[str, Any], layer: LayerShape, trace: Trace) -> dict[str, Any]:
    """What a run measured in its last step, of the rank that sent or held most."""
    last, spans = STEPS - 1, trace.spans
    sends = np.flatnonzero((spans.kind == "send") & (spans.flow >= 0) & (spans.step == last))
    sent = np.bincount(spans.rank[sends], trace.messages.nbytes[spans.flow[sends]], 1)
    peaks = [peak_by_use(trace, rank, last) for rank in trace.ranks]
    predicted = cuts.row(layer, cuts.cut_of(values), values)
    whole = layer == cuts.layer_of(values)
    late = trace.meta["lateness"]["worst"]
    return {
        "sizes": "" if whole else sizes(layer),
        "predicted": predicted,
        "seconds": float(np.median(step_seconds(trace))),
        "words": float(sent.max() / 4),
        "memory": max(sum(peak.each.get(kind, 0) for kind in KINDS) for peak in peaks),
        "late": late_words(late, max(LATE, predicted["seconds"] / 10), cuts.ranks_of(values)),
        "summary": [
            f"The median of {STEPS} steps.",
            *([] if whole else [f"The layer was cut down to {sizes(layer)}."]),
        ],
    }


def train(comm: Comm, values: dict[str, Any], layer: LayerShape) -> None:
    """What a rank runs: forward and backward of its blocks, of random numbers."""
    warnings.filterwarnings("ignore", ".* are idle")  # the table says so
    import torch
    from torch import nn

    from dlviz.cluster import Storages
    from dlviz.parallel.convolution.distribution import Distribution
    from dlviz.parallel.convolution.layers import DistributedConv2d
    from dlviz.parallel.step.layers import LayerSpans

    mesh = comm.mesh(**{name: values[name] for name in cuts.DIMS})
    cut = Distribution(**{dim: name for name, dim in cuts.DIMS.items() if values[name] > 1})
    whole = nn.Conv2d(
        layer.channels, layer.filters, layer.kernel, layer.stride, layer.padding, bias=layer.bias
    )
    shape = layer.samples, layer.channels, layer.height, layer.width
    conv = DistributedConv2d(mesh, whole, cut, shape, keep_gathered=True)
    del whole
    LayerSpans(comm, conv)
    part = [end.stop - end.start for end in cut.x.block(mesh, shape)]
    with Storages(comm, conv):
        for step in comm.progress(range(STEPS), "step"):
            x = torch.randn(part).requires_grad_()  # as if a layer lay below
            conv.zero_grad()
            comm.barrier()
            with comm.span("step", step=step):
                y = conv(x)
                y.backward(torch.ones_like(y))
