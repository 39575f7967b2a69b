"""How long it takes the first of several hosts to read the clocks of the others, which read its
clock at the same time. Each host is a process with the bridge of a run; they are connected within
this machine."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

from dlviz.cluster.control.board import Board
from dlviz.cluster.hosts.bridge import Bridge
from dlviz.cluster.hosts.network import Host, Network, Store
from dlviz.cluster.hosts.wire import Wire, keys
from dlviz.cluster.parent.start import context

TIMES = 5


@contextmanager
def bridge_of(own: int, hosts: int, ends: dict[int, socket.socket]) -> Iterator[Bridge]:
    """The bridge of a host with one rank; `ends` are its connections to others."""
    network = Network(
        tuple(Host(f"host-{n}", "", "", (n,)) for n in range(hosts)), own, Store("", 0, "")
    )
    with TemporaryDirectory() as folder, ExitStack() as left:
        board = Board(os.path.join(folder, "board"), hosts, create=True)
        left.callback(board.close)
        wires = {}
        for other, end in ends.items():
            wires[other] = Wire(end, keys(b"", (b"", b""), first=own < other))
            left.callback(wires[other].close)
        lost: dict[int, str] = {}
        bridge = Bridge(network, folder, board, wires, print, lost.setdefault)
        bridge.start()
        left.callback(bridge.close)
        yield bridge


def other_host(own: int, hosts: int, end: socket.socket, control: Any) -> None:
    """Be another host: read the clock of host 0 on each request, until the last one."""
    with bridge_of(own, hosts, {0: end}) as bridge:
        control.send(None)
        while control.recv():
            bridge.read_clock(0)
            control.send(None)


def seconds_to_align(hosts: int) -> list[float]:
    """The seconds of each of TIMES readings."""
    with ExitStack() as left:
        ends, controls = {}, []
        for number in range(1, hosts):
            ends[number], end = pair()
            control, its = context.Pipe()
            controls.append(left.enter_context(control))
            process = context.Process(target=other_host, args=(number, hosts, end, its))
            process.start()
            left.callback(process.join)
            end.close()
            its.close()
        bridge = left.enter_context(bridge_of(0, hosts, ends))
        found = [seconds(bridge, controls) for _ in range(TIMES)]
        for control in controls:
            control.recv()
            control.send(False)
        return found


def seconds(bridge: Bridge, controls: list[Any]) -> float:
    for control in controls:
        control.recv()
    for control in controls:
        control.send(True)
    start = perf_counter()
    for host in list(bridge.wires):
        assert bridge.read_clock(host) is not None
    return perf_counter() - start


def pair() -> tuple[socket.socket, socket.socket]:
    """The two ends of a TCP connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        one = socket.create_connection(server.getsockname())
        return one, server.accept()[0]
