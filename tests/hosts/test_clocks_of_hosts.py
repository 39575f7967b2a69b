"""How far the clocks of two hosts are apart: never further from the truth than it says."""

import random
import socket
import struct
import threading
import time
from contextlib import ExitStack, contextmanager
from time import perf_counter_ns

import pytest
from pairs import tcp_pair

from dlviz.cluster.control.board import Board
from dlviz.cluster.hosts.bridge import Bridge
from dlviz.cluster.hosts.clocks import ClockLine, PingPong, Reading, read
from dlviz.cluster.hosts.network import Host, Network, Store
from dlviz.cluster.hosts.wire import Wire, keys

AHEAD = 1_000_000_000_000  # ns that the other clock is ahead
NOW = struct.Struct("=2q")


def answer(sock):
    """The other end of a ping-pong, by a clock that is AHEAD."""
    while sock.recv(1):
        came = perf_counter_ns() + AHEAD
        sock.sendall(NOW.pack(came, perf_counter_ns() + AHEAD))


def ask(sock):
    sent = perf_counter_ns()
    sock.sendall(b"?")
    came, left = NOW.unpack(sock.recv(NOW.size, socket.MSG_WAITALL))
    return PingPong(sent, came, left, perf_counter_ns())


@contextmanager
def peer():
    """A socket at whose other end somebody answers."""
    here, there = socket.socketpair()
    thread = threading.Thread(target=answer, args=(there,))
    thread.start()
    with here, there:
        yield here
        here.shutdown(socket.SHUT_RDWR)
        thread.join()


def test_the_offset_is_within_its_bound_in_200_tries():
    with peer() as sock:
        for _ in range(200):
            reading = read([ask(sock)])
            assert abs(reading.offset - AHEAD) <= reading.error


def test_the_shortest_round_counts():
    with peer() as sock:
        rounds = [ask(sock) for _ in range(50)]
    errors = [read([each]).error for each in rounds]
    assert read(rounds).error == min(errors)
    assert min(errors) < 2e6  # ns: a socket pair, on a machine that may be busy


@pytest.mark.parametrize("there, back", [(5_000_000, 0), (0, 5_000_000), (1, 1), (7, 0)])
def test_what_one_way_takes_longer_moves_the_offset_by_half_and_the_bound_covers_it(there, back):
    reading = read([PingPong(10, 10 + AHEAD + there, 20 + AHEAD + there, 20 + there + back)])
    assert abs(reading.offset - AHEAD - (there - back) / 2) <= 1
    assert abs(reading.offset - AHEAD) <= reading.error <= (there + back) / 2 + 2


def test_between_two_readings_the_offset_lies_on_their_line():
    gain = 50e-6  # s a second: a bad quartz
    line = ClockLine(Reading(AHEAD, 100, 0), Reading(AHEAD + 500_000, 200, 10**10))
    for here in random.Random(1).sample(range(10**10), 100):
        assert abs(line.to_here(here + AHEAD + round(gain * here)) - here) <= 2
    assert line.error == 200 and not line.stepped


def test_a_clock_that_was_stepped_is_no_better_known_than_its_step():
    line = ClockLine(Reading(0, 100, 0), Reading(2 * 10**9, 200, 10**10))
    assert line.stepped and line.error == 2 * 10**9 + 200
    for stepped_at in (0, 5 * 10**9, 10**10):
        for here in (0, 3 * 10**9, 7 * 10**9, 10**10):
            there = here + (2 * 10**9 if here > stepped_at else 0)
            assert abs(line.to_here(there) - here) <= line.error


# -- by the bridges of two hosts, both in this process: the offset is 0 ----------------------------
@contextmanager
def bridges(tmp_path, delay=0.0):
    """Two bridges; what host 0 sends to host 1 takes `delay` (s) longer."""
    hosts = tuple(Host(f"host-{n}", "", "", (n,)) for n in range(2))
    with ExitStack() as left:
        ends = tcp_pair()
        if delay:
            (a, c), (d, b) = tcp_pair(), tcp_pair()
            left.enter_context(ends[0])
            left.enter_context(ends[1])
            ends = a, b
            for source, target, late in ((c, d, delay), (d, c, 0.0)):
                threading.Thread(target=relay, args=(source, target, late), daemon=True).start()
        found = []
        for own, end in enumerate(ends):
            folder = tmp_path / str(own)
            folder.mkdir()
            board = Board(str(folder / "board"), 2, create=True)
            left.callback(board.close)
            wire = Wire(end, keys(b"secret", (b"1", b"2"), first=own == 0))
            left.callback(wire.close)
            network = Network(hosts, own, Store("", 0, ""))
            lost = {}
            bridge = Bridge(network, str(folder), board, {1 - own: wire}, print, lost.setdefault)
            bridge.start()
            left.callback(bridge.close)
            found.append((bridge, board, lost))
        yield found


def relay(source, target, late):
    with source, target:
        try:
            while data := source.recv(1 << 16):
                time.sleep(late)
                target.sendall(data)
        except OSError:
            pass


def test_bridges_read_each_others_clocks(tmp_path):
    with bridges(tmp_path) as ((one, *_), (other, *_)):
        for reading in (one.read_clock(1), other.read_clock(0)):
            assert abs(reading.offset) <= reading.error


def test_a_relay_of_5_ms_one_way_moves_the_offset_by_2_5_ms_and_the_bound_covers_it(tmp_path):
    with bridges(tmp_path, delay=0.005) as ((one, *_), _):
        reading = one.read_clock(1)
    assert abs(reading.offset) <= reading.error
    assert reading.error >= 2.5e6
    # What is not the relay's half of the bound is the way itself, of which neither can take more.
    assert abs(reading.offset - 2.5e6) <= reading.error - 2.5e6 + 1
