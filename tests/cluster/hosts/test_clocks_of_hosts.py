"""How far the clocks of two hosts are apart: never further from the truth than it says."""

import random
import socket
import struct
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, contextmanager
from time import perf_counter_ns

import bridged as of_a_host
import namespaces
import pytest
from bridged import bridged
from pairs import tcp_pair

from dlviz.cluster.hosts.clocks import DRIFT, ClockLine, PingPong, Reading, read

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


def test_a_clock_that_was_read_once_may_have_drifted_since():
    once = Reading(AHEAD, 100, 0)
    line = ClockLine(once, once.later(10**10))
    assert not line.stepped
    for drift in (-DRIFT, 0, DRIFT):
        for here in (0, 5 * 10**9, 10**10):
            there = here + AHEAD + round(drift * here)
            assert abs(line.to_here(there) - here) <= line.error <= 100 + DRIFT * 10**10


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
            found.append(left.enter_context(bridged(own, end, folder)))
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


@pytest.mark.slow
def test_the_offset_of_a_host_that_is_1000_s_ahead_is_within_its_bound_in_200_tries(tmp_path):
    """A clock of the system's, in a time namespace: the offset is known to the last ns."""
    namespaces.need(namespaces.why_not())
    here, there = tcp_pair()
    ahead = "unshare", "--time", "--monotonic", "1000", "--fork", "--kill-child"
    command = (*ahead, sys.executable, of_a_host.__file__, str(there.fileno()))
    how = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "pass_fds": [there.fileno()]}
    with there, subprocess.Popen(command, **how) as other:
        assert other.stdout.readline() == b"loaded\n"
        with bridged(0, here, tmp_path) as (bridge, *_):
            readings = [bridge.read_clock(1) for _ in range(200)]
        other.stdin.close()
    assert all(abs(reading.offset - AHEAD) <= reading.error for reading in readings)
    assert min(reading.error for reading in readings) < 1e6  # ns: it says something


def test_a_relay_of_5_ms_one_way_moves_the_offset_by_2_5_ms_and_the_bound_covers_it(tmp_path):
    with bridges(tmp_path, delay=0.005) as ((one, *_), _):
        reading = one.read_clock(1)
    assert abs(reading.offset) <= reading.error
    assert reading.error >= 2.5e6
    # What is not the relay's half of the bound is the way itself, of which neither can take more.
    assert abs(reading.offset - 2.5e6) <= reading.error - 2.5e6 + 1
