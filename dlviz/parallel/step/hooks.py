"""Helpers for hooks on a user's model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NoReturn

import torch


class Hook:
    """A strategy's hook on a user's module. It belongs to the rank: in a copy of the module, in
    memory or in a file, the hook does nothing."""

    def __init__(self, function: Callable[..., Any] | None = None):
        self._function = function

    def __call__(self, *given: Any) -> Any:
        return None if self._function is None else self._function(*given)

    def __reduce__(self) -> tuple[type[Hook], tuple[()]]:
        return Hook, ()  # for copy.deepcopy, torch.save and a rank's result


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """The tensors in a module's inputs or outputs: a tensor, or lists, tuples and dicts of them."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors_in(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from tensors_in(item)


def wanted(given: Sequence[torch.Tensor], parameters: Sequence[torch.Tensor]) -> bool:
    """Whether one of the tensors given to a layer, except its parameters, needs a gradient."""
    own = {p.untyped_storage().data_ptr() for p in parameters}
    return any(t.requires_grad and t.untyped_storage().data_ptr() not in own for t in given)


def at_end_of_backward(function: Any) -> None:
    """Call `function` when the current backward pass is over, before `backward()` returns."""
    torch.autograd.Variable._execution_engine.queue_callback(function)  # as torch's own DDP does


def in_backward() -> bool:
    """Whether this thread is inside a backward pass, where a checkpointed layer runs again."""
    return torch._C._current_graph_task_id() >= 0


def writes_gradients(parameters: Iterable[torch.Tensor]) -> bool:
    """In a hook: whether the current backward pass is a `backward()`, which adds to `.grad` of
    `parameters` or, if it reaches none of them, of another leaf; and not a `torch.autograd.grad`,
    which adds to none."""
    # One that was frozen meanwhile has no edge, and gets no gradient.
    trained = [p for p in parameters if p.requires_grad]
    edges = (torch.autograd.graph.get_gradient_edge(p).node for p in trained)
    try:
        return any(map(_runs, edges)) or any(map(_runs, _leaves(torch._C._current_autograd_node())))
    except RuntimeError:  # torch.autograd.grad wants the gradient of a leaf
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
    """A sparse gradient, as of nn.Embedding(sparse=True), made dense; a dense one as it is."""
    return gradient.to_dense() if gradient.layout is not torch.strided else gradient


def no_graph() -> NoReturn:
    """Refuse a backward pass that would leave gradients with a graph."""
    raise ValueError(
        "backward(create_graph=True) asks for gradients with a graph, and a mean over ranks has "
        "none: use torch.autograd.grad(..., create_graph=True), and add the result to the loss."
    )
