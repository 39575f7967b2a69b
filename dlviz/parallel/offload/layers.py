"""A layer's parameters in one flat vector on the host, and in one on the device.

host     master  w w w w w w b b b     float32, moved by the update rule
         values  w w w w w w b b b     what is copied up: the master, or bfloat16 of it
device   flat    w w w w w w b b b     the parameters are views of it; freed: 0 bytes
host     arrived g g g g g g g g g     the gradients as they came down
"""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import torch
from torch import nn

from dlviz.cluster import label
from dlviz.parallel.data.buckets import Bucket
from dlviz.parallel.offload.arena import Arena

LOW = torch.bfloat16


def parameters_by_layer(model: nn.Module) -> list[dict[nn.Parameter, str]]:
    """The parameters of each layer with their names: those that a module holds itself. Modules that
    share a parameter are one layer; parameters of other dtypes are another."""
    found: list[dict[nn.Parameter, str]] = []
    for prefix, module in model.named_modules():
        direct = module.named_parameters(recurse=False)
        named = {p: f"{prefix}.{name}".lstrip(".") for name, p in direct}
        for dtype in dict.fromkeys(p.dtype for p in named):
            own = {p: name for p, name in named.items() if p.dtype == dtype}
            first, *others = [each for each in found if each.keys() & own.keys()] or [{}]
            if not first:
                found.append(first)
            for more in (*others, own):
                first |= {p: name for p, name in more.items() if p not in first}
            found = [each for each in found if not any(each is other for other in others)]
    return found


class HostLayer:
    """The parameters of a layer, and their names."""

    def __init__(self, named: dict[nn.Parameter, str], device: Arena, host: Arena, low: bool):
        self.parameters = [*named]
        self.names = [*named.values()]
        self.name = self.names[0].rpartition(".")[0] or self.names[0]
        self._ends = [*accumulate(p.numel() for p in self.parameters)]
        length, dtype = self._ends[-1], self.parameters[0].dtype
        self.dtype = LOW if low and dtype.is_floating_point else dtype

        def on_host(what: str, size: int, dtype: torch.dtype) -> torch.Tensor:
            return host.empty(size, dtype, f"the {what} of layer {self.name}", self)

        self.master = self.values = on_host("parameters", length, dtype)
        if self.dtype != dtype:
            self.values = on_host("bfloat16 parameters", length, self.dtype)
        self.flat = device.empty(length, self.dtype, f"layer {self.name}", self)
        self.device = device
        self._on_device, self._on_host = self._views(self.flat), self._views(self.master)
        self.free()
        for view, p in zip(self._on_host, self.parameters, strict=True):
            view.copy_(p.detach())
        self.show(on_device=False)
        self.lower()
        # What training moves: leaves that an optimizer takes, and where their gradients arrive.
        trained = [place for place, p in enumerate(self.parameters) if p.requires_grad]
        self.trained = [self.parameters[place] for place in trained]
        self.masters = [nn.Parameter(self._on_host[place]) for place in trained]
        sizes = [p.numel() for p in self.trained]
        self.arrived = on_host("gradients", sum(sizes), self.dtype)
        self.slots = self.arrived.split(sizes) if sizes else ()
        with host:
            self.bucket = Bucket(self.masters) if sizes else None
            label("gradients", self.arrived, *([self.bucket.flat] if self.bucket else []))
        label("parameters", self.values, self.flat)
        if self.values is not self.master:  # of the rule's 12 bytes
            label("optimizer", self.master)
        self.moves: Any = None  # by a rule that knows its tensors by their place in a list
        # In a step: parameters without a gradient, and whether all gradients are being copied;
        # which parameters had one, the handles of their copy and of the host's work; the means.
        self.missing, self.sent = {*self.trained}, False
        self.there: list[bool] = []
        self.arrival: Any = None
        self.reduced: Any = None
        self.means: list[torch.Tensor | None] = []

    def _views(self, flat: torch.Tensor) -> list[torch.Tensor]:
        parts = flat.split([p.numel() for p in self.parameters])
        return [part.view(p.shape) for part, p in zip(parts, self.parameters, strict=True)]

    def name_at(self, offset: int) -> str:
        """The parameter that has the value at an offset."""
        return next(name for name, end in zip(self.names, self._ends, strict=True) if offset < end)

    def lower(self) -> None:
        """Round the master to what is copied up."""
        if self.values is not self.master:
            self.values.copy_(self.master)

    def show(self, on_device: bool) -> None:
        """Let the parameters be views of the device's vector, or of the master."""
        views = self._on_device if on_device else self._on_host
        for p, view in zip(self.parameters, views, strict=True):
            p.data = view

    def take(self) -> None:
        """Take memory on the device."""
        self.device.resize(self.flat, self.flat.nbytes)

    def free(self) -> None:
        """Give it back. What autograd has saved of the layer finds its values again there, once
        they are brought again."""
        self.device.resize(self.flat, 0)
