"""What one rank recorded besides its spans: messages, snapshots of watched buffers, memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter_ns
from typing import Any, NamedTuple

import numpy as np
import torch

from dlviz.cluster.pacing.ledger import Departure
from dlviz.trace.recorder import LaneSpans, Recorder, Row, line_at


class Sent(NamedTuple):
    """A message at its sender. `key` is group and tag in one, `index` counts the messages of this
    pair and key, `departure` says when it left (paced), `wall` is perf_counter_ns."""

    src: int
    dst: int
    key: int
    index: int
    nbytes: int
    count: int
    offset: int  # in a watched buffer, else -1
    departure: Departure
    wall: int
    group: str
    step: int


class Received(NamedTuple):
    """A message at its receiver: when its port had it and when its program went on (device
    seconds, None on the wall clock)."""

    src: int
    dst: int
    key: int
    index: int
    op: str
    offset: int
    arrived: float | None
    received: float | None
    wall: int


class Snapshot(NamedTuple):
    """What a watched buffer held. `time` is the device's (None on the wall clock)."""

    name: str
    wall: int
    time: float | None
    index: int
    where: str
    step: int
    data: np.ndarray


class MemoryEvent(NamedTuple):
    """So many bytes of `what` are held from now on."""

    what: str
    nbytes: int
    wall: int
    time: float | None


class RankRecord(NamedTuple):
    """All that a rank recorded, for the parent."""

    rank: int
    lanes: list[tuple[str, list[Row]]]
    sent: list[tuple[Sent, float, float]]  # with the device times at which it left and arrived
    received: list[Received]
    snapshots: list[Snapshot]
    memory: list[MemoryEvent]
    pace: dict[str, Any]


class Watched:
    """A buffer that `comm.watch` follows."""

    def __init__(self, tensor: torch.Tensor, name: str):
        self.tensor, self.dtype = tensor, tensor.dtype
        self.name = name
        self.start = tensor.data_ptr()
        self.end = self.start + tensor.numel() * tensor.element_size()
        self.shots = 0

    def locate(self, tensor: torch.Tensor) -> int:
        """The element of this buffer at which `tensor` begins, -1 if it lies elsewhere."""
        pointer = tensor.data_ptr()
        if not (self.start <= pointer < self.end) or tensor.dtype != self.dtype:
            return -1
        return (pointer - self.start) // tensor.element_size()


class Log:
    """Of one rank."""

    def __init__(self, recorder: Recorder):
        self.sent: list[tuple[Any, ...]] = []  # as a `Sent`: a plain tuple takes a third as long
        self.received: list[tuple[Any, ...]] = []  # as a `Received`
        self.snapshots: list[Snapshot] = []
        self.memory: list[MemoryEvent] = []
        self.levels: Any = None  # a `Levels`, while a Storages writes the memory
        self.watched: list[Watched] = []
        self.moved: Watched | None = None  # whose contents are elsewhere, while `moving`
        self._recorder = recorder

    def watch(self, tensor: torch.Tensor, name: str) -> None:
        self.watched.append(Watched(tensor, name))
        self.snapshot()

    @contextmanager
    def moving(self, tensor: torch.Tensor | None) -> Iterator[None]:
        """Inside, `move` shows other tensors in place of `tensor`, if it is watched: an algorithm
        has its contents in another form."""
        at = None if tensor is None else tensor.data_ptr()
        own = next((one for one in self.watched if one.tensor.data_ptr() == at), None)
        if own is None:
            yield
            return
        before, self.moved = own.tensor, own
        try:
            yield
        finally:
            own.tensor, self.moved = before, None

    def move(self, tensor: torch.Tensor) -> None:
        """The contents are in `tensor` from now on."""
        if self.moved is not None:
            self.moved.tensor = tensor
            self.snapshot()

    def locate(self, tensor: torch.Tensor) -> int:
        for watched in self.watched:
            offset = watched.locate(tensor)
            if offset >= 0:
                return offset
        return -1

    def snapshot(self) -> None:
        """Record what the watched buffers hold now."""
        if not self.watched or not self._recorder.on:
            return
        lane, now = self._recorder.lane, perf_counter_ns()
        file, line = line_at(*lane.place(1))
        for watched in self.watched:
            data = watched.tensor.detach().to("cpu", copy=True).flatten()
            if data.dtype in (torch.bfloat16, torch.float16):
                data = data.float()
            where, step = f"{file}:{line}", step_of(lane)
            time, index = lane.pace.time, watched.shots
            shot = Snapshot(watched.name, now, time, index, where, step, data.numpy())
            self.snapshots.append(shot)
            watched.shots += 1

    def hold(self, what: str, nbytes: int) -> None:
        """This rank holds `nbytes` of `what`, as the program states; left out where that is counted
        already."""
        if self.levels is None:
            self.memory.append(MemoryEvent(what, nbytes, *self.now()))

    def now(self) -> tuple[int, float | None]:
        """The wall time (ns), and the device's, None on the wall clock."""
        return perf_counter_ns(), self._recorder.lane.pace.time


def step_of(lane: LaneSpans) -> int:
    """The step of a message: the round of the collective it belongs to, else the program's step."""
    context = lane.context
    return context.get("round", context.get("step", -1))
