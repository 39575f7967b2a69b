"""Training with the host as memory: the update rule, or all parameters too, are on the host.

    optimizer    compute |forward|--backward--|wait   |forward|      the host averages and updates
                 d2h             |2|1|0|                             a layer while backward goes on
                 host              |2 |1 |0 |
                 h2d                          |0|1|2|

    late         compute |forward|--backward--|forward|--backward--|  with the gradients of the step
                 d2h             |2|1|0|              |2|1|0|         before: a step to hide behind
                 host                         |2 |1 |0 |

    stream       compute | |0|1|2|-2-|-1-|-0-|       only prefetch + 1 layers are on the device
                 h2d     |0|1|2|  |1|0|
                 d2h                 |2| |1| |0|

Source: J. Ren et al., "ZeRO-Offload: Democratizing Billion-Scale Model Training", USENIX ATC 2021
(its delayed parameter update is `late`); S. Rajbhandari et al., "ZeRO-Infinity", SC 2021. In
PyTorch: torch.distributed.fsdp.CPUOffloadPolicy.
"""

from __future__ import annotations

import copy
from collections import deque
from typing import Any, Unpack

import torch
from torch import nn
from torch.utils._pytree import tree_map

from dlviz.cluster import Comm, Handle
from dlviz.counts import check_counts
from dlviz.machine.topology import require
from dlviz.models.mean_of import in_step
from dlviz.models.options import clipped, squares
from dlviz.parallel.offload.arena import Arena, arenas
from dlviz.parallel.offload.copies import Copies
from dlviz.parallel.offload.layers import LOW, Layer, layers_of
from dlviz.parallel.offload.stream import Stream
from dlviz.parallel.step.batches import Batches
from dlviz.parallel.step.hooks import Hook, dense, tensors_in
from dlviz.parallel.step.layers import LayerSpans
from dlviz.parallel.step.layers import layers_of as modules_of
from dlviz.parallel.step.prices import update_seconds
from dlviz.parallel.step.replicas import start_alike
from dlviz.parallel.step.sharded_step import (
    Loss,
    Weight,
    all_reduce_called,
    counting,
    learn,
    no_mean,
    rows,
    weigh,
)
from dlviz.parallel.step.training import Options, Result, Training
from dlviz.parallel.update_rules import AnyRule, Moves, as_rule

HOW = ("optimizer", "late", "stream")
PRECISIONS = ("float32", "bfloat16")


class Offloaded(nn.Module):
    """`model`, called as before inside `learn`, with its `layers` on the host."""

    def __init__(
        self,
        comm: Comm,
        model: nn.Module,
        layers: list[Layer],
        arenas: tuple[Arena, Arena],
        weight: Weight,
        how: str,
        prefetch: int,
        bandwidth: float | None,
        clip: float | None,
    ):
        super().__init__()
        self.model, self._comm, self._layers = model, comm, layers
        self._device, self._host = arenas
        self._weight, self._late, self._prefetch, self._clip = weight, how == "late", prefetch, clip
        self.up, self.down = Copies(comm, "h2d", bandwidth), Copies(comm, "d2h", bandwidth)
        self._lane = comm.lane("host")
        self._all_reduce = all_reduce_called("ring")
        self.stream = Stream(layers, self.up, prefetch + 1, stay=how != "stream")
        self._low = any(layer.values is not layer.master for layer in layers)
        # All ranks reduce the layers in one order, that of the backward pass.
        self._order = [layer for layer in reversed(layers) if layer.trained]
        self._next = 0  # of the order: whose gradients the host reduces next
        self._leaving: deque[Handle] = deque()  # gradients that are still on the device
        self._jobs: list[Handle] = []  # of the host
        self._share = 0.0
        self._active = False
        self._hooks: list[Any] = []
        self._hook(model)

    def _hook(self, model: nn.Module) -> None:
        of = {p: layer for layer in self._layers for p in layer.parameters}
        own = [
            (module, [*dict.fromkeys(of[p] for p in module.parameters(recurse=False))])
            for module in modules_of(model).values()
        ]
        keep = self._hooks.append
        for module, layers in own:  # what is waited for is not part of a layer's span
            before, after = self._before_forward(layers), self._before_backward(layers)
            keep(module.register_forward_pre_hook(Hook(before)))
            keep(module.register_forward_hook(Hook(after)))
        LayerSpans(self._comm, model)
        for module, layers in own:
            keep(module.register_forward_hook(Hook(self._after_forward(layers))))
        for layer in self._layers:
            for p in layer.trained:
                keep(p.register_post_accumulate_grad_hook(Hook(self._has_gradient(layer))))

    def _before_forward(self, layers: list[Layer]) -> Any:
        def hook(*_: Any) -> None:
            for layer in layers if self._active else ():
                self.stream.need(layer)

        return hook

    def _before_backward(self, layers: list[Layer]) -> Any:
        def begin(gradient: torch.Tensor) -> None:
            for layer in layers if self._active else ():
                if not layer.sent:
                    self.stream.move_on(layer)

        def hook(module: nn.Module, inputs: Any, output: Any) -> None:
            for tensor in tensors_in(output) if self._active else ():
                if tensor.requires_grad:
                    tensor.register_hook(begin)

        return hook

    def _after_forward(self, layers: list[Layer]) -> Any:
        def hook(*_: Any) -> None:
            for layer in layers if self._active else ():
                self.stream.release(layer, forward=True)

        return hook

    def _has_gradient(self, layer: Layer) -> Any:
        def hook(p: nn.Parameter) -> None:
            layer.missing.discard(p)
            if self._active and not layer.missing:
                self._send(layer)

        return hook

    # -- a step --------------------------------------------------------------------------------
    def learn(self, comm: Comm, net: nn.Module, *batch: Any) -> tuple[float, float]:
        """Forward, backward and update; before and after, the parameters are the host's."""
        self.stream.begin()
        if self._late:
            self._update_late()  # while this step computes
        self._next = 0
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
        return tree_map(lambda t: t.float() if self._low and t.dtype == LOW else t, outputs)

    def _bring(self, tensor: torch.Tensor) -> torch.Tensor:
        """A copy of an input, as the model takes it, on the device."""
        low = self._low and tensor.is_floating_point()
        return tensor.to(LOW if low else tensor.dtype, copy=True)

    def _send(self, layer: Layer) -> None:
        """The gradients of `layer` are complete: they leave, and their memory is freed then."""
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
            self._reduce_complete()

    def _finish(self) -> None:
        """Backward is over: send what got no gradient, and wait for the host."""
        for layer in self._order:
            if not layer.sent:
                self._send(layer)
        self.stream.end()
        if not self._late:
            self._update_rest()
        self._settle()

    def end(self) -> None:
        """Training is over."""
        if self._late:
            self._update_late()
            self._settle()
        for lane in (self.up, self.down, self._lane):
            lane.close()

    def remove_hooks(self) -> None:
        """Leave the model as it was."""
        for hook in self._hooks:
            hook.remove()

    # -- the host ------------------------------------------------------------------------------
    def _reduce_complete(self) -> None:
        """Have the host average and update the layers whose gradients are on their way, in order."""
        while self._next < len(self._order) and self._order[self._next].sent:
            layer = self._order[self._next]
            # Down first; and up, as that reads what the update will write.
            after = layer.arrival, self.stream.pending(layer)
            layer.reduced = self._lane.submit(self._reduce, layer, self._share, layer.there, after)
            self._jobs.append(layer.reduced)
            self._next += 1

    def _update_rest(self) -> None:
        """As `_reduce_complete`, where no gradient is to come."""
        self._reduce_complete()
        if self._clip is not None:
            self._jobs.append(self._lane.submit(self._update_clipped))

    def _update_late(self) -> None:
        """Have the host update by the gradients of the step before, if there was one."""
        if self._order[0].sent:
            self._next = 0
            self._update_rest()

    def _settle(self) -> None:
        """Wait for the host's updates."""
        for job in self._jobs:
            job.wait()
        self._jobs.clear()

    def _reduce(
        self,
        comm: Comm,
        layer: Layer,
        share: float,
        given: list[bool],
        after: tuple[Handle | None, ...],
    ) -> None:
        """Host: average a layer's gradients over the ranks, and update it."""
        for handle in after:
            if handle is not None:
                handle.wait()
        bucket = layer.bucket
        assert bucket is not None
        with self._host, torch.no_grad():
            bucket.open(share)
            for master, slot, there in zip(layer.masters, layer.slots, given, strict=True):
                if there and share:  # the gradient of an empty shard may be NaN
                    bucket.put(master, slot.view_as(master).to(master.dtype), share)
            bucket.close()
            fields = {"group": comm.name, "layer": layer.name, "nbytes": bucket.flat.nbytes}
            with comm.span("collective", f"gradients of {layer.name}", **fields):
                self._all_reduce(comm, bucket.flat)
            if not bucket.weight:
                no_mean()
            layer.means = [bucket.mean(master) for master in layer.masters]
        if self._clip is None:
            self._update(comm, layer)

    def _update(self, comm: Comm, layer: Layer, norm: float = 0.0) -> None:
        with self._host, torch.no_grad():
            means = clipped(layer.means, self._clip, norm)
            with comm.compute("update", layer.name, update_seconds(comm, layer.masters)):
                layer.moves.step(layer.masters, means)
                layer.lower()
            layer.means = []

    def _update_clipped(self, comm: Comm) -> None:
        """Host: update all layers, by gradients clipped by their joint norm."""
        with self._host:
            norm = squares([mean for layer in self._order for mean in layer.means]) ** 0.5
        for layer in self._order:
            self._update(comm, layer, norm)


def train(
    comm: Comm,
    model: nn.Module,
    batches: Batches,
    rule: AnyRule = "adam",
    *,
    how: str = "optimizer",
    prefetch: int = 1,
    device_bytes: int | None = None,
    host_bytes: int | None = None,
    bandwidth: float | None = None,
    precision: str = "float32",
    loss: Loss = nn.functional.cross_entropy,
    weight: Weight = rows,
    lr: float | None = None,
    **options: Unpack[Options],
) -> Result:
    """Train with the update rule on the host: as `data.train`.

    `how`: "optimizer" (gradients go down, new parameters up); "late" (the same, each update a step
    late: w_(t+1) = w_t - lr g_(t-1)); "stream" (the parameters are on the host too, and come layer
    by layer into prefetch + 1 buffers, forward and backward). Gradients that wait to go down have
    prefetch + 1 buffers as well. `device_bytes` and `host_bytes` are the capacities of the two
    memories, None for as much as there is; buffers of the model and labels do not count.
    `bandwidth`, bytes/s of either direction of the link, None for as fast as memory is copied; a
    paced run needs one. `precision` "float32" leaves the model's dtypes, "bfloat16" computes in
    that and updates the model's own on the host.

    The rule sees each layer on its own (one made of parameters makes an optimizer a layer). With
    `clip` no layer is updated before the last has its gradients.

    The Result has `bytes_up` and `bytes_down` (copied in all steps), `device_peak`, `host_peak`
    (bytes) and `layers_on_device` (the most at a time), each of this rank.

    Raises ValueError for what does not fit into a memory (how many bytes are missing, who holds
    how many), an unknown `how` or `precision`, a prefetch below 0, a bandwidth of 0, and where the
    device reads a tensor that lies on the host.

    Cost a step: psi bytes of parameters up and psi bytes of gradients down (2 a parameter in
    bfloat16); "stream" 2 psi up, without the last layer's second copy. An all-reduce by the hosts.
    """
    if how not in HOW:
        raise ValueError(f"how={how!r} is not known: use 'optimizer', 'late' or 'stream'.")
    if precision not in PRECISIONS:
        raise ValueError(f"precision={precision!r} is not known: use 'float32' or 'bfloat16'.")
    check_counts(0, prefetch=prefetch)
    check_counts(device_bytes=device_bytes, host_bytes=host_bytes)
    if bandwidth is not None:
        require("offload", "bandwidth", bandwidth, zero=False, infinite=False)
    elif comm.machine is not None:
        raise ValueError("a paced run needs bandwidth=, the bytes/s between host and device.")
    training = Training(
        comm, model, rule, lr, options, loss, weight,
        whole=lambda: copy.deepcopy(model).to(comm.device) if comm.rank == 0 else None,
    )  # fmt: skip
    if not training.parameters:
        raise ValueError("the model has no parameter to train: set requires_grad of one.")
    start_alike(comm, model)
    both = arenas(comm.device, device_bytes, host_bytes)
    layers = [Layer(named, *both, low=precision == "bfloat16") for named in layers_of(model)]
    for layer in layers:
        # A rule knows its tensors by their place in a list, and a layer's are moved on their own.
        layer.moves = Moves(copy.deepcopy(as_rule(rule, lr)), None, options.get("lr_schedule"))
        with both[1]:
            layer.moves.bind(layer.masters)
    for module in model.modules():  # parameters are the host's
        for name, buffer in module.named_buffers(recurse=False):
            setattr(module, name, buffer.to(comm.device))
    weight = counting(loss, weight)
    of_batches, of_forwards = (rows, rows) if weight is rows else in_step(weight)
    net = Offloaded(
        comm, model, layers, both, of_forwards, how, prefetch, bandwidth, options.get("clip")
    )
    try:
        result = training.run(
            batches, lambda share: None, net.end, net, of_batches, learn=net.learn
        )
    finally:
        net.remove_hooks()
    device, host = both
    result |= {
        "bytes_up": net.up.nbytes, "bytes_down": net.down.nbytes, "device_peak": device.peak,
        "host_peak": host.peak, "layers_on_device": net.stream.most,
    }  # fmt: skip
    return result
