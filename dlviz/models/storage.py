"""What each layer of a network stores in one step of training, counted by hooks.

    layer storage = |w| + |f(o)| + |∇w| + |∇o|     weights, output, and the gradients of both

A layer is a module whose forward calls no other one. The formula counts all that a step makes.
autograd keeps less from the forward for the backward, a part of the outputs and the input: `kept`.

Source: the formula is that of the lecture; `kept` is what torch.autograd.graph.saved_tensors_hooks
sees.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

if TYPE_CHECKING:
    import pandas

COLUMNS = ("weights", "outputs", "weight_gradients", "output_gradients", "kept")


def layer_storage(
    model: nn.Module, inputs: torch.Tensor | tuple[torch.Tensor, ...]
) -> pandas.DataFrame:
    """Bytes that each layer of `model` stores in a step on `inputs` (a tuple: several arguments).

    A row a layer, by its name: its `kind` (class), the formula's `weights outputs weight_gradients
    output_gradients`, and `kept`, what autograd keeps of the layer's forward (weights aside). That
    lies in the outputs and inputs mostly, so it is not to be added to them.

    Weights that layers share count where they first lie, the outputs of a layer that is used twice
    count twice. A view of the input (Flatten) stores nothing; a layer that works in place has a
    gradient and no output of its own; one that is not used has weights alone; what the forward of a
    module keeps beside its layers (a function) is in that module's row. What stores nothing has no
    row. The step leaves weights, gradients, buffers and the random generator as they were.
    """
    import pandas

    counts = _counted(model, inputs)
    rows = {
        name: {"kind": type(module).__name__, **counts.rows[name]}
        for module, name in counts.names.items()
        if any(counts.rows[name].values())
    }
    table = pandas.DataFrame.from_dict(rows, orient="index", columns=["kind", *COLUMNS])
    return table.rename_axis("layer")


def kept_tensors(
    model: nn.Module, inputs: torch.Tensor | tuple[torch.Tensor, ...]
) -> pandas.DataFrame:
    """What autograd keeps of a forward of `model`, tensor by tensor, where `layer_storage` has the
    sums: a row each of `layer operation shape dtype nbytes`, in the order in which they were kept.

    The operation is the one that will need it in the backward, and what it is there: "Addmm mat1";
    several operations may need one tensor. What lies in one storage is one row.
    """
    import pandas

    counts, rows = _counted(model, inputs), []
    for place, (first, end) in counts.saved.held.items():
        if place not in counts.kept:
            continue  # of an output that the model does not use: it is gone again
        tensor = counts.kept[place]
        operations = ", ".join(dict.fromkeys(counts.needed_by[place]))
        about = tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."), end - first
        rows.append((counts.layer_of[place], operations, *about))
    return pandas.DataFrame(rows, columns=["layer", "operation", "shape", "dtype", "nbytes"])


def _counted(model: nn.Module, inputs: torch.Tensor | tuple[torch.Tensor, ...]) -> _Counts:
    """A step on `inputs`, counted, that leaves everything as it was."""
    counts = _Counts(model)
    buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
    try:
        with torch.random.fork_rng(devices=[]), torch.enable_grad():
            counts.step(inputs if isinstance(inputs, tuple) else (inputs,))
    finally:
        with torch.no_grad():
            for buffer, before in buffers:
                buffer.copy_(before)
    return counts


class _Call:
    """A call of a module that is under way."""

    def __init__(self, module: nn.Module, given: list[torch.Tensor]):
        self.module = module
        self.calls_others = False
        # versions by storage: an output in one of them is a view, or was worked in place
        self.given = {_storage(tensor): tensor._version for tensor in given}


class _Counts:
    def __init__(self, model: nn.Module):
        # Imported here: models load without what runs ranks.
        from dlviz.parallel.pipeline.saved_activations import SavedActivations
        from dlviz.parallel.step.hooks import tensors_in

        self.model = model
        self.tensors_in = tensors_in
        self.saved, self.counted = SavedActivations(model), 0
        self.names = {m: name or type(m).__name__ for name, m in model.named_modules()}
        self.rows = {name: dict.fromkeys(COLUMNS, 0) for name in self.names.values()}
        self.calls: list[_Call] = []
        # by storage: the layer that kept it, the operations that need it, the largest that is there
        self.layer_of: dict[int, str] = {}
        self.needed_by: dict[int, list[str]] = {}
        self.kept: dict[int, torch.Tensor] = {}
        self.owner: dict[nn.Parameter, str] = {}  # the first layer that has it
        for module, name in self.names.items():
            for parameter in module.parameters(recurse=False):
                if self.owner.setdefault(parameter, name) == name:
                    self.rows[name]["weights"] += parameter.nbytes

    def step(self, inputs: tuple[torch.Tensor, ...]) -> None:
        """Go forward and backward, without leaving gradients."""
        handles = []
        for module in self.names:
            handles.append(module.register_forward_pre_hook(self.enter, with_kwargs=True))
            handles.append(module.register_forward_hook(self.leave))
        try:
            with self.saved:
                outputs = self.model(*inputs)
        finally:
            for handle in handles:
                handle.remove()
        self.find(outputs)
        ends = [tensor.sum() for tensor in self.tensors_in(outputs) if tensor.requires_grad]
        learnt = [parameter for parameter in self.owner if parameter.requires_grad]
        if ends and learnt:
            found = torch.autograd.grad(ends, learnt, allow_unused=True)
            for parameter, gradient in zip(learnt, found, strict=True):
                if gradient is not None:
                    self.rows[self.owner[parameter]]["weight_gradients"] += gradient.nbytes

    def enter(self, module: nn.Module, inputs: Any, keywords: Any) -> None:
        self.attribute()
        if self.calls:
            self.calls[-1].calls_others = True
        own = [*module.parameters(recurse=False), *module.buffers(recurse=False)]
        self.calls.append(_Call(module, [*self.tensors_in((inputs, keywords)), *own]))

    def leave(self, module: nn.Module, inputs: Any, outputs: Any) -> None:
        self.attribute()
        call = self.calls.pop()
        if call.calls_others:
            return
        row = self.rows[self.names[module]]
        for tensor in self.tensors_in(outputs):
            before = call.given.get(_storage(tensor))
            if before == tensor._version:
                continue  # a view
            if before is None:
                row["outputs"] += tensor.nbytes
                call.given[_storage(tensor)] = tensor._version
            if tensor.requires_grad:
                tensor.register_hook(lambda gradient, row=row: _add(row, gradient))

    def attribute(self) -> None:
        """What autograd kept since the last call began or ended is that of the call under way."""
        if self.calls:
            name = self.names[self.calls[-1].module]
            self.rows[name]["kept"] += self.saved.nbytes - self.counted
            for place in islice(self.saved.held, len(self.layer_of), None):
                self.layer_of[place] = name
        self.counted = self.saved.nbytes

    def find(self, outputs: Any) -> None:
        """Look up in the graph of `outputs` which operations need what was kept."""
        nodes: list[Any] = [tensor.grad_fn for tensor in self.tensors_in(outputs)]
        seen: set[Any] = set()
        while nodes:
            node = nodes.pop()
            if node is None or node in seen:
                continue
            seen.add(node)
            nodes += [before for before, _ in node.next_functions]
            for name, tensor in _saved_by(node):
                place = _storage(tensor)
                if place in self.saved.held:
                    self.needed_by.setdefault(place, []).append(name)
                    before = self.kept.setdefault(place, tensor)
                    self.kept[place] = max(before, tensor, key=lambda one: one.nbytes)


def _add(row: dict[str, int], gradient: torch.Tensor) -> None:
    row["output_gradients"] += gradient.nbytes


def _saved_by(node: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """What an operation has saved for its backward, and what it calls that."""
    operation = re.sub(r"Backward\d*$", "", node.name()).removeprefix("_")
    if hasattr(node, "saved_tensors"):  # an autograd.Function, whose tensors have no names
        yield from ((operation, tensor) for tensor in node.saved_tensors if tensor is not None)
    for name in dir(node):
        if name.startswith("_saved_"):
            value = getattr(node, name)
            for tensor in value if isinstance(value, tuple | list) else [value]:
                if isinstance(tensor, torch.Tensor):
                    yield f"{operation} {name.removeprefix('_saved_')}", tensor


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
