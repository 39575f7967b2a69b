"""Halo exchange: the rows and columns of others' blocks that a rank's outputs read.

An image is cut into blocks. A convolution slides its kernel over the borders too, so a rank needs
the rim of its neighbours' blocks, its halo. A 3 x 3 kernel with padding 1, 8 rows on 2 ranks:

    rank 0    outputs 0..3 read rows -1..4    -1: padding    0 1 2 3: its own    4: halo of rank 1
    rank 1    outputs 4..7 read rows  3..8     3: halo of rank 0    4 5 6 7: its own    8: padding

Each rank finds all messages by itself, since blocks and kernel are known everywhere: a rank is sent
`needed` minus what it has, block by block, also from the ranks at a corner, and from those beyond a
block that is thinner than the halo. With a stride above and below differ.

The interior, the outputs that read a rank's own pixels alone, is computed while the halo travels,
and so are its gradients:

    forward     send own edges  | interior  | receive: the rim's inputs | rim
    backward    add to own edges| interior  | send the halo's gradients | rim       (right to left)

The gradient of a pixel goes back to the rank that sent it, and is added there. Both halves of the
exchange are autograd Functions: `_Begin` sends in forward and adds in backward, `_End` receives in
forward and sends back in backward. Autograd begins with what was computed last: the rim, `_End`,
the interior, `_Begin`.

Source: N. Dryden, N. Maruyama et al., "Improving strong-scaling of CNN training by exploiting
finer-grained parallelism", IPDPS 2019, section III-A.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import product
from typing import Any, NamedTuple

import torch
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from dlviz.cluster import Comm, RankLost, grid_of
from dlviz.parallel.convolution.distribution import blocks, needed

Range = tuple[int, int]  # from, to (exclusive)
Box = tuple[Range, Range]  # rows and columns, counted in the whole image


class Window(NamedTuple):
    """A kernel that slides along one dim of `length` pixels, which is cut over the ranks of `comm`,
    or whole on each of them (None)."""

    comm: Comm | None
    length: int
    kernel: int
    stride: int
    dilation: int
    padding: int

    @property
    def reach(self) -> int:
        """From the first to the last pixel that an output reads."""
        return self.dilation * (self.kernel - 1)

    @property
    def outputs(self) -> int:
        """Pixels of the output, on all ranks together."""
        return (self.length + 2 * self.padding - self.reach - 1) // self.stride + 1

    def blocks(self, length: int) -> list[Range]:
        return blocks(length, 1 if self.comm is None else self.comm.size)

    def reads(self, made: Range) -> Range:
        """The input pixels of these outputs, unclipped; of a whole dim all, without its padding."""
        if self.comm is None:
            return 0, self.length
        return needed(*made, self.kernel, self.stride, self.dilation, self.padding)

    def interior(self, held: Range, made: Range) -> Range:
        """Those of the outputs `made` that read no pixel but those `held`."""
        if self.comm is None:
            return made
        first = -(-(held[0] + self.padding) // self.stride)  # the least j: j s - P >= held[0]
        room = held[1] + self.padding - self.reach - 1
        lo, hi = max(first, made[0]), min(room // self.stride + 1, made[1])
        return (lo, hi) if lo < hi else (made[0], made[0])


def with_halo(
    x: torch.Tensor,
    rows: Window,
    columns: Window,
    fill: float = 0.0,
    watch: Callable[[torch.Tensor, Halo], None] | None = None,
) -> torch.Tensor:
    """This rank's block `x` (N, C, h, w) with its halo, and `fill` for padding, along the dims that
    are cut: what its outputs read. The gradients of the halo go back to the ranks it is from.
    `watch` is called with the result before the halo arrives in it."""
    halo = Halo(x, rows, columns, fill, overlap=False, watch=watch)
    return _End.apply(_Begin.apply(x, halo), halo)[0]


def computed(
    x: torch.Tensor,
    rows: Window,
    columns: Window,
    operation: Callable[[torch.Tensor], torch.Tensor],
    fill: float = 0.0,
    layer: str = "",
) -> torch.Tensor:
    """This rank's block of the output of `operation`, which maps (N, C, h, w), its block with all
    that it reads, to (N, F, h', w'); the interior while the halo travels."""
    if rows.comm is None and columns.comm is None:
        return operation(x)
    halo, done = Halo(x, rows, columns, fill, layer), {}
    inner = _Begin.apply(x, halo)
    if _area(halo.interior):
        with halo.comm.span("phase", f"interior {layer}".strip(), layer=layer):
            done[halo.interior] = operation(inner)
    if not halo.rim:
        halo.receive()  # nothing, but the sends end
        return done[halo.interior]
    strips = _End.apply(inner, halo)
    with halo.comm.span("phase", f"rim {layer}".strip(), layer=layer):
        done |= zip(halo.rim, map(operation, strips), strict=True)
    y = _join([_join([done[box] for box in band], 3) for band in halo.bands if band], 2)
    (top, bottom), (left, right) = halo.made
    return y[:, :, : bottom - top, : right - left]  # of no outputs some were made


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
        self.receives = [(rank, both) for rank in others if (both := _meet(held[rank], reads[me]))]
        self.sends = [(rank, both) for rank in others if (both := _meet(held[me], reads[rank]))]
        top = rows.interior(self.held[0], self.made[0])
        left = columns.interior(self.held[1], self.made[1])
        self.interior: Box = (top if overlap else (0, 0), left)
        self.bands = _bands(self.made, self.interior)
        self.rim = [box for band in self.bands for box in band if box != self.interior]
        if not _area(self.made):  # some are computed and none taken, so that gradients come here
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
        if _area(self.interior):
            return self.reads(self.interior)
        (top, _), (left, _) = self.held
        return (top, top), (left, left)

    # -- forward ---------------------------------------------------------------------------------
    def send(self) -> torch.Tensor:
        """Send the edges that others read; returns the pixels that the interior reads."""
        with self._span("send", "forward"):
            for rank, box in self.receives:  # posted first, so that a message moves at once
                part = self.x.new_empty(*self.x.shape[:2], *map(_length, box))
                self._arriving.append((self.comm.irecv(part, rank), rank, box, part))
            for rank, box in self.sends:
                self._leave(_part(self.x, self.held, box), rank, box)
        return _part(self.x, self.held, self.inner)

    def receive(self) -> tuple[torch.Tensor, ...]:
        """Wait for the halo; returns what each part of the rim reads, `fill` outside the image."""
        places = [*map(self.reads, self.rim)]
        strips = [
            self.x.new_full((*self.x.shape[:2], *map(_length, box)), self.fill) for box in places
        ]
        self._put(self.x, self.held, places, strips)
        if self.watch:
            self.watch(strips[0], self)
        with self._span("receive", "forward"):
            for request, rank, box, part in self._arriving:
                with self._rows("from", rank, box):
                    request.wait()
                self._put(part, box, places, strips)
                self.comm.snapshot()
            self._left()
        self._arriving.clear()
        del self.x  # the block is its caller's again
        return tuple(strips)

    def _put(
        self, part: torch.Tensor, held: Box, places: list[Box], strips: list[torch.Tensor]
    ) -> None:
        """Copy the pixels of `part` into the strips that read them."""
        for box, strip in zip(places, strips, strict=True):
            if both := _meet(box, held):
                _part(strip, box, both).copy_(_part(part, held, both))

    # -- backward --------------------------------------------------------------------------------
    def send_back(self, gradients: tuple[torch.Tensor, ...]) -> None:
        """Send the gradients of others' pixels, of all strips of the rim together, to their owners;
        hold those of own pixels until the interior has its gradient."""
        strips = [*zip(map(self.reads, self.rim), gradients, strict=True)]
        with self._span("send back", "backward"):
            for rank, box in self.receives:
                total = gradients[0].new_zeros(*gradients[0].shape[:2], *map(_length, box))
                for other, gradient in strips:
                    if both := _meet(box, other):
                        _part(total, box, both).add_(_part(gradient, other, both))
                self._leave(total, rank, box)
        self._own = [
            (both, _part(gradient, box, both))
            for box, gradient in strips
            if (both := _meet(self.held, box))
        ]

    def add(self, dx: torch.Tensor) -> None:
        """Add to `dx`, this rank's, what its pixels are to the rim and to other ranks' outputs."""
        for box, part in self._own:
            _part(dx, self.held, box).add_(part)
        self._own = []
        with self._span("add", "backward"):
            for rank, box in self.sends:
                with self._rows("from", rank, box):
                    self.comm.recv(_part(dx, self.held, box), rank, op="sum")
            self._left()

    def _leave(self, part: torch.Tensor, rank: int, box: Box) -> None:
        with self._rows("to", rank, box):
            self._leaving.append((self.comm.isend(part.contiguous(), rank), rank, box))

    def _left(self) -> None:
        """Wait for the sends in flight."""
        for request, rank, box in self._leaving:
            with self._rows("to", rank, box):
                request.wait()
        self._leaving.clear()

    def _span(self, what: str, direction: str) -> Any:
        boxes = self.sends if what in ("send", "add") else self.receives
        pixels = sum(_area(box) for _, box in boxes)
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


class _Begin(Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, halo: Halo) -> torch.Tensor:
        ctx.halo, ctx.shape = halo, x.shape
        return halo.send()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        halo, dx = ctx.halo, gradient.new_zeros(ctx.shape)
        _part(dx, halo.held, halo.inner).copy_(gradient)
        halo.add(dx)
        return dx, None


class _End(Function):
    @staticmethod
    def forward(ctx: Any, inner: torch.Tensor, halo: Halo) -> tuple[torch.Tensor, ...]:
        ctx.halo = halo  # `inner` is an input so that backward comes here before _Begin
        return halo.receive()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        ctx.halo.send_back(gradients)
        return None, None


def grid(height: Comm | None, width: Comm | None) -> Comm:
    """The ranks that share an image, row by row; where both dims are cut, the first call for the
    two is collective."""
    if height is None or width is None:
        found = height or width
        assert found is not None  # one dim is cut
        return found
    return grid_of(height, width)


def _bands(made: Box, interior: Box) -> list[list[Box]]:
    """`made` in pieces, band by band: above the interior, beside it and it itself, below."""
    if not _area(interior):
        return [[made]]
    (top, bottom), (left, right) = made
    rows, columns = interior
    above, below = (top, rows[0]), (rows[1], bottom)
    middle = [(rows, (left, columns[0])), interior, (rows, (columns[1], right))]
    bands = [[(above, made[1])], middle, [(below, made[1])]]
    return [[box for box in band if _area(box)] for band in bands]


def _join(parts: list[torch.Tensor], dim: int) -> torch.Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim)


def _length(of: Range) -> int:
    return of[1] - of[0]


def _area(box: Box) -> int:
    return _length(box[0]) * _length(box[1])


def _meet(one: Box, other: Box) -> Box | None:
    """What two boxes share; None where that is nothing."""
    rows, columns = ((max(a[0], b[0]), min(a[1], b[1])) for a, b in zip(one, other, strict=True))
    return (rows, columns) if rows[0] < rows[1] and columns[0] < columns[1] else None


def _part(tensor: torch.Tensor, held: Box, box: Box) -> torch.Tensor:
    """The pixels of `box` in a tensor that has those of `held`."""
    (top, _), (left, _) = held
    (first, end), (begin, stop) = box
    return tensor[:, :, first - top : end - top, begin - left : stop - left]


def _check_block(halo: Halo, x: torch.Tensor) -> None:
    due = tuple(map(_length, halo.held))
    if x.dim() != 4 or tuple(x.shape[2:]) != due:
        rows, columns = halo.windows
        raise ValueError(
            f"rank {halo.comm.rank} of {halo.comm.name} has x of shape {tuple(x.shape)}, and its "
            f"block of {rows.length} x {columns.length} pixels is (N, C, {due[0]}, {due[1]}): give "
            "it that block, or the right length in its Cut."
        )


def _warn_of_idle(halo: Halo, made: list[Box]) -> None:
    idle = [str(rank) for rank, box in enumerate(made) if not _area(box)]
    if idle and not halo.comm.rank:
        rows, columns = halo.windows
        where = f" in layer {halo.layer}" if halo.layer else ""
        warnings.warn(
            f"ranks {', '.join(idle)} of {halo.comm.name} are idle{where}: there are "
            f"{halo.comm.size} for {rows.outputs} x {columns.outputs} pixels of output. Cut "
            "another dim too.",
            stacklevel=2,
        )
