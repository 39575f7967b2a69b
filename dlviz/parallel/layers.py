"""Which layer computes when: the forward and the backward of every layer as spans on the timeline.

A layer is a module with parameters of its own and no such module inside. Its forward lies between
two module hooks. Its backward begins when the gradient of its output is there (a hook on that
tensor: a module's own backward hooks raise on in-place ReLU) and ends when its parameters have
theirs, when another layer begins, or when the backward pass is over, whichever comes first:

    forward   |fc1|fc2|fc3|
    backward              |fc3    |fc2    |fc1    |

On a paced run each forward and backward takes what the machine says.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from dlviz.cluster import Comm


def layers_of(model: nn.Module) -> dict[str, nn.Module]:
    """The layers of a model by name, in the order in which the model lists them."""

    def owns(module: nn.Module) -> bool:
        return any(True for _ in module.parameters(recurse=False))

    return {
        name or type(model).__name__: module
        for name, module in model.named_modules()
        if owns(module)
        and not any(owns(child) for child in module.modules() if child is not module)
    }


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """The tensors in whatever a module takes or returns: a tensor, or lists, tuples and dicts of
    them."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors_in(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from tensors_in(item)


def at_end_of_backward(function: Any) -> None:
    """Call `function` when the backward pass under way is over, before `backward()` returns."""
    torch.autograd.Variable._execution_engine.queue_callback(function)  # as torch's own DDP does


class LayerSpans:
    """Records `model`'s layers on `comm`'s timeline from now on."""

    def __init__(self, comm: Comm, model: nn.Module):
        self._comm = comm
        self._forward: list[Any] = []
        self._backward: Any = None  # the open span
        self._layer: str | None = None  # whose it is
        self._missing: set[nn.Parameter] = set()  # its parameters that have no gradient yet
        for name, layer in layers_of(model).items():
            own = [p for p in layer.parameters(recurse=False) if p.requires_grad]
            layer.register_forward_pre_hook(self._start_forward(name))
            layer.register_forward_hook(self._end_forward(name, own), always_call=True)
            for parameter in own:
                parameter.register_post_accumulate_grad_hook(self._has_gradient)

    def _start_forward(self, name: str) -> Any:
        def hook(layer: nn.Module, inputs: Any) -> None:
            span = self._comm.compute("forward", name)
            span.__enter__()
            self._forward.append(span)

        return hook

    def _end_forward(self, name: str, parameters: list[nn.Parameter]) -> Any:
        def hook(layer: nn.Module, inputs: Any, output: Any) -> None:
            self._forward.pop().__exit__(None, None, None)
            for tensor in tensors_in(output):
                if tensor.requires_grad:
                    tensor.register_hook(lambda gradient: self._start_backward(name, parameters))
                    break

        return hook

    def _start_backward(self, name: str, parameters: list[nn.Parameter]) -> None:
        if self._layer is None:
            at_end_of_backward(self._end_of_pass)
        self.end_backward()
        self._layer, self._missing = name, set(parameters)
        self._backward = self._comm.compute("backward", name)
        self._backward.__enter__()

    def _has_gradient(self, parameter: nn.Parameter) -> None:
        self._missing.discard(parameter)
        if not self._missing:
            self.end_backward()

    def end_backward(self) -> None:
        """The backward of the layer that is at it ends now, if it has not."""
        if self._backward is not None:
            self._backward.__exit__(None, None, None)
            self._backward = None

    def _end_of_pass(self) -> None:
        self.end_backward()
        self._layer = None
