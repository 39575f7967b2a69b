"""Layers on the device for as long as they are needed: a few buffers, and one lane that copies.

    prefetch 0   h2d      |0|   |1|   |2|         one buffer
                 compute    |0|   |1|   |2|
    prefetch 1   h2d      |0|1|  |2|              two buffers
                 compute    |0 |1  |2  |

A layer is brought ahead in the order in which the last step needed the layers: forward, then back
again. It is freed when its forward is over, and once more when it has its gradients; only the last
one stays for its backward, which is next. An operation that reads a layer that nobody has announced
waits until it is there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from dlviz.parallel.offload.arena import Arena
from dlviz.parallel.offload.copies import Copies
from dlviz.parallel.offload.layers import HostLayer


class Stream:
    """Brings `layers` up to `device` by `copies`, at most `buffers` at a time; where `stay` is
    true, all of them, once a step."""

    def __init__(
        self, layers: Sequence[HostLayer], device: Arena, copies: Copies, buffers: int, stay: bool
    ):
        self._copies, self._stay = copies, stay
        self._buffers = len(layers) if stay else buffers
        self._layers, self._order = layers, [*layers]
        self._here: dict[HostLayer, Any] = {}  # with the handle of a copy that was not waited for
        self._ahead: deque[HostLayer] = deque()
        self._needed: list[HostLayer] = []  # of this step's forward
        self._forward = True
        self._current: HostLayer | None = None
        self.most = 0  # layers on the device at a time
        device.before_read = self.need

    def begin(self) -> None:
        """A step begins."""
        self._needed, self._forward, self._current = [], True, None
        self._ahead = deque([*self._order, *reversed(self._order)])
        if self._stay:
            for layer in self._layers:
                if layer.trained or layer not in self._here:
                    self._bring(layer)
        self._bring_ahead()

    def turn(self) -> None:
        """The forward is over: the backward needs the layers in reverse order."""
        self._order, self._forward, self._current = self._needed, False, None
        self._ahead = deque(reversed(self._order))
        self._bring_ahead()

    def need(self, layer: HostLayer) -> None:
        """Wait until `layer` is on the device; start to bring those that follow."""
        if layer is self._current and self._here.get(layer, 0) is None:
            return
        if layer.sent and not self._stay:
            raise ValueError(
                f"backward reads layer {layer.name} after it had computed all gradients of that "
                "layer, which the host may have updated: let no operation use a detached "
                "parameter, or take how='optimizer'."
            )
        if layer is not self._current:
            if self._forward:
                self._needed.append(layer)
            if layer in self._ahead:
                while self._ahead.popleft() is not layer:
                    pass
        if layer not in self._here:
            while len(self._here) >= self._buffers:
                others = [each for each in self._here if each is not self._current]
                self._free((others or [*self._here])[0])
            self._bring(layer)
        self._current = layer
        self._bring_ahead()
        handle = self._here[layer]
        if handle is not None:
            self._here[layer] = None
            handle.wait(layer=layer.name)

    def need_backward(self, layer: HostLayer) -> None:
        """The backward of `layer` begins: the one before is over, if it gets no gradient."""
        if not layer.sent:
            if not self._forward and self._current is not None and self._current is not layer:
                self.release(self._current)
            self.need(layer)

    def end_forward(self, layer: HostLayer) -> None:
        """A forward of `layer` is over. (One in backward computes again what it needs.)"""
        if self._forward:
            self.release(layer)

    def release(self, layer: HostLayer) -> None:
        """`layer` is not needed for now."""
        if self._stay:
            return
        if layer in self._here and not (self._ahead and self._ahead[0] is layer):
            self._free(layer)
        self._bring_ahead()

    def pending(self, layer: HostLayer) -> Any:
        """The handle of its copy, if nobody has waited for it."""
        return self._here.get(layer)

    def end(self) -> None:
        """The step is over."""
        self._ahead.clear()
        for layer in [] if self._stay else [*self._here]:
            self._free(layer)

    def _bring_ahead(self) -> None:
        for layer in self._ahead:
            if len(self._here) >= self._buffers:
                return
            if layer not in self._here:
                self._bring(layer)

    def _bring(self, layer: HostLayer) -> None:
        layer.take()  # reserved from now on
        self._here[layer] = self._copies.copy([(layer.flat, layer.values)], layer.name)
        self.most = max(self.most, len(self._here))

    def _free(self, layer: HostLayer) -> None:
        handle = self._here.pop(layer)
        if handle is not None:
            handle.wait(layer=layer.name)  # it was brought in vain
        layer.free()
