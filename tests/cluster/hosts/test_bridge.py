"""The bridge: what ranks write for ranks of another host comes out there, whole and in order."""

import os
import random
import time

from pairs import until
from test_clocks_of_hosts import bridges

from dlviz.cluster.control.board import ACTIVITY, STATE, WANTS
from dlviz.cluster.control.pipes import Pipes
from dlviz.cluster.hosts.records import Cutter, shown


def test_records_are_cut_wherever_reading_stopped():
    draw = random.Random(3)
    records = [(2, 0, 9000, 8 * n, os.urandom(draw.randrange(8, 300))) for n in range(90)]
    data, cutter, found = b"".join(shown(*record) for record in records), Cutter(), []
    while data:
        size = draw.randrange(1, 400)
        found += cutter.shown(data[:size])
        data = data[size:]
    assert found == records


def test_what_is_shown_comes_whole_and_in_order_and_holds_up_nobody(tmp_path):
    with bridges(tmp_path) as ((one, *_), _):
        here, there = Pipes(str(tmp_path / "0"), 0, 2), Pipes(str(tmp_path / "1"), 1, 2)
        size, length = 1 << 16, 3000
        for number in range(1000):  # 3 MB: more than a pipe holds
            while not here.has_room(1):
                time.sleep(0.001)
            at = number * 61 % (size - length)
            os.write(here.to(1), shown(3, 0, size, at, bytes([number % 256]) * length))
        assert one.read_clock(1) is not None  # that goes on meanwhile
        whole = bytearray(size)
        for number in range(1000):
            at = number * 61 % (size - length)
            whole[at : at + length] = bytes([number % 256]) * length
        file = tmp_path / "1" / "group-3-0"
        until(lambda: file.exists() and file.read_bytes() == whole)
        here.close()
        there.close()


def test_a_group_is_shown_in_the_other_hosts_file_and_wakes_who_waits(tmp_path):
    with bridges(tmp_path) as (_, (_, far, _)):
        here, there = Pipes(str(tmp_path / "0"), 0, 2), Pipes(str(tmp_path / "1"), 1, 2)
        far.put(1, WANTS, 1)
        os.write(here.to(1), shown(3, 0, 4096, 64, b"a call: "))
        until(lambda: (tmp_path / "1" / "group-3-0").exists() and there.read())
        shown_there = (tmp_path / "1" / "group-3-0").read_bytes()
        assert len(shown_there) == 4096 and shown_there[64:72] == b"a call: "
        assert not any(shown_there[:64] + shown_there[72:])
        assert not (tmp_path / "0" / "group-3-0").exists()
        here.close()
        there.close()


def test_states_come_to_host_0_before_what_is_said_after(tmp_path):
    with bridges(tmp_path) as ((_, near, _), (bridge, far, _)):
        for activity in range(1, 50):
            far.put(1, ACTIVITY, activity)
            bridge.send_states()
        until(lambda: near.get(1, ACTIVITY) == 49)
        assert near.cells[STATE : 2 * STATE].tolist() == far.cells[STATE : 2 * STATE].tolist()


def test_a_host_that_ends_is_noticed_and_why(tmp_path):
    with bridges(tmp_path) as ((bridge, _, lost), (other, *_)):
        assert not lost
        other.wires[0].sock.shutdown(2)
        until(lambda: lost)
        assert lost == {1: "it closed its connection"}
        assert bridge.read_clock(1) is None
