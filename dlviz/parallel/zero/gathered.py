"""When a layer of stage 3 is gathered: ahead of time on a lane, or as an operation reads it.

    prefetch=0   compute  |wait    |fc1|wait    |fc2|
                 gather   |fc1     |   |fc2     |
    prefetch=1   compute  |wait    |fc1 |wait|fc2 |          prefetch + 1 layers are held at most
                 gather   |fc1     |fc2      |fc3      |

The next layers are those that followed in the last forward, or came before it in backward. A layer
that another one uses too (an output tied to the embedding) is not announced by a hook: the first
operation that reads one of its parameters gathers it, and it stays until the forward is over.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from dlviz.cluster import Comm, label
from dlviz.parallel.step.hooks import tensors_in
from dlviz.parallel.zero import rings
from dlviz.parallel.zero.shards import FlatLayer, changed


class Gathered:
    """Gathers `layers` over `comm`, on lane "gather", and frees them. All are free at first.

    Parameters of a freed layer keep their shape, read as NaN and cannot be written; their values
    are in the shards. Every rank has to need the same layers in the same order."""

    def __init__(
        self, comm: Comm, layers: list[FlatLayer], names: dict[nn.Parameter, str], prefetch: int
    ):
        self._comm, self._lane, self._names = comm, comm.lane("gather"), names
        self._layers, self._prefetch = layers, prefetch
        self._order = layers  # of the last forward
        self._now: list[FlatLayer] = []  # of this one
        self._done: set[FlatLayer] = set()  # their backward is over
        self._handles: dict[FlatLayer, Any] = {}  # gathered, or about to be
        self._here: set[FlatLayer] = set()
        self._layer_of = {p: layer for layer in layers for p in layer.parameters}
        self._freed = self._parameters_that_gather()
        self.in_backward = False
        self.reads = False  # whether an operation that reads a freed parameter gathers it
        for layer in layers:
            self._clear(layer)

    def begin(self) -> None:
        """A forward begins."""
        self.in_backward = False
        if len(self._now) == len(self._layers):
            self._order = self._now
        self._now = []
        self._done.clear()

    def need(self, layer: FlatLayer, back: bool = False) -> None:
        """Gather `layer` unless it is here, and begin to gather those that a forward needs next, or
        going `back` a backward; a forward too may be inside a backward (recomputation)."""
        if layer in self._here:
            return
        if layer not in self._handles:
            self._start(layer, self._lane.at_wait)
        self._handles[layer].wait(layer=layer.name)
        self._here.add(layer)
        for p in layer.parameters:
            p.__class__ = nn.Parameter
        layer.show()
        if not self.in_backward and layer not in self._now:
            self._now.append(layer)
        for each in self._next(layer, back):
            if each not in self._handles and each not in self._done:
                self._start(each, self._lane.submit)

    def _next(self, layer: FlatLayer, back: bool) -> list[FlatLayer]:
        order = self._order[::-1] if back else self._order
        place = order.index(layer) + 1 if layer in order else len(order)
        return order[place : place + self._prefetch]

    def _start(self, layer: FlatLayer, submit: Any) -> None:
        layer.flat.untyped_storage().resize_(layer.flat.nbytes)
        label("communication", layer.flat)
        self._handles[layer] = submit(_gather, layer)

    def free(self, layer: FlatLayer) -> None:
        """Give the memory of `layer` back, which is not needed again before its backward, or, in
        backward, at all. Raises ValueError for a parameter that was changed meanwhile."""
        if layer in self._here:
            layer.check_unchanged(self._names)
            with self._comm.span("phase", f"free {layer.name}", layer=layer.name):
                self._clear(layer)
        if self.in_backward:
            self._done.add(layer)

    def free_all(self) -> None:
        """Free what is gathered, used or not."""
        for layer in [*self._handles]:
            self._handles[layer].wait(layer=layer.name)
            self.free(layer)
            self._clear(layer)  # gathered ahead, and not used

    def abandon(self) -> None:
        """After an error: free everything; a layer on the lane once that has failed too."""
        for layer, handle in [*self._handles.items()]:
            handle.settle()
            self._clear(layer)

    def _clear(self, layer: FlatLayer) -> None:
        self._handles.pop(layer, None)
        self._here.discard(layer)
        nothing = layer.flat.new_full((), torch.nan)
        for p in layer.parameters:
            p.data = nothing.expand(p.shape)
            p.__class__ = self._freed
        layer.flat.untyped_storage().resize_(0)

    def _parameters_that_gather(self) -> type[nn.Parameter]:
        """The class of freed parameters: torch shows it each operation that one takes part in."""
        gathered = self

        class Freed(nn.Parameter):
            def __hash__(self) -> int:
                return id(self)  # as a Tensor's, which would be shown as an operation

            @classmethod
            def __torch_function__(
                cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
            ) -> Any:
                read = gathered.read(func, [*args, kwargs or {}])
                with torch._C.DisableTorchFunctionSubclass():
                    output = func(*args, **kwargs or {})
                gathered.announce(output, read)
                return output

        return Freed

    def announce(self, output: Any, layers: list[FlatLayer]) -> None:
        """The backward of what computed `output` begins there, and needs `layers`."""

        def before_backward(gradient: torch.Tensor) -> None:
            self.in_backward = True
            for layer in layers:
                self.need(layer, back=True)

        for tensor in tensors_in(output) if layers else ():
            if tensor.requires_grad:
                tensor.register_hook(before_backward)

    def read(self, func: Any, given: Any) -> list[FlatLayer]:
        """The layers that an operation reads outside their own forward, now gathered. Raises
        ValueError for one that writes to them."""
        name = getattr(func, "__name__", "")
        if name in ("__get__", "__set__", "requires_grad_"):  # of its shape, say
            return []
        freed = [t for t in tensors_in(given) if isinstance(t, self._freed) and t in self._layer_of]
        if name.endswith("_") and not name.startswith("__") and freed:
            changed(self._names[freed[0]])
        if not self.reads:
            return []
        layers = [self._layer_of[p] for p in freed]
        for layer in layers:
            self.need(layer)
        return layers


def _gather(comm: Comm, layer: FlatLayer) -> None:
    fields = {"group": comm.name, "layer": layer.name, "nbytes": layer.flat.nbytes}
    with comm.span("collective", f"gather {layer.name}", **fields):
        layer.own.copy_(layer.rounded)
        rings.all_gather(comm, layer.parts)
