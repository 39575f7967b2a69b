"""Which layer computes when: the forward and the backward of every layer as spans on the timeline.

A layer is a module with its own parameters and no such module inside. Its forward lies between two
module hooks; a layer that communicates names the module in it that computes `product`. So does
attention, whose products lie between its layers and have no weights. A layer's backward begins when
the gradient of its output is ready (a hook on that tensor: a module's backward hooks raise on
in-place ReLU) and ends when its parameters have their gradients (or the inputs of a `product`,
which may be sent next), when another layer begins, or when the backward pass is over:

    forward   |fc1|fc2|fc3|
    backward              |fc3    |fc2    |fc1    |

A forward inside a backward pass (a layer that runs again) is of kind recompute. In a pipeline,
spans have stage and microbatch of their action, and a backward that is split is two of a layer:

    backward_input    |fc3|fc2|fc1|
    backward_weight                    |fc3|fc2|fc1|

On a paced run the machine sets each span's time: the same for all layers (`Machine.step`), or with
step=None its price on this rank's examples (prices.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from dlviz.cluster import Comm
from dlviz.parallel.step.hooks import Hook, at_end_of_backward, in_backward, tensors_in, wanted
from dlviz.parallel.step.prices import LayerPrices, pricing
from dlviz.schedules import Action
from dlviz.schedules.action import KIND_NAMES


def layers_of(model: nn.Module) -> dict[str, nn.Module]:
    """The layers of a model by name, in the model's order."""

    def owns(module: nn.Module) -> bool:
        return any(True for _ in module.parameters(recurse=False))

    return {
        name or type(model).__name__: module
        for name, module in model.named_modules()
        if owns(module)
        and not any(owns(child) for child in module.modules() if child is not module)
    }


def with_spans(model: nn.Module) -> dict[str, nn.Module]:
    """The modules that compute, by name: the layers, and modules that have a `product` without
    weights between their layers, as attention does."""
    found = layers_of(model)
    for name, module in model.named_modules():
        product = dict(module.named_children()).get("product")
        if product is not None and not [*product.parameters()]:
            found[name or type(model).__name__] = module
    return found


@dataclass(eq=False)
class LayerBackward:
    """A layer's backward, as known after its forward: `seconds` on a device that prices layers, of
    which `of_weights` for the gradients of its parameters. `wanted`: an input needs a gradient;
    else all seconds are `of_weights`."""

    layer: str
    parameters: list[nn.Parameter]
    wanted: bool
    seconds: float | None = None
    of_weights: float | None = None

    def of_input(self) -> float | None:
        return None if self.seconds is None else self.seconds - (self.of_weights or 0.0)

    def of_operation(self) -> float | None:
        """Seconds of W for an operation with weights: the first of the layer takes all."""
        seconds, self.of_weights = self.of_weights, 0.0
        return seconds


class LayerSpans:
    """Records `model`'s layers on `comm`'s timeline from now on."""

    def __init__(self, comm: Comm, model: nn.Module):
        self._comm = comm
        device = pricing(comm)
        self._prices = None if device is None else LayerPrices(device)
        self._forward: list[tuple[str, Any, Any]] = []  # open: layer, span, its count of products
        self._backward: Any = None  # the open span
        self._layer: str | None = None  # its layer
        self._missing: set[nn.Parameter] = set()  # its parameters that have no gradient yet
        self._in_weights = False  # an operation's part of W is running
        self.action: Action | None = None  # of a pipeline, the current one
        for name, layer in with_spans(model).items():
            own = [p for p in layer.parameters(recurse=False) if p.requires_grad]
            computes = dict(layer.named_children()).get("product", layer)
            start = Hook(self._start_forward(name))
            computes.register_forward_pre_hook(start, with_kwargs=True)
            computes.register_forward_hook(
                Hook(self._end_forward(name, own, computes is not layer)),
                always_call=True,
                with_kwargs=True,
            )
            for parameter in own:
                parameter.register_post_accumulate_grad_hook(self._has_gradient)

    @contextmanager
    def work_on(self, action: Action) -> Iterator[None]:
        """Record the layers that run inside as part of `action`."""
        self.action = action
        try:
            yield
        finally:
            self.action = None

    def _fields(self) -> dict[str, int]:
        at = self.action
        return {} if at is None else {"stage": at.stage, "microbatch": at.microbatch}

    def _start_forward(self, name: str) -> Any:
        def hook(layer: nn.Module, inputs: Any, keywords: Any) -> None:
            prices = self._prices
            seconds = None if prices is None else 0.0  # known after the forward
            kind = "recompute" if in_backward() else "forward"
            if kind == "recompute":
                self.end_backward()
            span = self._comm.compute(kind, name, seconds, **self._fields())
            span.__enter__()
            call = None if prices is None else prices.begin(layer, [*inputs, *keywords.values()])
            self._forward.append((name, span, call))

        return hook

    def _end_forward(self, name: str, parameters: list[nn.Parameter], sends: bool) -> Any:
        def hook(layer: nn.Module, inputs: Any, keywords: Any, output: Any) -> None:
            if not self._forward or self._forward[-1][0] != name:
                return  # a hook before this one's start has raised
            _, span, call = self._forward.pop()
            inputs = [*inputs, *keywords.values()]
            given = [*tensors_in(inputs)]
            back = LayerBackward(name, parameters, wanted(given, parameters))
            if self._prices is not None:
                work = layer, inputs, output, parameters if back.wanted else None
                priced = self._prices.end(call, *work)
                span.seconds, back.seconds, back.of_weights = priced
            span.__exit__(None, None, None)
            for tensor in given if sends or self.action else ():
                if tensor.requires_grad and not tensor.is_leaf:
                    tensor.register_hook(lambda gradient: self.end_backward())
            for tensor in tensors_in(output):
                if tensor.requires_grad:
                    tensor.register_hook(lambda gradient: self._start_backward(back))
                    if self.action:
                        name_operations(tensor, given, back)
                    break

        return hook

    def _start_backward(self, back: LayerBackward) -> None:
        if self._in_weights:
            return
        if self._layer is None:
            at_end_of_backward(self._end_of_pass)
        self.end_backward()
        kind = KIND_NAMES[self.action.kind] if self.action else "backward"
        self._layer, self._missing = back.layer, set(back.parameters)
        if kind == "backward_input" and not back.wanted:
            return  # all of it belongs to W
        # A layer that W reaches by this hook lies off the path: its whole backward belongs to W.
        seconds = back.of_input() if kind == "backward_input" else back.seconds
        self._backward = self._comm.compute(kind, back.layer, seconds, **self._fields())
        self._backward.__enter__()

    @contextmanager
    def of_weights(self, operation: Any) -> Iterator[None]:
        """Record the span of a forward operation's part of W, computed inside."""
        back, self._in_weights = operation.metadata.get(LayerBackward), True
        try:
            if back is None:  # of no layer
                yield
                return
            kind = "backward_weight"
            with self._comm.compute(kind, back.layer, back.of_operation(), **self._fields()):
                yield
        finally:
            self._in_weights = False

    def _has_gradient(self, parameter: nn.Parameter) -> None:
        self._missing.discard(parameter)
        if not self._missing:
            self.end_backward()

    def end_backward(self) -> None:
        """End the current layer's backward, if it has not ended."""
        if self._backward is not None:
            self._backward.__exit__(None, None, None)
            self._backward = None

    def _end_of_pass(self) -> None:
        self.end_backward()
        self._layer = None


def name_operations(
    output: torch.Tensor, given: Sequence[torch.Tensor], back: LayerBackward
) -> None:
    """Label the operations between `given` and `output` with their layer's `back`."""
    seen = {tensor.grad_fn for tensor in given if tensor.grad_fn is not None}
    nodes: list[Any] = [output.grad_fn]
    while nodes:
        node = nodes.pop()
        if node is not None and node not in seen:
            seen.add(node)
            node.metadata[LayerBackward] = back
            nodes += [child for child, _ in node.next_functions]
