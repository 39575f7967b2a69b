"""A backward in two: I, for which the previous stage waits, and W, for which no stage waits.

    x ----> layer 1 ----> layer 2 ----> output        F
    dx <--- layer 1 <---- layer 2 <---- gradient      I   along the path of the activations
               |             |
               v             v
              dw1           dw2                       W   off the path, to the weights

I goes back along the path of the activations only, and saves the gradient that arrives at each
operation with weights. W goes from each of these to its weights only. So an operation with both
runs twice, once for each of its gradients, and no gradient is computed twice or early.

Source: Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024, section 2. In PyTorch:
torch.distributed.pipelining's stage_backward_input and stage_backward_weight.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import nn
from torch.autograd.graph import GradientEdge, Node, get_gradient_edge
from torch.nn.parameter import is_lazy

from dlviz.parallel.pipeline.stage_backward import Forward

Arrived = list[tuple[GradientEdge, torch.Tensor]]  # the gradient at a place in the graph
Inside = Callable[[Node], AbstractContextManager[object]]


class SplitForward(Forward):
    """A forward whose backward is split into I and W."""

    def needs_leaf(self) -> bool:
        return True  # where the path of the activations begins

    def backward_input(self, gradient: torch.Tensor) -> torch.Tensor | None:
        """I: the gradient of the input, where it is wanted, and of no weight."""
        if not self.root.requires_grad:
            return self.of_input(None)
        root = get_gradient_edge(self.root)
        self._path, weighted = _path(root, self._starts)
        for node in self._path:
            self._restrict(node, self._path.__contains__)
        inputs: list[GradientEdge] = []
        if self.wanted and self.leaf is not None:
            inputs = [get_gradient_edge(self.leaf)]
        if not (sought := [*inputs, *weighted]):
            return None
        # The graph is retained: W runs the same operations once more.
        found = torch.autograd.grad(
            [root], sought, [gradient], retain_graph=True, allow_unused=True
        )
        for edge, arrived in zip(weighted, found[len(inputs) :], strict=True):
            if arrived is not None:
                self._reached.setdefault(edge.node, []).append((edge, arrived))
        return self.of_input(found[0] if inputs else None)

    def backward_weight(self, inside: Inside = lambda node: nullcontext()) -> None:
        """W, after I: add to the weights' gradients, and compute no others. Each operation's part
        runs in `inside(node)`."""
        ends: Arrived = []
        for node, arrived in self._reached.items():
            # Without a path the gradient is at the root, and the whole backward is W.
            if node in self._path:
                with inside(node):
                    arrived = self._off_path(node, arrived)
            ends += arrived
        if ends:
            torch.autograd.backward([edge for edge, _ in ends], [grad for _, grad in ends])

    def _off_path(self, node: Node, arrived: Arrived) -> Arrived:
        """The gradients that `node` computes from `arrived`, off the path."""
        self._restrict(node, lambda child: child not in self._path)
        after = [
            (child, at) for child, at in dict.fromkeys(node.next_functions) if child is not None
        ]
        off = [GradientEdge(child, at) for child, at in after if child not in self._path]
        # Weights can be reached along the path too, through another operation that uses them.
        on = [child for child, _ in after if child in self._path]
        stops = [child.register_prehook(_nothing) for child in on]
        try:
            found = torch.autograd.grad(
                [edge for edge, _ in arrived],
                off,
                [grad for _, grad in arrived],
                retain_graph=True,
                allow_unused=True,
            )
        finally:
            for stop in stops:
                stop.remove()
        return [(edge, grad) for edge, grad in zip(off, found, strict=True) if grad is not None]

    def _restrict(self, node: Any, wanted: Callable[[Node], bool]) -> None:
        """Make a custom autograd.Function compute only the gradients of the wanted inputs; for
        torch's own operations the engine does so."""
        if hasattr(node, "needs_input_grad"):
            needs = self._needs.setdefault(node, node.needs_input_grad)
            children = (child for child, _ in node.next_functions if child is not None)
            node.needs_input_grad = tuple(need and wanted(next(children)) for need in needs)

    @contextmanager
    def watching(self, stage: nn.Module) -> Iterator[None]:
        """Record what distinguishes path and weights later.

        Each use of a parameter gets its own node in the graph. The path begins at the input or,
        where that has no gradient (numbers of words, say), at the layers that take it.
        """
        self._starts: set[Node] = set()  # of the path
        self._path: set[Node] = set()
        self._reached: dict[Node, Arrived] = {}
        self._needs: dict[Any, tuple[bool, ...]] = {}
        modules = [module for module in stage.modules() if module._parameters]
        saved = [module._parameters for module in modules]
        hooks = []
        if self.leaf is not None:
            self._starts.add(get_gradient_edge(self.leaf).node)
        else:
            layers = [module for module in stage.modules() if not any(module.children())]
            hooks = [layer.register_forward_hook(self._begin_path) for layer in layers]
        try:
            for module in modules:
                module.__dict__["_parameters"] = _Apart(module._parameters)
            yield
        finally:
            for module, parameters in zip(modules, saved, strict=True):
                module.__dict__["_parameters"] = parameters
            for hook in hooks:
                hook.remove()

    def _begin_path(self, layer: nn.Module, args: tuple, output: Any) -> None:
        given = [arg for arg in args if isinstance(arg, torch.Tensor)]
        # The inputs have no gradient, so no path can begin before this layer.
        begins = given and not any(tensor.requires_grad for tensor in given)
        if begins and isinstance(output, torch.Tensor) and output.requires_grad:
            self._starts.add(get_gradient_edge(output).node)


class _Apart(dict):
    """The parameters of a module; each access returns a new alias."""

    def __getitem__(self, name: str) -> torch.Tensor | None:
        parameter = super().__getitem__(name)
        if parameter is None or is_lazy(parameter) or not parameter.requires_grad:
            return parameter
        return parameter.view_as(parameter)  # its own node in the graph, for this use only


def _path(root: GradientEdge, starts: set[Node]) -> tuple[set[Node], list[GradientEdge]]:
    """The path: the nodes from which one of `starts` is reached; and the edges at which a gradient
    arrives at a node that also leads off the path. Without a path that is the root."""
    came_from: dict[Node, list[Node]] = defaultdict(list)
    places: dict[Node, set[int]] = defaultdict(set, {root.node: {root.output_nr}})
    nodes = [root.node]
    for node in nodes:
        for child, place in node.next_functions:
            if child is not None:
                if child not in came_from:
                    nodes.append(child)
                came_from[child].append(node)
                places[child].add(place)
    path = starts & places.keys()
    onward = list(path)  # back from the starts: every node that leads to one is on the path
    for node in onward:
        new = [parent for parent in came_from[node] if parent not in path]
        path.update(new)
        onward += new
    if not path:
        return path, [root]
    weighted = [
        GradientEdge(node, place)
        for node in nodes
        if node in path
        and any(child is not None and child not in path for child, _ in node.next_functions)
        for place in sorted(places[node])
    ]
    return path, weighted


def _nothing(gradients: tuple[torch.Tensor | None, ...]) -> tuple[None, ...]:
    return (None,) * len(gradients)
