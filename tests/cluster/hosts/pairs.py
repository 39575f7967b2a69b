"""Two ends of a TCP connection, without a network, and a wait for what comes by one."""

import socket
import time


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        one = socket.create_connection(server.getsockname())
        return one, server.accept()[0]


def until(done) -> None:
    """Wait until it is so."""
    limit = time.monotonic() + 30
    while not done():
        assert time.monotonic() < limit
        time.sleep(0.01)
