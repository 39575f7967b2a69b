"""Recomputation by segments: the forward saves a segment's input alone, and the backward computes
the segment once more.

    plain       forward |1 2 3 4|5 6 7 8|   holds the activations of all layers
    segments    forward |1 2 3 4|5 6 7 8|   holds the inputs of 1 and 5
                backward                    5 6 7 8 again, then their backward; 1 2 3 4 again, ...

What autograd saves goes through a pair of hooks: in the forward `pack` throws each tensor away and
leaves its number; in the backward `unpack` gives the tensor of that number, once the segment ran
again with `pack` as the one who collects. It runs again as it ran: with the state of the random
generators, the autocast and the buffers that it began with, so that dropout drops the same values
and batch norm counts a batch once.

Cost: layers / k activations and k inputs in place of all layers' (`sim.recompute_peak`); one
forward more, 4/3 of the time where the backward takes twice the forward. It ends with the last
tensor that is needed, so that a segment's last product is not computed again.

Source: T. Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016. In PyTorch:
torch.utils.checkpoint(use_reentrant=False); its checkpoint_sequential leaves the last segment out.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from dlviz.parallel.segment import Segment, run
from dlviz.sim.recompute import best_segments, check_segments


class Recomputed(nn.Module):
    """`layers` in `segments` segments of as many layers, or one less (None: `sim.best_segments`).
    Parameters, buffers and their names are those of `layers`; `forward` gives keywords to each
    layer.

    Raises ValueError for layers that are no nn.Sequential, and for more segments than layers; in
    the forward where a segment's layers change its input in place; in the backward where a
    parameter has changed since, or a layer computes something else than before."""

    def __init__(self, layers: nn.Sequential, segments: int | None = None):
        super().__init__()
        if not isinstance(layers, nn.Sequential) or not len(layers):
            raise ValueError(
                f"layers={type(layers).__name__} cannot be cut into segments: give an "
                "nn.Sequential with a layer or more."
            )
        self.segments = best_segments(len(layers)) if segments is None else segments
        check_segments(len(layers), self.segments)
        for name, layer in layers._modules.items():
            self.add_module(name, layer)

    def forward(self, x: Any, **keywords: Any) -> Any:
        layers: list[Any] = [*self._modules.values()]
        first = 0
        for segment in range(self.segments):
            count = (len(layers) - segment - 1) // self.segments + 1  # the first have one more
            own = layers[first : first + count]
            if torch.is_grad_enabled():
                x = Segment(own, f"layers {first} to {first + count - 1}", x, keywords).forward()
            else:
                x = run(own, x, keywords)
            first += count
        return x

    def extra_repr(self) -> str:
        return f"segments={self.segments}"
