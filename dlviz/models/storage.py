"""What each layer of a network stores in one step of training, counted by hooks.

    layer storage = |w| + |f(o)| + |∇w| + |∇o|     weights, output, and the gradients of both

A layer is a module whose forward calls no other one. The formula counts all that a step makes.
autograd saves less of the forward for the backward, some outputs and the input: the column `kept`.

Source: the lecture's formula; `kept` is what torch.autograd.graph.saved_tensors_hooks sees.
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

    One row per layer, by name: its `kind` (class), the formula's `weights outputs weight_gradients
    output_gradients`, and `kept`, what autograd saves of the layer's forward (weights aside). Most
    of that lies in outputs and inputs, so do not add it to them.

    Weights that layers share count in the first of them, outputs of a layer that is used twice
    count twice. A view of the input (Flatten) stores nothing; a layer that works in place has a
    gradient but no output; an unused one has only weights; what a module's forward saves outside
    its layers (a function) is in the module's row. A layer that stores nothing has no row. The step
    leaves weights, gradients, buffers and the random generator unchanged.
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


def saved_tensors(
    model: nn.Module, inputs: torch.Tensor | tuple[torch.Tensor, ...]
) -> pandas.DataFrame:
    """What autograd saves of a forward of `model`, tensor by tensor (`layer_storage` has the sums):
    rows of `layer operation shape dtype nbytes`, in the order of saving.

    The operation is the one whose backward needs the tensor, with its name there: "Addmm mat1";
    several operations may need one tensor. Tensors in one storage are one row.
    """
    import pandas

    counts, rows = _counted(model, inputs), []
    for place, (first, end) in counts.saved.held.items():
        if place not in counts.largest:
            continue  # of an unused output: already freed
        tensor = counts.largest[place]
        operations = ", ".join(dict.fromkeys(counts.needed_by[place]))
        about = tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."), end - first
        rows.append((counts.layer_of[place], operations, *about))
    return pandas.DataFrame(rows, columns=["layer", "operation", "shape", "dtype", "nbytes"])


def _counted(model: nn.Module, inputs: torch.Tensor | tuple[torch.Tensor, ...]) -> _Counts:
    """The counts of a step on `inputs`, which leaves everything unchanged."""
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
    """A running call of a module."""

    def __init__(self, module: nn.Module, given: list[torch.Tensor]):
        self.module = module
        self.calls_others = False
        # versions by storage: an output in one of them is a view, or was changed in place
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
        # by storage: the layer that saved it, the operations that need it, its largest tensor
        self.layer_of: dict[int, str] = {}
        self.needed_by: dict[int, list[str]] = {}
        self.largest: dict[int, torch.Tensor] = {}
        self.owner: dict[nn.Parameter, str] = {}  # the first layer that has it
        for module, name in self.names.items():
            for parameter in module.parameters(recurse=False):
                if self.owner.setdefault(parameter, name) == name:
                    self.rows[name]["weights"] += parameter.nbytes

    def step(self, inputs: tuple[torch.Tensor, ...]) -> None:
        """Run forward and backward, without leaving gradients."""
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
        """Count what autograd has saved since the last call began or ended for the current call."""
        if self.calls:
            name = self.names[self.calls[-1].module]
            self.rows[name]["kept"] += self.saved.nbytes - self.counted
            for place in islice(self.saved.held, len(self.layer_of), None):
                self.layer_of[place] = name
        self.counted = self.saved.nbytes

    def find(self, outputs: Any) -> None:
        """Find the operations in the graph of `outputs` that need the saved tensors."""
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
                    before = self.largest.setdefault(place, tensor)
                    self.largest[place] = max(before, tensor, key=lambda one: one.nbytes)


def _add(row: dict[str, int], gradient: torch.Tensor) -> None:
    row["output_gradients"] += gradient.nbytes


def _saved_by(node: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors that an operation has saved for its backward, by name."""
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
