"""What the host does on its lane: it averages a layer's gradients over the ranks and updates it.

d2h    |2|1|0|
host     |sum 2|update 2|sum 1|update 1|sum 0|update 0|      while backward goes on
host     |sum 2|sum 1|sum 0|update 2|update 1|update 0|      clipped: by the norm of all
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from dlviz.cluster import Comm, Handle
from dlviz.models.options import clipped, squares
from dlviz.parallel.offload.arena import Arena
from dlviz.parallel.offload.layers import HostLayer
from dlviz.parallel.offload.stream import Stream
from dlviz.parallel.step.prices import update_seconds
from dlviz.parallel.step.sharded_step import all_reduce_called, no_mean


class HostLane:
    """Updates `layers` in the arena `memory`, once their gradients have come down."""

    def __init__(
        self,
        comm: Comm,
        layers: Sequence[HostLayer],
        memory: Arena,
        stream: Stream,
        clip: float | None,
    ):
        self.lane = comm.lane("host")
        self._memory, self._stream, self._clip = memory, stream, clip
        self._all_reduce = all_reduce_called("ring")
        # All ranks take the layers in one order, that of the backward pass.
        self.order = [layer for layer in reversed(layers) if layer.trained]
        self._next = 0
        self._jobs: list[Handle] = []

    def begin(self) -> None:
        """A step's gradients follow."""
        self._next = 0

    def take(self, share: float) -> None:
        """Work on the layers whose gradients are being copied, in order; this rank's weigh
        `share`."""
        while self._next < len(self.order) and self.order[self._next].sent:
            layer = self.order[self._next]
            # Its gradients come first; and its copy up, which reads what the update will write.
            after = layer.arrival, self._stream.pending(layer)
            layer.reduced = self.lane.submit(self._reduce, layer, share, layer.there, after)
            self._jobs.append(layer.reduced)
            self._next += 1

    def take_all(self, share: float) -> None:
        """As `take`, where all gradients are being copied."""
        self.take(share)
        if self._clip is not None:
            self._jobs.append(self.lane.submit(self._update_clipped))

    def settle(self) -> None:
        """Wait until all is done."""
        for job in self._jobs:
            job.wait()
        self._jobs.clear()

    def _reduce(
        self,
        comm: Comm,
        layer: HostLayer,
        share: float,
        there: list[bool],
        after: tuple[Handle | None, ...],
    ) -> None:
        for handle in filter(None, after):
            handle.wait()
        bucket = layer.bucket
        assert bucket is not None
        with self._memory, torch.no_grad():
            bucket.open(share)
            for master, slot, given in zip(layer.masters, layer.slots, there, strict=True):
                if given and share:  # the gradient of an empty shard may be NaN
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

    def _update_clipped(self, comm: Comm) -> None:
        with self._memory:
            norm = squares([mean for layer in self.order for mean in layer.means]) ** 0.5
        for layer in self.order:
            self._update(comm, layer, norm)

    def _update(self, comm: Comm, layer: HostLayer, norm: float = 0.0) -> None:
        with self._memory, torch.no_grad():
            means, layer.means = clipped(layer.means, self._clip, norm), []
            with comm.compute("update", layer.name, update_seconds(comm, layer.masters)):
                layer.moves.step(layer.masters, means)
                layer.lower()
