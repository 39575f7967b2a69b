"""One forward of some layers that saves nothing but its inputs, and runs again in the backward: the
segment of recomputed.py, which says how."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.modules.batchnorm import _NormBase
from torch.utils._pytree import tree_flatten, tree_unflatten
from torch.utils.checkpoint import get_device_states, set_device_states

from dlviz.cluster import label
from dlviz.parallel.step.hooks import tensors_in


def run(layers: Sequence[nn.Module], x: Any, keywords: dict[str, Any]) -> Any:
    for layer in layers:
        x = layer(x, **keywords)
    return x


class Enough(Exception):
    """The segment that runs again has computed all that its backward needs."""


class Segment:
    """One forward of some layers, which can be computed again."""

    def __init__(self, layers: list[nn.Module], name: str, x: Any, keywords: dict[str, Any]):
        self.layers, self.name = layers, name
        leaves, self.tree = tree_flatten((x, keywords))
        given = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        self.leaves = [Tensor if isinstance(leaf, Tensor) else leaf for leaf in leaves]
        # autograd saves the inputs, so that those who watch what it saves see them
        self.inputs = Inputs.apply(torch.empty(0, requires_grad=True), *given).grad_fn
        self.devices = get_device_states(*given)
        self.random = torch.get_rng_state()
        kind = next((tensor.device.type for tensor in given), "cpu")
        self.autocast = {
            "device_type": kind,
            "enabled": torch.is_autocast_enabled(kind),
            "dtype": torch.get_autocast_dtype(kind),
            "cache_enabled": torch.is_autocast_cache_enabled(),
        }
        self.given = given  # until the forward is over
        self.forms: list[Any] = []  # of each tensor that the forward saved
        self.tensors: dict[int, Tensor] = {}  # those computed again and not yet used, by number
        self.buffers: list[tuple[nn.Module, str, Tensor]] = []  # that it changed, as they were

    def forward(self) -> Any:
        """The layers' outputs."""
        given, self.given = self.given, []
        versions = [tensor._version for tensor in given]
        before = [(m, name, b, b._version, b.clone()) for m, name, b in buffers(self.layers)]
        # before others' hooks on the outputs: the segment runs again before any of its backward
        hook = self.layers[-1].register_forward_hook(self._run_at_gradient(), prepend=True)
        try:
            with saved_tensors_hooks(self.pack, self.unpack):
                x = self._run(given)
        finally:
            hook.remove()
        self.buffers = [
            (module, name, old)
            for module, name, buffer, version, old in before
            if buffer._version != version or isinstance(module, _NormBase)  # which counts none
        ]
        if [tensor._version for tensor in given] != versions:
            raise ValueError(
                f"{self.name}: the first, {type(self.layers[0]).__name__}, changes its input in "
                "place, so that no segment can begin with it: make it work out of place, or use "
                "another number of segments."
            )
        return x

    def pack(self, tensor: Tensor) -> int:
        """In the forward: the number of a tensor, in its place."""
        self.forms.append(form(tensor))
        return len(self.forms) - 1

    def unpack(self, number: int) -> Tensor:
        """In the backward: the tensor of this number."""
        if number not in self.tensors:
            self.run_again()
        return self.tensors.pop(number)

    def run_again(self) -> None:
        """Compute all that the forward saved."""
        self.tensors = {}

        def collect(tensor: Tensor) -> Tensor:
            number = len(self.tensors)
            if form(tensor) != self.forms[number]:
                raise self._differs()
            self.tensors[number] = tensor.detach()
            if not self._is_of_weight(tensor):
                label("activations", tensor)
            if len(self.tensors) == len(self.forms):
                raise Enough
            return self.tensors[number]

        try:
            with self._as_before(), saved_tensors_hooks(collect, lambda saved: saved):
                self._run(self.inputs.saved_tensors)
        except Enough:
            return
        if self.forms:
            raise self._differs()

    def _run(self, given: Sequence[Tensor]) -> Any:
        tensors = iter(given)
        leaves = [next(tensors) if leaf is Tensor else leaf for leaf in self.leaves]
        return run(self.layers, *tree_unflatten(leaves, self.tree))

    def _is_of_weight(self, tensor: Tensor) -> bool:
        """Whether it is a parameter's memory: which that is may change as the layers run."""
        at = tensor.untyped_storage().data_ptr()
        parameters = (p for each in self.layers for p in each.parameters())
        return any(p.untyped_storage().data_ptr() == at for p in parameters)

    def _differs(self) -> ValueError:
        return ValueError(
            f"{self.name} cannot run again: a parameter has changed since their forward, or a "
            "layer does not compute the same twice. Call backward before the update."
        )

    @contextmanager
    def _as_before(self) -> Iterator[None]:
        """In the state in which the forward began, and afterwards in that of now."""
        numbers, states = self.devices
        now = [(module, name, module._buffers[name]) for module, name, _ in self.buffers]
        with torch.random.fork_rng(numbers), torch.autocast(**self.autocast), torch.enable_grad():
            torch.set_rng_state(self.random)
            set_device_states(numbers, states)
            try:
                for module, name, old in self.buffers:
                    module._buffers[name] = old.clone()
                yield
            finally:
                for module, name, buffer in now:
                    module._buffers[name] = buffer

    def _run_at_gradient(self) -> Any:
        """A forward hook: run again when the output's gradient is there."""
        own = weakref.ref(self)

        def at_gradient(gradient: Tensor) -> None:
            segment = own()
            if segment is not None and segment.forms and not segment.tensors:
                segment.run_again()

        def hook(layer: nn.Module, inputs: Any, output: Any) -> None:
            for tensor in tensors_in(output):
                if tensor.requires_grad:
                    tensor.register_hook(at_gradient)

        return hook


class Inputs(torch.autograd.Function):
    """Saves tensors for a backward that asks for them and never runs."""

    @staticmethod
    def forward(ctx: Any, anchor: Tensor, *tensors: Tensor) -> Tensor:
        ctx.save_for_backward(*tensors)
        return torch.empty(0)


def form(tensor: Tensor) -> tuple[Any, ...]:
    """What a saved tensor has to be the second time; a trained one has not changed either."""
    return tensor.shape, tensor.dtype, tensor._version if tensor.requires_grad else None


def buffers(layers: Sequence[nn.Module]) -> Iterator[tuple[nn.Module, str, Tensor]]:
    """The buffers that a forward may change: those of modules in training."""
    for layer in layers:
        for module in layer.modules():
            for name, buffer in module._buffers.items() if module.training else ():
                if buffer is not None:
                    yield module, name, buffer
