"""Which layer computes when: the forward and the backward of every layer as spans on the timeline.

A layer is a module with parameters of its own and no such module inside. Its forward lies between
two module hooks; a layer that communicates names, as `product`, the module in it that computes. Its
backward begins when the gradient of its output is there (a hook on that tensor: a module's own
backward hooks raise on in-place ReLU) and ends when its parameters have theirs (or the inputs of a
`product`: what follows may be sent), when another layer begins, or when the backward pass is over,
whichever comes first:

    forward   |fc1|fc2|fc3|
    backward              |fc3    |fc2    |fc1    |

On a paced run each takes what the machine says: so many ms, whatever the layer (`Machine.step`), or
with step=None its price on the examples that this rank has (prices.py).
"""

from __future__ import annotations

from typing import Any

from torch import nn

from dlviz.cluster import Comm
from dlviz.parallel.hooks import at_end_of_backward, tensors_in
from dlviz.parallel.prices import Products, price, pricing


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


class LayerSpans:
    """Records `model`'s layers on `comm`'s timeline from now on."""

    def __init__(self, comm: Comm, model: nn.Module):
        self._comm = comm
        self._device = pricing(comm)
        self._forward: list[tuple[Any, Products | None]] = []  # the open spans
        self._backward: Any = None  # the open span
        self._layer: str | None = None  # whose it is
        self._missing: set[nn.Parameter] = set()  # its parameters that have no gradient yet
        for name, layer in layers_of(model).items():
            own = [p for p in layer.parameters(recurse=False) if p.requires_grad]
            computes = dict(layer.named_children()).get("product", layer)
            computes.register_forward_pre_hook(self._start_forward(name))
            computes.register_forward_hook(
                self._end_forward(name, own, computes is not layer),
                always_call=True,
                with_kwargs=True,
            )
            for parameter in own:
                parameter.register_post_accumulate_grad_hook(self._has_gradient)

    def _start_forward(self, name: str) -> Any:
        def hook(layer: nn.Module, inputs: Any) -> None:
            # A price is known when the forward is over.
            span = self._comm.compute("forward", name, None if self._device is None else 0.0)
            span.__enter__()
            products = None
            if self._device is not None and not isinstance(layer, nn.RNNBase):
                products = Products()
                products.__enter__()
            self._forward.append((span, products))

        return hook

    def _end_forward(self, name: str, parameters: list[nn.Parameter], sends: bool) -> Any:
        def hook(layer: nn.Module, inputs: Any, keywords: Any, output: Any) -> None:
            span, products = self._forward.pop()
            back = None
            if self._device is not None:
                if products is not None:
                    products.__exit__(None, None, None)
                given = [*inputs, *keywords.values()]
                span.seconds, back = price(self._device, layer, given, output, products)
            span.__exit__(None, None, None)
            for tensor in tensors_in([*inputs, *keywords.values()]) if sends else ():
                if tensor.requires_grad and not tensor.is_leaf:
                    tensor.register_hook(lambda gradient: self.end_backward())
            for tensor in tensors_in(output):
                if tensor.requires_grad:
                    tensor.register_hook(
                        lambda gradient: self._start_backward(name, parameters, back)
                    )
                    break

        return hook

    def _start_backward(
        self, name: str, parameters: list[nn.Parameter], seconds: float | None
    ) -> None:
        if self._layer is None:
            at_end_of_backward(self._end_of_pass)
        self.end_backward()
        self._layer, self._missing = name, set(parameters)
        self._backward = self._comm.compute("backward", name, seconds)
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
