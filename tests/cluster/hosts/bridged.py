"""The bridge of one of two hosts. As a script it is the second's, on a socket that it is given; it
says when it begins, and ends when its input does."""

import socket
import sys
import tempfile
from contextlib import ExitStack, contextmanager
from pathlib import Path

from dlviz.cluster.control.board import Board
from dlviz.cluster.hosts.bridge import Bridge
from dlviz.cluster.hosts.network import Host, Network, Store
from dlviz.cluster.hosts.wire import Wire, keys

HOSTS = tuple(Host(f"host-{n}", "", "", (n,)) for n in range(2))


@contextmanager
def bridged(own, sock, folder):
    """The bridge of host `own`, its board, and what it says of the hosts that it loses."""
    with ExitStack() as left:
        board = Board(str(Path(folder) / "board"), 2, create=True)
        left.callback(board.close)
        wire = Wire(sock, keys(b"secret", (b"1", b"2"), first=own == 0))
        left.callback(wire.close)
        network, lost = Network(HOSTS, own, Store("", 0, "")), {}
        bridge = Bridge(network, str(folder), board, {1 - own: wire}, print, lost.setdefault)
        bridge.start()
        left.callback(bridge.close)
        yield bridge, board, lost


if __name__ == "__main__":
    print("loaded", flush=True)
    with (
        tempfile.TemporaryDirectory() as folder,
        bridged(1, socket.socket(fileno=int(sys.argv[1])), folder),
    ):
        sys.stdin.read()
