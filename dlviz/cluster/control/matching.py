"""Matching: which message goes into which receive.

Messages from one rank with one key are received in the order in which they were sent. So a channel
(rank and key) is two queues of which one is empty: headers without a receive, posted receives
without a header.

    sender    header --pipe-->  channel  <-- posted receive    receiver
    sender    <--completion flag--------------------- taken    receiver
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from dlviz.cluster.control.pipes import SOURCE, Header


class PostedReceive(Protocol):
    """A posted receive."""

    awaited: bool  # its thread waits for it: the message may be put into its tensor

    def matched(self, header: Header) -> None: ...
    def take(self) -> None: ...


class Channel:
    """Messages from one rank to another with one key, as one of the two sees them; `count`:
    messages sent, or receives posted, so far. `write` sends the peer a record (on the sender)."""

    __slots__ = ("count", "headers", "key", "number", "peer", "posted", "write")

    def __init__(self, peer: int, key: int, src: int, write: Any = None):
        self.peer = peer
        self.key = key
        self.number = src * SOURCE + key
        self.write = write
        self.count = 0
        self.headers: deque[Header] = deque()
        self.posted: deque[Any] = deque()


class Matching:
    """The channels of one rank. `expect`, if any, is called with each header that arrives."""

    def __init__(self, rank: int, writer: Callable[[int], Any], expect: Callable[..., None] | None):
        self.rank = rank
        self.outgoing: dict[tuple[int, int], Channel] = {}  # by peer and key
        self.incoming: dict[tuple[int, int], Channel] = {}
        self.late: set[Any] = set()  # matched receives whose message is not taken yet
        self._writer = writer
        self.expect = expect
        self._lock = threading.Lock()

    def to(self, peer: int, key: int) -> Channel:
        found = self.outgoing.get((peer, key))
        if found is None:
            channel = Channel(peer, key, self.rank, self._writer(peer))
            found = self.outgoing.setdefault((peer, key), channel)
        return found

    def source(self, peer: int, key: int) -> Channel:
        found = self.incoming.get((peer, key))
        if found is None:
            found = self.incoming.setdefault((peer, key), Channel(peer, key, peer))
        return found

    def post(self, channel: Channel, receive: PostedReceive) -> None:
        """Post a receive."""
        with self._lock:
            channel.count += 1
            if channel.headers:
                receive.matched(channel.headers.popleft())
                self.late.add(receive)
            else:
                channel.posted.append(receive)

    def deliver(self, headers: Iterable[Header]) -> None:
        """Match headers that have arrived. An awaited message is taken immediately; any other stays
        with its sender until its thread waits for it, or a thread of this rank is idle."""
        incoming, expect = self.incoming, self.expect
        for header in headers:
            if expect is not None:
                expect(header)
            peer = header.src, header.key
            channel = incoming.get(peer) or self.source(*peer)
            with self._lock:
                if not channel.posted:
                    channel.headers.append(header)
                    continue
                receive = channel.posted.popleft()
                receive.matched(header)
                if not receive.awaited:
                    self.late.add(receive)
                    continue
            receive.take()

    def take(self, receive: PostedReceive) -> None:
        """Take the message of a receive, unless another thread does."""
        with self._lock:
            if receive not in self.late:
                return
            self.late.discard(receive)
        receive.take()

    def take_late(self) -> bool:
        """Take one of the late messages; False if none is left."""
        with self._lock:
            if not self.late:  # its own thread takes it
                return False
            receive = self.late.pop()
        receive.take()
        return True

    def counts(self) -> tuple[dict[tuple[int, int], int], dict[tuple[int, int], int]]:
        """Messages sent and receives posted, by peer and key."""
        sent = {at: channel.count for at, channel in list(self.outgoing.items())}
        posted = {at: channel.count for at, channel in list(self.incoming.items())}
        return sent, posted
