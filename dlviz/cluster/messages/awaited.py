"""What a rank waits for besides its requests: room for a message, the next message of a channel,
the earliest of several channels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from dlviz.cluster.control.form import dtype_name
from dlviz.cluster.control.matching import Channel
from dlviz.cluster.control.waiting import raise_if_lost
from dlviz.cluster.messages.requests import SendRequest
from dlviz.cluster.pacing.pace import Earliest
from dlviz.cluster.stuck.waits import TAG_BITS, TAGS

GLANCE = 1e-3  # s between two looks for room


class Room:
    """Room for a message, which its sender waits for, looking every GLANCE."""

    left = GLANCE

    def __init__(self, request: SendRequest, room: Callable[[], bool]):
        self.details = request.details
        self.give_up = request.give_up
        self._room = room
        self._found = False

    @property
    def done(self) -> bool:
        self._found = self._found or self._room()
        return self._found


class Next:
    """The next message of a channel, as something to wait for."""

    left = None

    def __init__(self, channel: Channel):
        self._channel = channel

    @property
    def done(self) -> bool:
        return bool(self._channel.headers)

    def give_up(self, lost: dict[int, str]) -> None:
        raise_if_lost((self._channel.peer,), lost)

    def details(self) -> dict[str, Any]:
        channel, key = self._channel, self._channel.key
        place = {"tag": key & TAGS, "group_id": key >> TAG_BITS}
        return {"peer": channel.peer, "index": channel.count, **place}


class AnySource:
    """The earliest message of several channels, as something to wait for, until the `deadline` if
    there is one (seconds of the run's clock). On a paced run that is the one with the smallest
    stamp, once the wall clock has reached it. `found` is the message, None if the deadline has
    passed; `details` has the shape and dtype of the `tensor` that it goes into, if known."""

    def __init__(
        self,
        channels: list[Channel],
        listed: bool,
        pace: Any,
        key: int,
        tensor: torch.Tensor | None,
        deadline: float | None,
    ):
        self._choice = Earliest(None)
        self._channels = channels
        self._listed = listed
        self._pace = pace
        self._key = key
        self._shape = None if tensor is None else tuple(tensor.shape)
        self._dtype = "" if tensor is None else dtype_name(tensor.dtype)
        self._deadline = deadline

    @property
    def found(self) -> Any:
        return self._choice.message

    @property
    def done(self) -> bool:
        if not self._decided:
            self._choice = self._pace.earliest(self._unclaimed, self._deadline)
        return self._decided

    @property
    def _decided(self) -> bool:
        return self._choice.message is not None or self._choice.over

    @property
    def left(self) -> float | None:
        return self._choice.left

    @property
    def until(self) -> float | None:
        """The device time at which it ends by itself."""
        return self._choice.until

    def _unclaimed(self) -> list[Any]:
        """The first unclaimed message of each channel that has one."""
        return [each.headers[0] for each in self._channels if each.headers]

    def give_up(self, lost: dict[int, str]) -> None:
        """Raise RankLost if all sources, or one that was listed, are lost and have left no
        message."""
        gone = {each.peer for each in self._channels if each.peer in lost and not each.headers}
        if self._listed or len(gone) == len(self._channels):
            raise_if_lost((rank for rank in reversed(lost) if rank in gone), lost)

    def details(self) -> dict[str, Any]:
        return {
            "tag": self._key & TAGS,
            "group_id": self._key >> TAG_BITS,
            "members": tuple(channel.peer for channel in self._channels),
            "listed": self._listed,
            "deadline": self._deadline,
            "shape": self._shape,
            "dtype": self._dtype,
        }
