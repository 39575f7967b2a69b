"""The envelope of a message: what its sender writes into its receiver's pipe."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from math import nan as NAN

from dlviz.cluster.control.form import FORM
from dlviz.cluster.pacing.ledger import Departure

# channel, flags, wall, tick, address, entry; stamp; form
HEAD = struct.Struct(f"=6qd{FORM.size}s")
SYNC = 1  # flag: the sender waits until the message is taken
SOURCE = 1 << 48  # a channel's number is its source times this, plus its key
TAKEN, REFUSED = 1, 2  # what a receiver puts into a tick
REFUSAL = -2  # in place of a channel: the message with that tick does not fit what was posted
BELL = HEAD.pack(-1, 0, 0, 0, 0, 0, NAN, b"")  # says no more than: look again


class Envelope(Departure):
    """`key` is group and tag in one (see stuck/waits.py), `wall` when the message was sent
    (perf_counter_ns), `tick` where its receiver ticks it off, `address` where its bytes are (what
    that means is the transport's), `form` its dtype and shape. As a Departure it says when the
    message arrives, on a paced run; `arrived` is when this rank's port had taken it."""

    __slots__ = ("address", "arrived", "flags", "form", "key", "tick", "wall")

    def __init__(
        self,
        channel: int,
        flags: int,
        wall: int,
        tick: int,
        address: int,
        entry: int,
        stamp: float,
        form: bytes,
    ):
        self.src, self.key = divmod(channel, SOURCE)
        self.flags = flags
        self.wall = wall
        self.tick = tick
        self.address = address
        self.entry = entry
        self.sent = NAN
        self.stamp = stamp
        self.form = form
        self.arrived = NAN


def refusal(tick: int, posted: bytes) -> bytes:
    """What tells a sender that its message does not fit a tensor of the form `posted`."""
    return HEAD.pack(REFUSAL, 0, 0, tick, 0, 0, NAN, posted)


def unpack(data: bytes, refused: dict[int, bytes]) -> Iterator[Envelope]:
    """The envelopes in what was read from a pipe. Bells are left out; a refusal's form is put into
    `refused`, by tick."""
    for fields in HEAD.iter_unpack(data):
        if fields[0] >= 0:
            yield Envelope(*fields)
        elif fields[0] == REFUSAL:
            refused[fields[3]] = fields[7]
