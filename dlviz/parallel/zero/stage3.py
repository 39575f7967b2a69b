"""ZeRO, stage 3: each rank has parameters, gradients and state of its shard only.

    compute  |fc1|fc2|fc3|fc3  |fc2  |fc1  |wait|update of 1/N|
    gather   fc1|fc2|fc3|fc3 |fc2 |fc1
    comm                        |bucket 0|bucket 1|
    memory   ^fc1 ^freed                  ^freed

A layer's parameters are gathered before its forward and freed after it, once more before and after
its backward. What autograd has saved of them is memory that is freed and filled again: the same
storage, of no bytes in between. After the update nothing is gathered: the next forward does that.

A segment that runs again in the backward (recomputed.py) has all its layers gathered, each from
there to its own backward, so that no layer is gathered for both.

With `reshard` False a layer stays from its forward to its backward: the memory of stage 2, and one
gather less.

Cost: 3m times (N-1)/N of the parameters, padded, with m microbatches; 2m without resharding.
Bytes, Adam: 16/N a parameter, prefetch + 1 layers (or those of a segment), and a bucket. Of the 16
in float32 4 are the value, 4 its gradient, 8 the state; in bfloat16 2, 2 and 12, with the master.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from dlviz.cluster import Comm
from dlviz.models.mean_of import Weight
from dlviz.parallel.step.hooks import Hook, in_backward
from dlviz.parallel.zero.gathered import Gathered
from dlviz.parallel.zero.shards import FlatLayer
from dlviz.parallel.zero.stage2 import Stage2


class Stage3(Stage2):
    """As `Stage2`; between a layer's forward and backward a rank holds its shard of it."""

    def __init__(
        self,
        comm: Comm,
        model: nn.Module,
        layers: list[FlatLayer],
        weight: Weight,
        bucket_bytes: int,
        *,
        prefetch: int = 1,
        reshard: bool = True,
        **of_others: Any,
    ):
        self._prefetch, self._reshard = prefetch, reshard
        super().__init__(comm, model, layers, weight, bucket_bytes)
        self._layer_of = {p: layer for layer in layers for p in layer.parameters}
        for module, own in self._modules_with_layers():
            module.register_forward_hook(Hook(self._after(own)))
        self._missing: dict[FlatLayer, set[nn.Parameter]] = {}

    def before_spans(self) -> None:
        """Register the hooks that gather: what a span records is computing only."""
        self.gathered = Gathered(self.comm, self.layers, self.names, self._prefetch)
        for module, own in self._modules_with_layers():
            module.register_forward_pre_hook(Hook(self._before(own)))
            module.register_forward_hook(Hook(self._announce(own)))

    def _modules_with_layers(self) -> list[tuple[nn.Module, list[FlatLayer]]]:
        """Each module that has parameters itself, and the layers that these belong to."""
        found = []
        for module in self.module.modules():
            own = {*module.parameters(recurse=False)}
            layers = [layer for layer in self.layers if own & {*layer.parameters}]
            if layers:
                found.append((module, layers))
        return found

    def _before(self, own: list[FlatLayer]) -> Any:
        def hook(module: nn.Module, inputs: Any) -> None:
            for layer in own:
                self.gathered.need(layer)

        return hook

    def _announce(self, own: list[FlatLayer]) -> Any:
        """After a forward: its backward, which begins at its outputs, needs the layers again."""

        def hook(module: nn.Module, inputs: Any, output: Any) -> None:
            self.gathered.announce(output, own)

        return hook

    def _after(self, own: list[FlatLayer]) -> Any:
        def hook(module: nn.Module, inputs: Any, output: Any) -> None:
            if self._reshard and not in_backward():  # where a segment runs again
                for layer in own:
                    self.gathered.free(layer)

        return hook

    def forward(self, *inputs: Any, **keywords: Any) -> Any:
        self.gathered.begin()
        self._missing = {layer: {*layer.parameters} for layer in self.layers}
        self.gathered.reads = True
        try:
            output = super().forward(*inputs, **keywords)
        finally:
            self.gathered.reads = False
        if self._reshard or not torch.is_grad_enabled():
            self.gathered.free_all()
        return output

    def gradient_ready(self, p: nn.Parameter) -> None:
        super().gradient_ready(p)
        layer = self._layer_of[p]
        self._missing[layer].discard(p)
        if not self._missing[layer]:
            self.gathered.free(layer)

    def end_pass(self) -> None:
        self.gathered.free_all()  # layers with a parameter that got no gradient
        super().end_pass()

    def share(self) -> None:
        """The next forward gathers the new parameters."""
        for layer in self.layers:
            layer.round()

    def close(self) -> None:
        self.gathered.abandon()
        super().close()
