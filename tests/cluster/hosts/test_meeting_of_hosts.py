"""Hosts that meet, or do not: who is missing, out of reach or no host at all is named."""

import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from datetime import timedelta
from multiprocessing.connection import wait
from pathlib import Path

import pytest
import torch.distributed as dist
from pairs import tcp_pair, until
from test_clocks_of_hosts import bridges

import dlviz
from dlviz.cluster.errors import RunError
from dlviz.cluster.hosts import bridge, handshake, network, rendezvous
from dlviz.cluster.hosts.bridge import OUTPUT
from dlviz.cluster.hosts.coordinator import Mailbox
from dlviz.cluster.hosts.handshake import UNIDENTIFIED, Listener
from dlviz.cluster.hosts.network import Store
from dlviz.cluster.hosts.rendezvous import join, route_to
from dlviz.cluster.hosts.wire import FRAME, PART, Forged, Wire, keys

LOCAL = "127.0.0.1"
RANKS = ((0, 1), (2,), (3,))


@pytest.fixture(scope="module")
def port():
    """Of a store such as torchrun has."""
    store = dist.TCPStore(LOCAL, 0, is_master=True, wait_for_workers=False)
    yield store.port


@pytest.fixture
def store(port, request, monkeypatch):
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    monkeypatch.delenv("DLVIZ_SECRET", raising=False)
    return Store(LOCAL, port, request.node.name)


def met(store, hosts=3, before=lambda number: None):
    """What came of it on each host, and in how many seconds."""
    found = {}

    def be(number):
        before(number)
        began = time.monotonic()
        try:
            found[number] = join(store, number, hosts, RANKS[number], "cpu")
        except (ValueError, RunError) as error:
            found[number] = error
        seconds[number] = time.monotonic() - began

    seconds = {}
    threads = [threading.Thread(target=be, args=(number,)) for number in range(hosts)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [found[number] for number in range(hosts)], max(seconds.values())


def close(found):
    for meeting in found:
        for wire in meeting.wires.values():
            wire.close()


def test_three_hosts_of_one_name_know_each_other_and_tell_each_other_apart(store):
    found, _ = met(store)
    for own, meeting in enumerate(found):
        assert [host.ranks for host in meeting.network.hosts] == list(RANKS)
        assert sorted(meeting.wires) == [other for other in range(3) if other != own]
        names = {host.name for host in meeting.network.hosts}
        assert names == {f"{socket.gethostname()} (node {n})" for n in range(3)}
    close(found)


def astray(monkeypatch, own, other, where):
    """What host `own` sends to host `other` goes to the port `where`."""
    reach = rendezvous._reach

    def wrong(one, another):
        if (tuple(one["ranks"]), tuple(another["ranks"])) == (RANKS[own], RANKS[other]):
            another = another | {"port": where}
        return reach(one, another)

    monkeypatch.setattr(rendezvous, "_reach", wrong)


def test_hosts_that_do_not_reach_each_other_are_named_to_those_that_do(store, monkeypatch):
    """Host 0 lets go of host 1 then, which is told what came first all the same."""

    def late(sock, own, *rest, **how):
        if own == 1:
            time.sleep(3 * handshake.GLANCE)
        return handshake.shake_hands(sock, own, *rest, **how)

    monkeypatch.setattr(rendezvous, "shake_hands", late)
    with socket.socket() as nobody:
        nobody.bind((LOCAL, 0))  # nobody else gets the port, and who connects to it is refused
        astray(monkeypatch, 2, 1, nobody.getsockname()[1])
        found, seconds = met(store)
    assert [type(error) for error in found] == [ValueError] * 3
    (error,) = {str(error) for error in found}
    assert re.search(r"\(interface lo, 127.0.0.1\) cannot reach .* Connection refused", error)
    assert seconds < 40


def test_a_firewall_that_drops_one_way_is_named_before_anything_runs(store, monkeypatch):
    """gloo connects from either side."""
    monkeypatch.setattr(rendezvous, "PATIENCE", 0.3)
    with socket.create_server((LOCAL, 0), backlog=0) as full, ExitStack() as left:
        for _ in range(2):  # the system drops who comes next
            waits = left.enter_context(socket.socket())
            waits.setblocking(False)
            waits.connect_ex(full.getsockname())
        astray(monkeypatch, 0, 1, full.getsockname()[1])
        found, seconds = met(store, 2)
    for error in found:
        assert isinstance(error, ValueError) and "cannot reach" in str(error)
        assert "timed out; let the hosts' firewalls pass" in str(error)
    assert seconds < 10


def test_a_hundred_strangers_hold_up_no_host(store):
    with ExitStack() as left:

        def before(number):
            if number < 2:
                return
            about = json.loads(dist.PrefixStore(store.prefix, keys_of(store)).get("host 1"))
            for n in range(100):
                sock = socket.create_connection((about["address"], about["port"]))
                left.enter_context(sock)
                if n % 10 == 0:
                    sock.sendall(b"GET / HTTP/1.1\r\nHost: somewhere\r\n\r\n" * 10)

        found, seconds = met(store, 3, before)
        assert [sorted(meeting.wires) for meeting in found] == [[1, 2], [0, 2], [0, 1]]
        assert seconds < 5 < rendezvous.PATIENCE
        close(found)


def keys_of(store):
    return dist.TCPStore(store.address, store.port, timeout=timedelta(seconds=30))


def test_of_strangers_who_say_nothing_only_so_many_are_kept():
    with socket.create_server((LOCAL, 0), backlog=200) as server, ExitStack() as left:
        listener = left.enter_context(Listener(server, 0, b"secret", range(1, 2), {}))
        for _ in range(UNIDENTIFIED + 20):
            left.enter_context(socket.create_connection(server.getsockname()))
        for _ in range(UNIDENTIFIED + 20):
            listener.look()
        assert len(listener._handshakes) == UNIDENTIFIED
        host = left.enter_context(socket.create_connection(server.getsockname()))
        thread = threading.Thread(target=handshake.shake_hands, args=(host, 1, b"secret", False))
        thread.start()
        while 1 not in listener.wires:
            listener.look()
        thread.join()
        listener.wires[1].close()


@pytest.mark.slow
@pytest.mark.sweep
def test_eight_hosts_meet_and_read_their_clocks_at_little_cost():
    """On an idle machine all of it takes a tenth of a second, on a busy one what the others leave:
    its processor's time is what it is."""
    command = [sys.executable, Path(__file__).with_name("eight_hosts.py")]
    environ = {**os.environ, "PYTHONPATH": str(Path(dlviz.__file__).parents[1])}
    done = subprocess.run(command, env=environ, stdout=subprocess.PIPE, timeout=120, check=True)
    runs = json.loads(done.stdout)
    for run in runs:
        assert len(run["read"]) == 7
        assert all(abs(offset) <= error < 50e6 for offset, error, _ in run["read"])
    assert sorted(run["processor"] for run in runs)[len(runs) // 2] < 0.25  # s


def test_a_host_that_does_not_come_is_named(store, monkeypatch):
    monkeypatch.setattr(network, "WAIT", 0.3)
    with pytest.raises(RunError, match="host 1 has not called launch within"):
        join(store, 0, 2, (0,), "cpu")


def test_a_store_that_is_not_there_is_named():
    with socket.socket() as nobody:
        nobody.bind((LOCAL, 0))
        closed = nobody.getsockname()[1]
        for address, says in ((LOCAL, "Connection refused"), ("no-such-host.invalid", "")):
            match = f"reach torchrun's store at {address}, port {closed} .*{says}.*--local-addr"
            with pytest.raises(ValueError, match=match):
                join(Store(address, closed, "a run"), 1, 2, (1,), "cpu")


def test_a_port_that_another_program_has_taken_is_named(monkeypatch):
    monkeypatch.setattr(network, "PATIENCE", 0.5)
    with socket.create_server((LOCAL, 0)) as taken:
        where = taken.getsockname()[1]
        says = "found no store of torchrun there .*: choose another port, which is free"
        with pytest.raises(ValueError, match=says):
            join(Store(LOCAL, where, "a run"), 1, 2, (1,), "cpu")


def test_an_address_of_ipv6_alone_is_refused(monkeypatch):
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    with pytest.raises(ValueError, match="finds no IPv4 address of fd00::1, where torchrun's sto"):
        route_to("fd00::1", 1)


# -- hosts that have met ---------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("frame", "says"),
    [
        (FRAME.pack(9, bytes(16)) + bytes(9), "a frame is not sealed with the run's secret"),
        (FRAME.pack(2**32 - 1, bytes(16)), "a frame of 4294967295 bytes came, and no host sends"),
        (FRAME.pack(0, bytes(16)), "a frame of 0 bytes came"),
    ],
)
def test_a_frame_that_no_host_has_sent_ends_the_run_by_name(frame, says, tmp_path):
    with bridges(tmp_path) as ((_, _, lost), (other, *_)):
        other.wires[0].sock.sendall(frame)
        until(lambda: lost)
        assert lost[1].startswith(says)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_bridge_that_fails_says_so_rather_than_fall_silent(tmp_path):
    def fail(*frame):
        raise OSError("no space left")

    with bridges(tmp_path) as ((one, _, lost), (other, _, lost_there)):
        one._take = fail
        other.wires[0].send(OUTPUT, 1, b"a line")
        until(lambda: lost and lost_there)
    assert lost == {1: "what it said could not be passed on (OSError('no space left'))"}
    assert lost_there == {0: "it closed its connection"}


def test_a_slow_way_to_a_host_does_not_hold_up_the_reading_of_its_clock(tmp_path, monkeypatch):
    monkeypatch.setattr(bridge, "ENOUGH", 0.5)
    began = time.monotonic()
    with bridges(tmp_path, delay=0.3) as ((one, *_), _):  # 60 rounds would take 18 s
        reading = one.read_clock(1)
    assert 0.15e9 <= reading.error and abs(reading.offset) <= reading.error
    assert time.monotonic() - began < 12


def test_what_is_long_goes_in_parts_that_nobody_can_mix_up():
    ends = tcp_pair()
    with ends[0], ends[1]:
        one = Wire(ends[0], keys(b"secret", (b"1", b"2"), True))
        other = Wire(ends[1], keys(b"secret", (b"1", b"2"), False))
        sent = [(1, 3, b"a" * size) for size in (0, PART - 1, PART, PART + 1, 3 * PART)]
        thread = threading.Thread(target=lambda: [one.send(*each) for each in sent])
        thread.start()
        found, limit = [], time.monotonic() + 30
        while len(found) < len(sent) and time.monotonic() < limit:
            found += other.receive()
            one.flush()
        thread.join()
    assert found == sent


def test_a_frame_longer_than_a_part_is_refused_before_it_has_come():
    ends = tcp_pair()
    with ends[0], ends[1]:
        wire = Wire(ends[0], keys(b"secret", (b"1", b"2"), True))
        with pytest.raises(Forged, match="a frame of 2000000 bytes came"):
            list(wire.cut(FRAME.pack(2_000_000, bytes(16))))


def test_a_mailbox_never_makes_who_puts_into_it_wait():
    """A pipe holds 65536 bells."""
    box = Mailbox()
    thread = threading.Thread(target=lambda: [box.put(b"%d" % n) for n in range(100_000)])
    thread.daemon = True
    thread.start()
    thread.join(30)
    assert not thread.is_alive()
    assert [box.recv_bytes() for _ in range(100_000)] == [b"%d" % n for n in range(100_000)]
    assert not box.poll() and not rings(box)
    box.put(b"")
    assert rings(box)
    with pytest.raises(EOFError):
        box.recv_bytes()
    box.close()
    box.put(b"too late")


def rings(box):
    return bool(wait([box], 0))
