"""A model whose layers are on the host: hooks that bring each one, and send its gradients down."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_map

from dlviz.cluster import Comm, Handle
from dlviz.models.mean_of import Weight
from dlviz.parallel.offload.arena import Arena
from dlviz.parallel.offload.copies import Copies
from dlviz.parallel.offload.host import HostLane
from dlviz.parallel.offload.layers import LOW, HostLayer
from dlviz.parallel.offload.stream import Stream
from dlviz.parallel.step.hooks import Hook, dense, tensors_in
from dlviz.parallel.step.layers import LayerSpans, layers_of
from dlviz.parallel.step.sharded_step import learn, weigh


class Offloaded(nn.Module):
    """`model`, called as before inside `learn`, with its `layers` on the host."""

    def __init__(
        self,
        comm: Comm,
        model: nn.Module,
        layers: Sequence[HostLayer],
        device: Arena,
        host: Arena,
        weight: Weight,
        *,
        how: str,
        prefetch: int,
        bandwidth: float | None,
        clip: float | None,
    ):
        super().__init__()
        self.model, self._comm, self._layers, self._device = model, comm, layers, device
        self._weight, self._late, self._prefetch = weight, how == "late", prefetch
        self._low = any(layer.values is not layer.master for layer in layers)
        self.up, self.down = Copies(comm, "h2d", bandwidth), Copies(comm, "d2h", bandwidth)
        self.stream = Stream(layers, device, self.up, prefetch + 1, stay=how != "stream")
        self._host = HostLane(comm, layers, host, self.stream, clip)
        self._leaving: deque[Handle] = deque()  # gradients that are still on the device
        self._share = 0.0
        self._active = False
        self._hooks: list[Any] = []
        self._register()

    def _register(self) -> None:
        of = {p: layer for layer in self._layers for p in layer.parameters}
        modules = [
            (module, [*dict.fromkeys(of[p] for p in module.parameters(recurse=False))])
            for module in layers_of(self.model).values()
        ]
        keep, stream = self._hooks.append, self.stream
        for module, own in modules:  # what is waited for is not part of a layer's span
            keep(module.register_forward_pre_hook(self._hook(stream.need, own)))
            begins = self._hook(stream.need_backward, own)
            keep(module.register_forward_hook(Hook(_on_outputs(begins))))
        LayerSpans(self._comm, self.model)
        for module, own in modules:
            keep(module.register_forward_hook(self._hook(stream.end_forward, own)))
        for p, layer in of.items():
            if p.requires_grad:
                keep(p.register_post_accumulate_grad_hook(Hook(self._has_gradient(layer))))

    def _hook(self, act: Callable[[HostLayer], None], layers: Sequence[HostLayer]) -> Hook:
        def hook(*_: Any) -> None:
            for layer in layers if self._active else ():
                act(layer)

        return Hook(hook)

    def _has_gradient(self, layer: HostLayer) -> Callable[[nn.Parameter], None]:
        def hook(p: nn.Parameter) -> None:
            layer.missing.discard(p)
            if self._active and not layer.missing:
                self._send(layer)

        return hook

    def learn(self, comm: Comm, net: nn.Module, *batch: Any) -> tuple[float, float]:
        """Forward, backward and update; before and after, the parameters are the host's."""
        self.stream.begin()
        if self._late:
            self._update_late()  # while this step computes
        self._host.begin()
        for layer in self._layers:
            layer.show(on_device=True)
            layer.missing, layer.sent = {*layer.trained}, False
        self._active = True
        try:
            with self._device:
                learnt = learn(comm, net, *batch)
            self._finish()
            return learnt
        finally:
            self._active = False
            for layer in self._layers:
                layer.show(on_device=False)

    def forward(self, *inputs: Any, **keywords: Any) -> Any:
        self._share = weigh(self._comm, self._weight, *inputs, **keywords)
        inputs, keywords = tree_map(self._bring, (inputs, keywords))
        outputs = self.model(*inputs, **keywords)
        self.stream.turn()
        return tree_map(self._widen, outputs) if self._low else outputs

    def _bring(self, tensor: torch.Tensor) -> torch.Tensor:
        """A copy of an input on the device, as the model takes it."""
        low = self._low and tensor.is_floating_point()
        return tensor.to(LOW if low else tensor.dtype, copy=True)

    def _widen(self, output: Any) -> Any:
        """An output for a loss in float32."""
        return output.float() if getattr(output, "dtype", None) == LOW else output

    def _send(self, layer: HostLayer) -> None:
        """The gradients of `layer` are complete: they go down, and their memory is freed then."""
        pairs = [
            (slot, dense(p.grad).flatten())
            for slot, p in zip(layer.slots, layer.trained, strict=True)
            if p.grad is not None
        ]
        layer.there, layer.sent = [p.grad is not None for p in layer.trained], True
        for p in layer.trained:
            p.grad = None
        self.stream.release(layer)
        while len(self._leaving) > self._prefetch:  # they have prefetch + 1 buffers too
            self._leaving.popleft().wait()
        layer.arrival = self.down.copy(pairs, layer.name, after=layer.reduced)
        self._leaving.append(layer.arrival)
        if not self._late:
            self._host.take(self._share)

    def _finish(self) -> None:
        """Backward is over: send what got no gradient, and wait for the host."""
        for layer in self._host.order:
            if not layer.sent:
                self._send(layer)
        self.stream.end()
        if not self._late:
            self._host.take_all(self._share)
        self._host.settle()

    def _update_late(self) -> None:
        """Have the host update by the gradients of the step before, if there was one."""
        if self._host.order[0].sent:
            self._host.begin()
            self._host.take_all(self._share)

    def end(self) -> None:
        """Training is over."""
        if self._late:
            self._update_late()
            self._host.settle()
        for lane in (self.up, self.down, self._host.lane):
            lane.close()

    def remove_hooks(self) -> None:
        """Leave the model as it was."""
        for hook in self._hooks:
            hook.remove()


def _on_outputs(begins: Hook) -> Callable[..., None]:
    """A forward hook that has `begins` called when a gradient of the outputs is ready."""

    def hook(module: nn.Module, inputs: Any, output: Any) -> None:
        for tensor in tensors_in(output):
            if tensor.requires_grad:
                tensor.register_hook(begins)

    return hook
