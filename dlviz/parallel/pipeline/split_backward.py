"""A backward in two: I, which the stage before waits for, and W, which nobody waits for.

    x ----> layer 1 ----> layer 2 ----> output        F
    dx <--- layer 1 <---- layer 2 <---- gradient      I   along the path of the activations
               |             |
               v             v
              dw1           dw2                       W   off the path, to the weights

I goes back along the path of the activations alone and keeps the gradient that comes to each
operation which has weights. W starts from each of these and goes to its weights alone. So an
operation that has both is run twice, once for each of its gradients, and no gradient is computed
twice or before its time.

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
    """A forward whose backward comes as I and W."""

    def needs_leaf(self) -> bool:
        return True  # the path of the activations begins there

    def backward_input(self, gradient: torch.Tensor) -> torch.Tensor | None:
        """I: the gradient of the input, where it is wanted, and no weight's."""
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
        # The graph is retained: W goes through the same operations once more.
        found = torch.autograd.grad(
            [root], sought, [gradient], retain_graph=True, allow_unused=True
        )
        for edge, arrived in zip(weighted, found[len(inputs) :], strict=True):
            if arrived is not None:
                self._reached.setdefault(edge.node, []).append((edge, arrived))
        return self.of_input(found[0] if inputs else None)

    def backward_weight(self, inside: Inside = lambda node: nullcontext()) -> None:
        """W, after I: add to the weights' gradients, and compute no other. An operation's part of
        it runs in `inside(node)`."""
        ends: Arrived = []
        for node, arrived in self._reached.items():
            # Without a path the gradient has arrived at the root, and all of the backward is W.
            if node in self._path:
                with inside(node):
                    arrived = self._off_path(node, arrived)
            ends += arrived
        if ends:
            torch.autograd.backward([edge for edge, _ in ends], [grad for _, grad in ends])

    def _off_path(self, node: Node, arrived: Arrived) -> Arrived:
        """What `node` makes of the gradient that arrived, where that leaves the path."""
        self._restrict(node, lambda child: child not in self._path)
        after = [
            (child, at) for child, at in dict.fromkeys(node.next_functions) if child is not None
        ]
        off = [GradientEdge(child, at) for child, at in after if child not in self._path]
        # Weights that are reached along the path too: there it is another operation's use of them.
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
        """Have a custom autograd.Function compute the gradients of the wanted inputs alone; for
        torch's own operations the engine sees to that."""
        if hasattr(node, "needs_input_grad"):
            needs = self._needs.setdefault(node, node.needs_input_grad)
            children = (child for child, _ in node.next_functions if child is not None)
            node.needs_input_grad = tuple(need and wanted(next(children)) for need in needs)

    @contextmanager
    def watching(self, stage: nn.Module) -> Iterator[None]:
        """Lets path and weights be told apart afterwards.

        Each use of a parameter gets a place of its own in the graph. The path begins at the input
        or, where that has no gradient (numbers of words, say), at the layers that take it in.
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
        # What comes in has no gradient, so no path can begin before this layer.
        begins = given and not any(tensor.requires_grad for tensor in given)
        if begins and isinstance(output, torch.Tensor) and output.requires_grad:
            self._starts.add(get_gradient_edge(output).node)


class _Apart(dict):
    """The parameters of a module; each time that one is asked for, an alias of its own."""

    def __getitem__(self, name: str) -> torch.Tensor | None:
        parameter = super().__getitem__(name)
        if parameter is None or is_lazy(parameter) or not parameter.requires_grad:
            return parameter
        return parameter.view_as(parameter)  # a node of its own in the graph: this use alone


def _path(root: GradientEdge, starts: set[Node]) -> tuple[set[Node], list[GradientEdge]]:
    """The nodes from which one of `starts` is reached; and the places where a gradient comes to one
    that leads off the path as well. Without a path that is the root."""
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
    onward = list(path)  # back from the starts: all that leads to one is on the path
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
