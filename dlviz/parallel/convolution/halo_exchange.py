"""One exchange of halos: who sends which pixels to whom, forward and back."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import product
from typing import Any

import torch

from dlviz.cluster import RankLost
from dlviz.parallel.convolution.boxes import Box, area, lengths, meet, part
from dlviz.parallel.convolution.windows import Window, bands, grid


class Halo:
    """One exchange: who sends which pixels to whom, and what is in flight."""

    def __init__(
        self,
        x: torch.Tensor,
        rows: Window,
        columns: Window,
        fill: float = 0.0,
        layer: str = "",
        overlap: bool = True,
        watch: Callable[[torch.Tensor, Halo], None] | None = None,
    ):
        self.windows = rows, columns
        self.comm = grid(rows.comm, columns.comm)
        self.x, self.fill, self.layer, self.watch = x.detach(), fill, layer, watch
        held = [*product(rows.blocks(rows.length), columns.blocks(columns.length))]
        made = [*product(rows.blocks(rows.outputs), columns.blocks(columns.outputs))]
        me = self.comm.rank
        self.held, self.made = held[me], made[me]
        _check_block(self, x)
        _warn_of_idle(self, made)
        size = self.comm.size  # no two send to the same one at a time
        others = [(me + further) % size for further in range(1, size)]
        reads = [self.reads(each) for each in made]
        self.receives = [(rank, both) for rank in others if (both := meet(held[rank], reads[me]))]
        self.sends = [(rank, both) for rank in others if (both := meet(held[me], reads[rank]))]
        top = rows.interior(self.held[0], self.made[0])
        left = columns.interior(self.held[1], self.made[1])
        self.interior: Box = (top if overlap else (0, 0), left)
        self.bands = bands(self.made, self.interior)
        self.rim = [box for band in self.bands for box in band if box != self.interior]
        if not area(self.made):  # some are computed and none taken, so that gradients come here
            (top, bottom), (left, right) = self.made
            self.rim = [((top, max(bottom, top + 1)), (left, max(right, left + 1)))]
            self.bands = [self.rim]
        self._arriving: list[Any] = []
        self._leaving: list[Any] = []
        self._own: list[tuple[Box, torch.Tensor]] = []  # gradients of own pixels that the rim read

    def reads(self, made: Box) -> Box:
        rows, columns = self.windows
        return rows.reads(made[0]), columns.reads(made[1])

    @property
    def inner(self) -> Box:
        """The pixels that the interior reads: own ones."""
        if area(self.interior):
            return self.reads(self.interior)
        (top, _), (left, _) = self.held
        return (top, top), (left, left)

    # -- forward ---------------------------------------------------------------------------------
    def send(self) -> torch.Tensor:
        """Send the edges that others read; returns the pixels that the interior reads."""
        with self._span("send", "forward"):
            for rank, box in self.receives:  # posted first, so that a message moves at once
                edge = self.x.new_empty(*self.x.shape[:2], *lengths(box))
                self._arriving.append((self.comm.irecv(edge, rank), rank, box, edge))
            for rank, box in self.sends:
                self._leave(part(self.x, self.held, box), rank, box)
        return part(self.x, self.held, self.inner)

    def receive(self) -> tuple[torch.Tensor, ...]:
        """Wait for the halo; returns what each part of the rim reads, `fill` outside the image."""
        places = [*map(self.reads, self.rim)]
        strips = [self.x.new_full((*self.x.shape[:2], *lengths(box)), self.fill) for box in places]
        self._put(self.x, self.held, places, strips)
        if self.watch:
            self.watch(strips[0], self)
        with self._span("receive", "forward"):
            for request, rank, box, edge in self._arriving:
                with self._rows("from", rank, box):
                    request.wait()
                self._put(edge, box, places, strips)
                self.comm.snapshot()
            self._left()
        self._arriving.clear()
        del self.x  # the block is its caller's again
        return tuple(strips)

    def _put(
        self, pixels: torch.Tensor, held: Box, places: list[Box], strips: list[torch.Tensor]
    ) -> None:
        """Copy the `pixels` of a box into the strips that read them."""
        for box, strip in zip(places, strips, strict=True):
            if both := meet(box, held):
                part(strip, box, both).copy_(part(pixels, held, both))

    # -- backward --------------------------------------------------------------------------------
    def send_back(self, gradients: tuple[torch.Tensor, ...]) -> None:
        """Send the gradients of others' pixels, of all strips of the rim together, to their owners;
        hold those of own pixels until the interior has its gradient."""
        strips = [*zip(map(self.reads, self.rim), gradients, strict=True)]
        with self._span("send back", "backward"):
            for rank, box in self.receives:
                total = gradients[0].new_zeros(*gradients[0].shape[:2], *lengths(box))
                for other, gradient in strips:
                    if both := meet(box, other):
                        part(total, box, both).add_(part(gradient, other, both))
                self._leave(total, rank, box)
        self._own = [
            (both, part(gradient, box, both))
            for box, gradient in strips
            if (both := meet(self.held, box))
        ]

    def add(self, dx: torch.Tensor) -> None:
        """Add to `dx`, this rank's, what its pixels are to the rim and to other ranks' outputs."""
        for box, gradient in self._own:
            part(dx, self.held, box).add_(gradient)
        self._own = []
        with self._span("add", "backward"):
            for rank, box in self.sends:
                with self._rows("from", rank, box):
                    self.comm.recv(part(dx, self.held, box), rank, op="sum")
            self._left()

    def _leave(self, edge: torch.Tensor, rank: int, box: Box) -> None:
        with self._rows("to", rank, box):
            self._leaving.append((self.comm.isend(edge.contiguous(), rank), rank, box))

    def _left(self) -> None:
        """Wait for the sends in flight."""
        for request, rank, box in self._leaving:
            with self._rows("to", rank, box):
                request.wait()
        self._leaving.clear()

    def _span(self, what: str, direction: str) -> Any:
        boxes = self.sends if what in ("send", "add") else self.receives
        pixels = sum(area(box) for _, box in boxes)
        about = {"layer": self.layer, "direction": direction, "pixels": pixels}
        return self.comm.span("collective", f"{what} halo {self.layer}".strip(), **about)

    @contextmanager
    def _rows(self, side: str, rank: int, box: Box) -> Iterator[None]:
        """Say which pixels a message holds: in its spans, and in the error if its other rank is
        lost."""
        (first, end), (begin, stop) = box
        where = f"rows {first} to {end - 1}, columns {begin} to {stop - 1}"
        halo = f"{side} rank {self.comm.members[rank]}, {where}"
        self.comm.label(halo=halo)
        try:
            yield
        except RankLost as error:
            how = f"{error.how}; the halo {halo}, is lost with it"
            raise RankLost(error.rank, how) from error


def _check_block(halo: Halo, x: torch.Tensor) -> None:
    due = lengths(halo.held)
    if x.dim() != 4 or tuple(x.shape[2:]) != due:
        rows, columns = halo.windows
        raise ValueError(
            f"rank {halo.comm.rank} of {halo.comm.name} has x of shape {tuple(x.shape)}, and its "
            f"block of {rows.length} x {columns.length} pixels is (N, C, {due[0]}, {due[1]}): give "
            "it that block, or the right length in its Cut."
        )


def _warn_of_idle(halo: Halo, made: list[Box]) -> None:
    idle = [str(rank) for rank, box in enumerate(made) if not area(box)]
    if idle and not halo.comm.rank:
        rows, columns = halo.windows
        where = f" in layer {halo.layer}" if halo.layer else ""
        warnings.warn(
            f"ranks {', '.join(idle)} of {halo.comm.name} are idle{where}: there are "
            f"{halo.comm.size} for {rows.outputs} x {columns.outputs} pixels of output. Cut "
            "another dim too.",
            stacklevel=2,
        )
