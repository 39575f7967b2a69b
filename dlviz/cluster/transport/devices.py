"""Messages of tensors on GPUs, where every rank has a GPU of its own. Control stays with the hosts;
the bytes go from GPU to GPU, by NCCL (nccl.py).

NCCL has no tags and no open sources: on a communicator the first send to a rank matches that rank's
first receive from there, and either occupies a stream of its GPU until they match. So the hosts
agree on a message before its bytes move. It is matched, or refused, by its header, like any other;
then

    sender    holds the tensor  ------header------->  matches it       receiver
              sends it          <--clear to send----  receives it next
              may write to it   <--completion flag--  has it

No program makes two ranks wait for each other in this, whatever its order and its tags:

- A thread of each rank takes that rank's messages, one after the other: once it has cleared one to
  be sent, it receives that one before it goes on to the next.
- A rank sends on a communicator, so on a stream, in which the others only receive. It sends a
  cleared message immediately: whichever of its threads reads the pipe does that, while the rank
  waits, and while it computes when the launching process has it look (every 0.05 s).
- So the first send in a stream matches a receive that its receiver has begun, or begins next, with
  nothing in front of it. It ends, and the same holds for the next one. A receive waits for nothing
  but its own send.
- A collective has a communicator of its group's own, and begins when all members have arrived. A
  message is put into the program's tensor when the host knows that it has landed, and a collective
  is over when the host knows it: no stream of a program's own math waits for another rank.
- Making a communicator, and NCCL's first message between two ranks, are calls in which hosts wait
  for each other. All of them are made when the ranks have just synchronized, to join the run or to
  make a Comm, and by the thread that takes messages, so that none is in transit to this rank.

It needs a GPU that can be in a send, a receive, and a collective of each lane at the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from typing import Any, Protocol

import torch

from dlviz.cluster.control.pipes import Pipes, clear_to_send
from dlviz.cluster.control.waiting import Waiting
from dlviz.cluster.transport import Transport


class DeviceGroup(Protocol):
    """All ranks, each on a GPU of its own. `mark` returns a position in a stream, for `after`."""

    name: str
    device: torch.device

    def mark(self) -> Any:
        """The position that the calling thread's stream has reached."""
        ...

    def send(self, wire: torch.Tensor, dst: int, slot: int, after: Any) -> Any:
        """Start to send, once the GPU has done what lies before the mark `after`. The caller holds
        the result until `dst` has the message."""
        ...

    def receive(self, form: bytes, src: int, slot: int) -> torch.Tensor:
        """Receive the next message from `src` into a new tensor; returns when it is there. OSError
        if `src` has gone."""
        ...

    def used(self, landed: torch.Tensor) -> None:
        """The calling thread's stream reads what `receive` returned."""

    def join(self, name: str, members: tuple[int, ...]) -> Any:
        """A torch process group of these ranks, which all call this, for collectives."""
        ...

    def carry(self, start: Callable[[], Any]) -> None:
        """Return when the collective that `start` starts is over. It begins when the GPU has done
        the calling thread's work so far."""
        ...


class DeviceTransport:
    """The transport of ranks that have a GPU each: messages of tensors on the CPU, and of those on
    another GPU, go by `host`."""

    def __init__(
        self, host: Transport, group: DeviceGroup, rank: int, pipes: Pipes, waiting: Waiting
    ):
        self.name = f"{host.name}, {group.name}"
        self.pieces, self.reaches, self.device = host.pieces, host.reaches, group.device
        self.pull, self.carry, self.used = host.pull, group.carry, group.used
        self._host = host
        self._group = group
        self._rank = rank
        self._pipes = pipes
        self._waiting = waiting
        # By slot: the arguments of `send`, then its result.
        self._held: dict[int, list[Any]] = {}
        self._receiver = ThreadPoolExecutor(1, "dlviz")
        waiting.send_when_clear(self._send)

    def expose(self, dst: int, slot: int, wire: torch.Tensor) -> int:
        if wire.is_cpu:
            return self._host.expose(dst, slot, wire)
        self._held[slot] = [wire, dst, slot, self._group.mark()]
        return 0

    def release(self, slot: int) -> None:
        if self._held.pop(slot, None) is None:
            self._host.release(slot)

    def among(self, members: Collection[int]) -> Transport:
        """The same, with what the host has for these ranks."""
        transport = copy(self)
        transport._host = self._host.among(members)
        transport.reaches = transport._host.reaches
        return transport

    def join(self, name: str, members: tuple[int, ...]) -> Any:
        """A torch process group of these ranks, which have just synchronized, for `carry`."""
        return self._receiver.submit(self._group.join, name, members).result()

    def receive(self, request: Any) -> None:
        """Take the message of a matched receive after those before it. `land` completes the
        request, `fail` fails it."""
        self._receiver.submit(self._receive, request)

    def _send(self, slot: int) -> None:
        """Send the message in that slot, which its receiver has cleared."""
        held = self._held[slot]
        held.append(self._group.send(*held))  # it may complete meanwhile: then it is released

    def _receive(self, request: Any) -> None:
        src, slot = request.peer, request.header.slot
        self._waiting.want(1)  # its sender should look even while it computes
        try:
            while not self._pipes.send(src, clear_to_send(slot)):
                pass  # its pipe is full for more than a second
            request.land(self._group.receive(request.form, src, slot))
        except Exception as error:
            request.fail(error)
        self._waiting.want(-1)
        self._waiting.ring(self._rank)  # a thread of this rank may sleep until it has come
