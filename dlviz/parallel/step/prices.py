"""What a layer costs on a machine without a `step`, by its work on this rank's examples.

    forward    FLOPs of its matrix products, convolutions and attention / Device.flops
    backward   as much again for each factor of a product that gets a gradient: the weights, and
               the inputs where they need one / Device.flops
    no product (an embedding, a norm) bytes read and written / memory_bandwidth
    update     3 x bytes of the parameters / memory_bandwidth: parameter and gradient are read, the
               parameter is written

The products are counted while the forward runs; for a layer that does the same work on all inputs
of one form only the first time, since counting costs more than the math of a small layer.
Operations between layers (ReLU, pooling, the loss) have no parameters and cost nothing, except
attention's products (layers.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from dlviz.cluster import Comm, rehearsed
from dlviz.machine import Device
from dlviz.parallel.step.hooks import tensors_in


class Products(TorchDispatchMode):
    """Counts, inside its `with`, the FLOPs of all products, and of those in their backward; `seen`:
    there was one."""

    def __init__(self) -> None:
        super().__init__()
        self.forward = self.backward = 0
        self.seen = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        name = func._overloadpacket
        if name in VECTOR_PRODUCTS:
            self._add(2 * args[0].numel(), args[:2])
        elif name in flop_registry:
            factors = args[1:3] if name in ADDED_PRODUCTS else args[:2]
            self._add(flop_registry[name](*args, **(kwargs or {}), out_val=out), factors)
        return out

    def _add(self, flops: int, factors: Iterable[torch.Tensor]) -> None:
        self.seen = True
        self.forward += flops
        self.backward += flops * sum(factor.requires_grad for factor in factors)


_ATEN = torch.ops.aten
ADDED_PRODUCTS = {_ATEN.addmm, _ATEN.baddbmm}  # their first argument is added to the product
VECTOR_PRODUCTS = {_ATEN.mv, _ATEN.dot}  # not in torch's flop_registry


def recurrent_flops(layer: nn.RNNBase, inputs: torch.Tensor | PackedSequence) -> tuple[int, int]:
    """FLOPs of a recurrent layer's forward and backward: each token is multiplied by every matrix.

    torch runs them as one operation that shows no products. The state before the first token and
    inputs that need no gradient get none."""
    packed = isinstance(inputs, PackedSequence)
    data = inputs.data if packed else inputs
    tokens = data.shape[:-1].numel()
    if packed:
        sequences = int(inputs.batch_sizes[0]) if tokens else 0
    else:
        sequences = 1 if data.dim() == 2 else data.shape[0 if layer.batch_first else 1]
    matrices = {name: p for name, p in layer.named_parameters() if p.dim() == 2}
    forward = 2 * tokens * sum(p.numel() for p in matrices.values())
    trained = 2 * tokens * sum(p.numel() for p in matrices.values() if p.requires_grad)
    no_state = sum(p.numel() for name, p in matrices.items() if name.startswith("weight_hh"))
    ungraded = 2 * sequences * no_state * (tokens > 0)
    if not data.requires_grad:
        first = [p.numel() for name, p in matrices.items() if name.startswith("weight_ih_l0")]
        ungraded += 2 * tokens * sum(first)
    return forward, trained + forward - ungraded


def update_seconds(comm: Comm, parameters: Iterable[torch.Tensor]) -> float | None:
    """Seconds of an update of `parameters` on a machine without a `step`; None, for `comm.compute`,
    where the machine has one or the run is not paced."""
    device = pricing(comm)
    if device is None:
        return None
    return 3 * sum(p.nbytes for p in parameters) / device.memory_bandwidth


def pricing(comm: Comm) -> Device | None:
    """The device that prices operations; None where the machine has a `step` or there is none."""
    machine = comm.machine
    return machine.device if machine is not None and machine.step is None else None


@rehearsed
def _load(comm: Comm) -> None:
    """Counting the first product loads half of torch."""
    if pricing(comm) is not None:
        with Products():
            torch.mv(torch.ones(2, 2), torch.ones(2))


# Layers that do the same work on all inputs of one form, as dlviz's do.
STEADY = {nn.Linear, nn.LayerNorm, nn.Embedding}


class LayerPrices:
    """Seconds of calls of layers on a device."""

    def __init__(self, device: Device):
        self._device = device
        self._known: dict[Any, tuple[float, float, float]] = {}  # by the form of a call

    def begin(self, layer: nn.Module, inputs: Any) -> tuple[Any, Products | None]:
        """Before a call of `layer`: its form, and a counter of its products if one is needed."""
        form = form_of_call(layer, inputs)
        if form in self._known or isinstance(layer, nn.RNNBase):
            return form, None
        products = Products()
        products.__enter__()
        return form, products

    def end(
        self,
        call: tuple[Any, Products | None],
        layer: nn.Module,
        inputs: Any,
        output: Any,
        parameters: Sequence[nn.Parameter] | None,
    ) -> tuple[float, float, float]:
        """After the call: seconds of its forward, of its backward, and of the backward's part for
        the trained `parameters`: all of it where these are None, as no input needs a gradient."""
        form, products = call
        if form in self._known:
            return self._known[form]
        if products is not None:
            products.__exit__(None, None, None)
        forward, backward = price(self._device, layer, inputs, output, products)
        weights = backward
        if parameters is not None:
            weights = weights_price(self._device, parameters, products, backward)
        if form is not None and output is not None:  # the output is None if the call failed
            self._known[form] = forward, backward, weights
        return forward, backward, weights


def form_of_call(layer: nn.Module, inputs: Any) -> Any:
    """What the work of a call depends on; None where it may depend on the values of the inputs."""
    kind = type(layer)
    if kind not in STEADY and not kind.__module__.startswith("dlviz."):
        return None
    tensors = [*tensors_in(inputs), *layer.parameters(recurse=False)]
    of_each = tuple((t.shape, t.dtype, t.requires_grad) for t in tensors)
    return kind, torch.is_grad_enabled(), of_each


def price(
    device: Device, layer: nn.Module, inputs: Any, output: Any, products: Products | None
) -> tuple[float, float]:
    """Seconds of a layer's forward, whose `products` were counted (None: a recurrent layer), and of
    its backward."""
    if isinstance(layer, nn.RNNBase):
        forward, backward = recurrent_flops(layer, next(iter(inputs)))
        return forward / device.flops, backward / device.flops
    if products is not None and products.seen:
        return products.forward / device.flops, products.backward / device.flops
    # The forward reads the inputs and writes the outputs; the backward reads the inputs and the
    # outputs' gradients, and writes those of inputs and parameters.
    read = [*tensors_in(inputs)]
    moved = sum(tensor.nbytes for tensor in [*read, *tensors_in(output)])
    graded = [t for t in [*read, *layer.parameters(recurse=False)] if t.requires_grad]
    back = moved + sum(tensor.nbytes for tensor in graded)
    return moved / device.memory_bandwidth, back / device.memory_bandwidth


def weights_price(
    device: Device, parameters: Sequence[torch.Tensor], products: Products | None, backward: float
) -> float:
    """Seconds of a layer's `backward` for the gradients of its weights, the part of W: one product
    for each of the forward's, without products the bytes written; 0 without trained
    `parameters`."""
    if not parameters:
        return 0.0
    if products is not None and not products.seen:
        return sum(p.nbytes for p in parameters) / device.memory_bandwidth
    return min(backward, backward / 2 if products is None else products.forward / device.flops)
