"""A rank's mail: the headers of the messages sent to it, and the notes on receives.

Before a message is sent its header is written, and before a receive is posted with no header in
sight a note on it is; each side then looks for what the other wrote.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from math import nan as NAN

from dlviz.cluster.board import Board, Mail
from dlviz.cluster.ledger import Departure


class Letter(Departure):
    """A message on its way to this rank: its header, and (paced) when this rank's port has taken
    it."""

    __slots__ = ("arrived", "mail")

    def __init__(self, src: int, mail: Mail):
        super().__init__(src, mail.entry, NAN, mail.stamp)
        self.mail = mail
        self.arrived = NAN


class Mailbox:
    """What one rank has sent, claimed and read. `letters` are the headers that are still of use, by
    source, tag and index: on a paced run those of messages not yet received, else those whose
    receive is not posted."""

    def __init__(self, board: Board, rank: int, expect: Callable[[Letter], None] | None):
        others = [peer for peer in range(board.ranks) if peer != rank]
        self.letters: dict[tuple[int, int, int], Letter] = {}
        self.sent: dict[tuple[int, int], int] = {}  # messages sent, by (dst, tag)
        self.claimed: dict[tuple[int, int], int] = {}  # receives posted, by (src, tag)
        self.outbox = {peer: board.headers(rank, peer) for peer in others}
        self._inbox = {peer: board.headers(peer, rank) for peer in others}
        self._my_notes = {peer: board.notes(peer, rank) for peer in others}
        self._their_notes = {peer: board.notes(rank, peer) for peer in others}
        self._expect = expect
        self._lock = threading.Lock()

    def collect(self, peer: int | None = None) -> None:
        """Read the headers that have come from `peer`, or from everybody."""
        with self._lock:
            for src in (peer,) if peer is not None else self._inbox:
                for mail in self._inbox[src].drain():
                    if self._expect is not None:
                        letter = self.letters[src, mail.tag, mail.index] = Letter(src, mail)
                        self._expect(letter)
                    elif mail.index >= self.claimed.get((src, mail.tag), 0):
                        self.letters[src, mail.tag, mail.index] = Letter(src, mail)

    def look(self, src: int, tag: int, index: int) -> Letter | None:
        """The header of a message, if it has come."""
        if not self._inbox[src].empty():
            self.collect(src)
        return self.letters.get((src, tag, index))

    def claim(self, src: int, tag: int, index: int, form: bytes, ahead: float) -> Mail | None:
        """Post a receive; returns the header of its message where that has been sent already."""
        letter = self.look(src, tag, index)
        if letter is None:
            self._my_notes[src].write(tag, index, form, ahead)
            letter = self.look(src, tag, index)
        return None if letter is None else letter.mail

    def posted(self, dst: int, tag: int, index: int) -> tuple[bytes, float] | None:
        """What the note of `dst` on its receive of a message says, where it wrote one."""
        return self._their_notes[dst].read(tag, index)
