"""The bridge: what ranks write for ranks of another host comes out there, whole and in order."""

import os
import random
import time
from math import nan as NAN

import torch
from test_clocks_of_hosts import bridges

from dlviz.cluster.control.board import ACTIVITY, ASLEEP, STATE, WANTS, WHEN
from dlviz.cluster.control.form import form_of
from dlviz.cluster.control.pipes import HEAD, INLINE, SOURCE, Inbox, Pipes, bell
from dlviz.cluster.hosts.records import SHOWN, TICKED, Cutter, shown, ticked


def envelope(number, nbytes):
    """One from rank 0, with its bytes."""
    form = form_of((nbytes,), torch.uint8)
    return HEAD.pack(SOURCE * 0 + 5, INLINE, 0, number, 0, 0, NAN, form) + bytes(nbytes)


def test_records_are_cut_wherever_reading_stopped():
    draw = random.Random(3)
    whole = [
        [envelope(n, draw.randrange(200)), ticked(n, 1, 0.5), shown(2, 0, 800, 8, b"12345678")]
        for n in range(30)
    ]
    records = [record for group in whole for record in group]
    data, cutter, found = b"".join(records), Cutter(), []
    while data:
        size = draw.randrange(1, 400)
        found += [record for _, record in cutter.records(data[:size])]
        data = data[size:]
    assert found == records
    assert {fields[0] for r in records for fields, _ in Cutter().records(r)} == {5, TICKED, SHOWN}


def until(done):
    deadline = time.monotonic() + 30
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def write(pipes, record):
    while not pipes.has_room(1):
        time.sleep(0.001)
    os.write(pipes.to(1), record)


def read(pipes, inbox):
    return list(inbox.envelopes(pipes.read()))


def test_what_rank_0_writes_to_rank_1_comes_into_its_pipe(tmp_path):
    with bridges(tmp_path):
        here, there = Pipes(str(tmp_path / "0"), 0, 2), Pipes(str(tmp_path / "1"), 1, 2)
        sizes = [random.Random(n).randrange(3000) for n in range(200)]
        inbox, found = Inbox(), []
        for number, size in enumerate(sizes):
            write(here, envelope(number, size))
            found += read(there, inbox)
        until(lambda: found.extend(read(there, inbox)) or len(found) == len(sizes))
        assert [each.tick for each in found] == list(range(len(sizes)))
        assert [len(each.data) for each in found] == sizes
        here.close()
        there.close()


def test_a_full_pipe_holds_up_nobody_else_and_loses_nothing(tmp_path):
    with bridges(tmp_path) as ((one, *_), _):
        here, there = Pipes(str(tmp_path / "0"), 0, 2), Pipes(str(tmp_path / "1"), 1, 2)
        for number in range(1000):  # 3 MB: more than a pipe holds
            write(here, envelope(number, 3000))
        assert one.read_clock(1) is not None  # that goes on meanwhile
        inbox, found = Inbox(), []
        until(lambda: found.extend(read(there, inbox)) or len(found) == 1000)
        assert [each.tick for each in found] == list(range(1000))
        here.close()
        there.close()


def test_a_tick_is_repeated_on_the_board_and_wakes_who_sleeps_on_it(tmp_path):
    with bridges(tmp_path) as ((_, near, _), (_, far, _)):
        here, there = Pipes(str(tmp_path / "0"), 0, 2), Pipes(str(tmp_path / "1"), 1, 2)
        awake, asleep = far.ticks(1)[:2]
        far.cells[asleep + ASLEEP] = 1
        for tick in (awake, asleep):
            os.write(here.to(1), ticked(tick, 2, 0.25))
        until(lambda: far.cells[asleep] == 2)
        assert far.cells[awake] == 2 and far.times[asleep + WHEN] == 0.25
        assert near.cells[awake] == 0  # boards are no more one than hosts are
        until(lambda: there.read() == bell(0))
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
