"""What hooks on a user's model need: to see tensors, to know a backward pass, to stay behind when
the model is copied."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NoReturn

import torch


class Hook:
    """A function that a strategy hangs on a module of the user's. It belongs to the rank: a copy of
    the module, in memory or in a file, has a hook that does nothing."""

    def __init__(self, function: Callable[..., Any] | None = None):
        self._function = function

    def __call__(self, *given: Any) -> Any:
        return None if self._function is None else self._function(*given)

    def __reduce__(self) -> tuple[type[Hook], tuple[()]]:
        return Hook, ()  # what copy.deepcopy, torch.save and a rank's result go by


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


def wanted(given: Sequence[torch.Tensor], parameters: Sequence[torch.Tensor]) -> bool:
    """Whether one of the tensors given to a layer, its own parameters aside, has a gradient."""
    own = {p.untyped_storage().data_ptr() for p in parameters}
    return any(t.requires_grad and t.untyped_storage().data_ptr() not in own for t in given)


def at_end_of_backward(function: Any) -> None:
    """Call `function` when the backward pass under way is over, before `backward()` returns."""
    torch.autograd.Variable._execution_engine.queue_callback(function)  # as torch's own DDP does


def writes_gradients(parameters: Iterable[torch.Tensor]) -> bool:
    """In a hook: whether the backward pass under way is a `backward()`, which adds to `.grad` of
    `parameters` or, where it reaches none of them, of another leaf. `torch.autograd.grad` is not:
    it adds to nobody's."""
    edges = (torch.autograd.graph.get_gradient_edge(p).node for p in parameters)
    try:
        return any(map(_runs, edges)) or any(map(_runs, _leaves(torch._C._current_autograd_node())))
    except RuntimeError:  # a leaf of which torch.autograd.grad wants the gradient
        return False


def _runs(node: Any) -> bool:
    return torch._C._will_engine_execute_node(node)  # as torch's register_multi_grad_hook does


def _leaves(node: Any) -> Iterator[Any]:
    """The leaves of the graph below `node`."""
    seen, nodes = {None}, [node]
    while nodes:
        node = nodes.pop()
        if node not in seen:
            seen.add(node)
            nodes += [child for child, _ in node.next_functions]
            if not node.next_functions:
                yield node


def dense(gradient: torch.Tensor) -> torch.Tensor:
    """A sparse gradient, as of nn.Embedding(sparse=True), with all its zeros; another as it is."""
    return gradient.to_dense() if gradient.layout is not torch.strided else gradient


def no_graph() -> NoReturn:
    """A backward pass that is to leave gradients with a graph."""
    raise ValueError(
        "backward(create_graph=True) asks for gradients with a graph, and a mean over ranks has "
        "none: use torch.autograd.grad(..., create_graph=True), and add what you make of it to the "
        "loss."
    )
