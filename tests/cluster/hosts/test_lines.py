"""Lines: what ranks of two hosts send each other arrives whole, in order, completions bundled."""

import random
import time
from contextlib import ExitStack, contextmanager
from math import nan as NAN

import pytest
import torch
from pairs import tcp_pair, until

from dlviz.cluster.control.board import WHEN, Board
from dlviz.cluster.control.form import form_of
from dlviz.cluster.control.pipes import HEAD, INLINE, SOURCE, Inbox
from dlviz.cluster.hosts import lines
from dlviz.cluster.hosts.lines import HostPipes
from dlviz.cluster.hosts.records import completed
from dlviz.cluster.hosts.wire import Wire, keys


def header(number, nbytes):
    """One from rank 0, with its bytes."""
    form = form_of((nbytes,), torch.uint8)
    return HEAD.pack(SOURCE * 0 + 5, INLINE, 0, number, 0, 0, NAN, form) + bytes(nbytes)


@contextmanager
def two_ranks(tmp_path, secret=b"secret"):
    """The pipes of rank 0 and of rank 1, on two hosts, and the board of rank 1's. `secret` is what
    rank 1 takes for the run's."""
    with ExitStack() as left:
        found = []
        for own, end in enumerate(tcp_pair()):
            folder = tmp_path / str(own)
            folder.mkdir()
            board = Board(str(folder / "board"), 2, create=True)
            left.callback(board.close)
            wire = Wire(end, keys(secret if own else b"secret", (b"1", b"2"), own == 0))
            left.callback(wire.close)
            pipes = HostPipes(str(folder), own, board, {1 - own: wire})
            left.callback(pipes.close)
            found += [pipes, board]
        yield found[0], found[2], found[3]


def test_envelopes_come_whole_and_in_order_and_a_full_line_takes_none(tmp_path):
    with two_ranks(tmp_path) as (here, there, _):
        write, inbox, found, sent, refused = here.writer(1), Inbox(), [], 0, 0
        sizes = [random.Random(n).randrange(3000) for n in range(8000)]  # 12 MB
        while sent < len(sizes):
            try:
                write(header(sent, sizes[sent]))
                sent += 1
            except BlockingIOError:
                refused += 1
                found += inbox.headers(there.read())
        until(lambda: here.has_room(1) or found.extend(inbox.headers(there.read())))
        until(lambda: found.extend(inbox.headers(there.read())) or len(found) == len(sizes))
        assert refused, "nothing was full"
        assert [each.slot for each in found] == list(range(len(sizes)))
        assert [len(each.data) for each in found] == sizes


def test_what_comes_by_the_pipe_and_on_lines_at_the_same_time_is_not_mixed(tmp_path):
    with two_ranks(tmp_path) as (here, there, _):
        by_pipe, by_line = there.writer(1), here.writer(1)  # its own pipe, as a neighbour does
        for number in range(60):  # more than is read of a pipe at a time
            by_pipe(header(number, 2000))
            by_line(header(1000 + number, 700))
        inbox, found = Inbox(), []
        until(lambda: found.extend(inbox.headers(there.read())) or len(found) == 120)
        assert [e.slot for e in found if e.slot < 1000] == list(range(60))
        assert [e.slot for e in found if e.slot >= 1000] == list(range(1000, 1060))


def test_a_tick_that_is_kept_goes_with_the_next_envelope_before_it(tmp_path, monkeypatch):
    monkeypatch.setattr(lines, "LATER", 1e6)
    with two_ranks(tmp_path) as (here, there, board):
        slot = board.completion_slots(1)[3]
        here.send_later(1, completed(slot, 1, 0.5))
        time.sleep(0.05)
        assert there.read() == b"" and board.cells[slot] == 0
        here.writer(1)(header(7, 10))
        found = []
        until(lambda: found.extend(Inbox().headers(there.read())) or found)
        assert found[0].slot == 7
        assert board.cells[slot] == 1 and board.times[slot + WHEN] == 0.5


@pytest.mark.parametrize("how", ["later", "asleep"])
def test_a_tick_that_is_kept_goes_by_itself(tmp_path, monkeypatch, how):
    if how == "asleep":
        monkeypatch.setattr(lines, "LATER", 1e6)
    with two_ranks(tmp_path) as (here, there, board):
        slot = board.completion_slots(1)[0]
        here.send_later(1, completed(slot, 2, NAN))
        if how == "asleep":
            here.sleep(0.0)
        heard = []
        until(lambda: heard.append(there.read()) or board.cells[slot] == 2)
        assert b"".join(heard), "who sleeps on it is not woken"


def test_who_does_not_know_the_secret_is_not_heard(tmp_path):
    with two_ranks(tmp_path, secret=b"guess") as (here, there, board):
        slot = board.completion_slots(1)[0]
        here.send(1, completed(slot, 1, NAN))
        here.send(1, header(1, 10))
        time.sleep(0.05)
        assert there.read() == b"" and board.cells[slot] == 0
        there.sleep(0.01)  # and is not listened to again
