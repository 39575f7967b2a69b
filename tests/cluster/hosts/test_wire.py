"""A wire takes what the run's secret has sealed, and nothing else."""

import os
import pickle
import select
import threading

import pytest
from pairs import tcp_pair

from dlviz.cluster.hosts.handshake import shake_hands
from dlviz.cluster.hosts.wire import FRAME, HEADER, Forged, Wire, keys

DRAWN = b"1" * 16, b"2" * 16


@pytest.fixture
def ends():
    one, other = tcp_pair()
    with one, other:
        yield one, other


def wires(ends, secrets=(b"secret", b"secret")):
    return [
        Wire(end, keys(secret, DRAWN, first))
        for end, secret, first in zip(ends, secrets, (True, False), strict=True)
    ]


def received(wire, frames):
    found = []
    while len(found) < frames:
        assert select.select([wire.sock], [], [], 5)[0]
        found += wire.receive()
    return found


def test_frames_come_as_they_were_sent_both_ways(ends):
    one, other = wires(ends)
    sent = [(1, 7, b""), (2, -1, b"x" * 1000), (3, 0, bytes(range(256)))]
    for frame in sent:
        one.send(*frame)
        other.send(*frame)
    assert received(other, 3) == sent == received(one, 3)


def test_what_a_socket_has_no_room_for_is_sent_later(ends):
    one, other = wires(ends)
    stirred, data = [], os.urandom(5_000_000)
    one.stir = lambda: stirred.append(True)
    one.send(1, 0, data)
    one.send(2, 0, b"next")
    assert stirred and one.backlog
    found = []
    while len(found) < 2:
        found += other.receive()
        one.flush()
    assert found == [(1, 0, data), (2, 0, b"next")] and not one.backlog


def test_another_secret_is_noticed_at_the_first_frame(ends):
    one, other = wires(ends, (b"secret", b"another"))
    one.send(1)
    with pytest.raises(Forged, match="not sealed with the run's secret"):
        received(other, 1)


@pytest.mark.parametrize("how", ["changed", "repeated", "swapped", "sent back", "unsealed"])
def test_frames_of_others_are_refused(how, ends):
    """By somebody between the two ends, who sees all and knows no secret."""
    middle, far = tcp_pair()
    with middle, far:
        one, other = Wire(ends[0], keys(b"s", DRAWN, True)), Wire(far, keys(b"s", DRAWN, False))
        one.send(1, 0, b"pay 100")
        one.send(1, 0, b"pay 200")
        size = FRAME.size + HEADER.size + len(b"pay 100")
        first, second = ends[1].recv(size), ends[1].recv(size)
        if how == "sent back":
            ends[1].sendall(first)
            with pytest.raises(Forged):
                received(one, 1)
            return
        middle.sendall(
            {
                "changed": first.replace(b"100", b"900"),
                "repeated": first + first,
                "swapped": second + first,
                "unsealed": FRAME.pack(5, bytes(16)) + first[FRAME.size :][:5],
            }[how]
        )
        with pytest.raises(Forged):
            received(other, 2)


def test_an_end_that_closes_is_noticed(ends):
    one, other = wires(ends)
    one.close()
    with pytest.raises(EOFError):
        received(other, 1)


def greeted(ends, secrets):
    """What both ends make of each other: the number that they are told, or the error."""
    found = {}

    def meet(own):
        try:
            found[own] = shake_hands(ends[own], own, secrets[own], called=own == 0)
        except ConnectionError as error:
            found[own] = error
            ends[own].close()

    threads = [threading.Thread(target=meet, args=(own,)) for own in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def test_hosts_with_one_secret_know_each_other(ends):
    found = greeted(ends, (b"secret", b"secret"))
    assert (found[0][0], found[1][0]) == (1, 0)
    found[0][1].send(1, 2, b"data")
    assert received(found[1][1], 1) == [(1, 2, b"data")]


def test_hosts_with_two_secrets_send_each_other_away(ends):
    found = greeted(ends, (b"secret", b"another"))
    assert all(isinstance(each, ConnectionError) for each in found.values())


class Bomb:
    """Goes off when it is unpickled."""

    def __reduce__(self):
        return os.abort, ()


def test_a_stranger_with_a_pickle_is_sent_away_unread(ends):
    def strange():
        ends[1].sendall(pickle.dumps(Bomb()) * 10)

    thread = threading.Thread(target=strange)
    thread.start()
    with pytest.raises(ConnectionError):
        shake_hands(ends[0], 0, b"secret", called=True)
    thread.join()
