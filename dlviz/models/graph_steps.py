"""What the groups of an operator graph take: in a step here, one after the other, or by FLOPs over
a device's."""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from dlviz.models.groups import OperatorGroup
from dlviz.models.operator_graph import OperatorGraph
from dlviz.models.operators import BATCH, tensor_of

REPEATS = 3  # steps that are measured, after one that is not


def measured(
    graph: OperatorGraph, module: nn.Module, batch: torch.Tensor, device: Any, like: Any
) -> OperatorGraph:
    """`graph` with what a step of the groups shows, one after the other: seconds, bytes, and which
    values have gradients."""
    repeats = 1 if device is not None or like is not None else 1 + REPEATS
    with torch.random.fork_rng():
        steps = [_Step(graph, module, batch, device) for _ in range(repeats)]
    last = steps[-1]
    forward, backward = (
        tuple(statistics.median(own) for own in zip(*rows, strict=True))
        for rows in ([s.forward for s in steps[repeats > 1 :]],
                     [s.backward for s in steps[repeats > 1 :]])
    )  # fmt: skip
    if like is not None:
        forward, backward = like.forward, like.backward
    across = {name for own in graph.groups for name in own.inputs}
    sizes = {name: last.sizes[name] if name in across else 0 for name in last.sizes}
    held = [[*own.parameters, *own.buffers] for own in graph.groups]
    held = [[name for name in own if name not in graph.constants] for own in held]
    return replace(
        graph,
        forward=forward,
        backward=backward,
        nbytes=tuple(sum(sizes[n] for n in own.outputs) for own in graph.groups),
        gradient_nbytes=tuple(
            sum(sizes[n] for n in own.outputs if n in last.graded) for own in graph.groups
        ),
        weights=tuple(sum(tensor_of(module, name).nbytes for name in own) for own in held),
        forms=last.forms,
        graded=frozenset(last.graded),
        returned=tuple(frozenset(own) for own in last.returned),
    )


class _Step:
    """Forward and backward of all groups here: `forward` and `backward` seconds of each, `sizes`:
    bytes of values, `graded` values, and of which values a group `returned` gradients."""

    def __init__(self, graph: OperatorGraph, module: nn.Module, batch: torch.Tensor, device: Any):
        count = range(len(graph))
        values, wanted, done = {BATCH: batch}, set[str](), []
        self.forward, self.backward = [0.0 for _ in count], [0.0 for _ in count]
        self.returned: list[set[str]] = [set() for _ in count]
        users = Counter(name for own in graph.groups for name in own.inputs)
        for at in count:
            with _Priced(device, values, graph.groups[at]) as priced:
                done.append(graph.compute(at, module, values, wanted))
                priced.made = done[-1].outputs
            self.forward[at] = priced.seconds
            for name in done[-1].changed:
                if users[name] > 1:
                    raise ValueError(
                        f"{graph.groups[at].name} changes {name} in place, which other groups "
                        "need: make it work out of place."
                    )
            for name, tensor in done[-1].outputs.items():
                if not isinstance(tensor, torch.Tensor):
                    raise ValueError(
                        f"{graph.groups[at].name} has a {type(tensor).__name__} as its value "
                        f"{name}, which no rank can send: let it return a tensor."
                    )
                values[name] = tensor
                wanted |= {name} if tensor.requires_grad else set()
        output = values[graph.output]
        gradients = {graph.output: torch.ones_like(output)} if output.requires_grad else {}
        for at in reversed(count):
            own = {name: gradients[name] for name in graph.groups[at].outputs if name in gradients}
            with _Priced(device, own, graph.groups[at]) as priced:
                found = priced.made = done[at].backward(own)
            self.backward[at] = priced.seconds if own else 0.0
            self.returned[at] = {*found}
            for name, gradient in found.items():
                gradients[name] = gradients[name] + gradient if name in gradients else gradient
        self.graded = {*gradients}
        self.sizes = {name: tensor.nbytes for name, tensor in values.items()}
        self.forms = {name: (each.shape, each.dtype) for name, each in values.items()}
        module.zero_grad()


class _Priced:
    """The seconds of what is inside: measured, or the FLOPs over a device's, or without products
    the bytes of what it takes and has `made` over its memory bandwidth."""

    made: Mapping[str, torch.Tensor] = {}

    def __init__(self, device: Any, takes: Mapping[str, torch.Tensor], group: OperatorGroup):
        self._device, self._counter = device, FlopCounterMode(display=False)
        names = (*group.inputs, *group.outputs)
        self._taken = sum(takes[name].nbytes for name in names if name in takes)

    def __enter__(self) -> _Priced:
        if self._device is not None:
            self._counter.__enter__()
        self._start = time.perf_counter()
        return self

    def __exit__(self, *error: Any) -> None:
        self.seconds = time.perf_counter() - self._start
        if self._device is None:
            return
        self._counter.__exit__(*error)
        flops = self._counter.get_total_flops()
        moved = self._taken + sum(each.nbytes for each in self.made.values())
        self.seconds = flops / self._device.flops or moved / self._device.memory_bandwidth
