"""Connections of ranks that are blocked though their hosts hear each other: if a firewall lets only
some ports pass, gloo waits for ever, and the system retransmits for a quarter of an hour.

Linux counts in /proc/net/tcp how often it has sent what was not acknowledged, at intervals that
double from 0.2 s (1 s while it connects). A process that only reads slowly, or is stopped, still
acknowledges: its system does.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
from collections.abc import Collection, Iterator
from contextlib import suppress

TABLE = "/proc/net/tcp"
RESENDING = "01"  # what its timer is for
AGAIN = {"01": 5, "02": 3}  # by state (established, connecting): 6.2 s and 7 s without an answer


def stalled(pids: dict[int, int], addresses: Collection[str]) -> tuple[int, str] | None:
    """A rank, of those whose processes are `pids`, and which of `addresses` has not answered it for
    six seconds; None if all have, or if unknown."""
    if sys.platform != "linux":
        return None
    found = {inode: address for address, inode in _unanswered() if address in addresses}
    for rank, pid in pids.items() if found else ():
        for inode in _sockets(pid):
            if inode in found:
                return rank, found[inode]
    return None


def _unanswered() -> Iterator[tuple[str, str]]:
    """Address and inode of each connection whose other end has not answered for so long."""
    with open(TABLE) as file:
        next(file)
        for line in file:
            _, _, there, state, _, timer, again, _, _, inode, *_ = line.split()
            if timer.startswith(RESENDING) and int(again, 16) >= AGAIN.get(state, sys.maxsize):
                address = int(there.partition(":")[0], 16)
                yield socket.inet_ntoa(struct.pack("=I", address)), inode


def _sockets(pid: int) -> Iterator[str]:
    """The inodes of a process's sockets."""
    folder = f"/proc/{pid}/fd"
    with suppress(OSError):  # it has ended
        for name in os.listdir(folder):
            with suppress(OSError):
                kind, _, inode = os.readlink(os.path.join(folder, name)).partition(":")
                if kind == "socket":
                    yield inode.strip("[]")
