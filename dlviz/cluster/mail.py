"""A rank's mail: the headers of the messages sent to it and the notes on the receives its peers
have posted."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from dlviz.cluster.board import TAKEN, Board, Mail, elements


class Letter:
    """A message on its way to this rank: its header, and (paced) when this rank's port has taken
    it."""

    __slots__ = ("arrived", "mail", "src")

    def __init__(self, src: int, mail: Mail):
        self.src = src
        self.mail = mail
        self.arrived = mail.stamp


class Mailbox:
    """Everything that one rank has read from the board. Keys: (peer, tag, index of the message)."""

    def __init__(self, board: Board, rank: int, expect: Callable[[Letter], None] | None):
        others = [peer for peer in range(board.ranks) if peer != rank]
        self.letters: dict[tuple[int, int, int], Letter] = {}
        self.notes: dict[tuple[int, int, int], Mail] = {}
        self.taken: dict[tuple[int, int, int], Mail] = {}
        self.sent: dict[tuple[int, int], int] = {}  # messages sent, by (dst, tag)
        self.claimed: dict[tuple[int, int], int] = {}  # receives posted, by (src, tag)
        self._inbox = {peer: board.ring(peer, rank) for peer in others}
        self._outbox = {peer: board.ring(rank, peer) for peer in others}
        self._replies = {peer: board.ring(peer, rank, notes=True) for peer in others}
        self._notices = {peer: board.ring(rank, peer, notes=True) for peer in others}
        self._expect = expect
        self._lock = threading.Lock()

    def number(self, counts: dict[tuple[int, int], int], peer: int, tag: int) -> int:
        """Take the next index of a message to or a receive from `peer`."""
        with self._lock:
            index = counts.get((peer, tag), 0)
            counts[peer, tag] = index + 1
        return index

    def collect(self, peer: int | None = None) -> None:
        """Read the headers that have come from `peer`, or from everybody."""
        with self._lock:
            for src in (peer,) if peer is not None else self._inbox:
                for mail in self._inbox[src].drain():
                    letter = Letter(src, mail)
                    self.letters[src, mail.tag, mail.index] = letter
                    if self._expect is not None:
                        self._expect(letter)

    def look(self, src: int, tag: int, index: int) -> Letter | None:
        """The header of a message, if it has come."""
        self.collect(src)
        return self.letters.get((src, tag, index))

    def open(self, src: int, tag: int, index: int) -> Letter:
        """The header of a message that has been received, and is then forgotten."""
        self.collect(src)
        return self.letters.pop((src, tag, index))

    def post(self, dst: int, mail: Mail) -> Mail | None:
        """Announce a message; returns the note on its receive, if that was posted already."""
        with self._lock:
            self._outbox[dst].write(mail)
            self._read_notes(dst)
            return self.notes.pop((dst, mail.tag, mail.index), None)

    def full(self, dst: int) -> bool:
        return self._outbox[dst].full()

    def notice(self, src: int, mail: Mail) -> bool:
        """Tell `src` that a receive is posted, or that a message was taken; False where there is
        no room."""
        with self._lock:
            room = not self._notices[src].full()
            if room:
                self._notices[src].write(mail)
        return room

    def was_taken(self, dst: int, tag: int, index: int) -> Mail | None:
        with self._lock:
            self._read_notes(dst)
            return self.taken.pop((dst, tag, index), None)

    def _read_notes(self, dst: int) -> None:
        for note in self._replies[dst].drain():
            kept: Any = self.taken if note.flags & TAKEN else self.notes
            if kept is self.taken or note.index >= self.sent.get((dst, note.tag), 0) - 1:
                kept[dst, note.tag, note.index] = note


def fits(sent: Mail, posted: Mail) -> bool:
    return sent.dtype == posted.dtype and elements(sent.shape) == elements(posted.shape)
