"""Messages of tensors on GPUs, where every rank has a GPU of its own. Control stays with the hosts;
the bytes go from GPU to GPU, by NCCL (nccl.py).

NCCL knows no tag and no source that is left open: on a communicator the first send to a rank meets
that rank's first receive from there, and either keeps a stream of its GPU busy until they have met.
So the hosts agree on a message before its bytes move. It is matched, and refused where it does not
fit, by its envelope, like any other; then

    sender    keeps the tensor  --envelope-->  matches it       receiver
              sends it          <----go------  receives it next
              may write to it   <---tick-----  has it

No program makes two ranks wait for each other in this, whatever its order and its tags:

- A thread of each rank takes that rank's messages, one after the other. What it does next after a
  go is to receive that message, and it goes to the next one when it has it.
- A rank sends on a communicator, so on a stream, in which the others only receive. It sends what it
  is told to at once: whichever of its threads reads the pipe does that, while the rank waits, and
  while it computes when the launching process has it look (every 0.05 s).
- So the first send in a stream meets a receive that its receiver has begun, or begins next, and
  that nothing else is in front of. It ends, and then the same holds of the next one. A receive
  waits for nothing but its own send.
- A collective has a communicator of its group's own, and begins when all members have come to it. A
  message is put into the program's tensor when the host knows that it has landed, and a collective
  is over when the host knows it: no stream of a program's own math waits for another rank.
- To make a communicator, and NCCL's first message between two ranks, are calls in which hosts wait
  for each other. All of that is done where the ranks have just met: when they join the run, or make
  a Comm; and by the thread that takes messages, so that none is under way to this rank meanwhile.

It rests on a GPU that can be in a send, a receive, and a collective of each lane at the same time.
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
    """All ranks, each on a GPU of its own. `mark` is how far a stream has come, as `after` takes
    it."""

    name: str
    device: torch.device

    def mark(self) -> Any:
        """What the calling thread has had its GPU do so far."""
        ...

    def send(self, wire: torch.Tensor, dst: int, slot: int, after: Any) -> Any:
        """Start to send, once the GPU has done what lies before the mark `after`. What is returned
        is kept until `dst` has the message."""
        ...

    def receive(self, form: bytes, src: int, slot: int) -> torch.Tensor:
        """Receive the next message from `src` into a new tensor; returns when it is there. OSError
        where `src` has gone."""
        ...

    def used(self, landed: torch.Tensor) -> None:
        """The calling thread has had its GPU read what `receive` returned."""

    def join(self, name: str, members: tuple[int, ...]) -> Any:
        """A torch process group of these ranks, which all call this, for collectives."""
        ...

    def carry(self, start: Callable[[], Any]) -> None:
        """Return when the collective that `start` starts is over. It begins when the GPU has done
        what the calling thread has had it do so far."""
        ...


class DeviceTransport:
    """The transport of ranks that have a GPU each: messages of tensors on the CPU, and of those on
    another GPU, go as `host` has them go."""

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
        # By tick: what is to be sent and how, then what its way keeps.
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
        """A torch process group of these ranks, which have just met, for `carry`."""
        return self._receiver.submit(self._group.join, name, members).result()

    def receive(self, request: Any) -> None:
        """Take the message of a matched receive when those before it have come. The request is told
        by `land`, or by `fail`."""
        self._receiver.submit(self._receive, request)

    def _send(self, slot: int) -> None:
        """The receiver of this rank's message with that tick is about to receive it."""
        held = self._held[slot]
        held.append(self._group.send(*held))  # its end may be seen meanwhile: by then it is let go

    def _receive(self, request: Any) -> None:
        src, slot = request.peer, request.header.slot
        self._waiting.want(1)  # its sender is to look, should it compute
        try:
            while not self._pipes.send(src, clear_to_send(slot)):
                pass  # its pipe is full for more than a second
            request.land(self._group.receive(request.form, src, slot))
        except Exception as error:
            request.fail(error)
        self._waiting.want(-1)
        self._waiting.ring(self._rank)  # a thread of this rank may sleep until it has come
