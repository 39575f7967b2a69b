"""Eight processes meet as hosts do and read each other's clocks as a run does. Printed is what of
that host 0 has read, and how long it took by the wall and by its processor, some times over. They
fork, since nothing runs yet."""

import json
import os
import sys
import tempfile
import time
from contextlib import ExitStack

import torch.distributed as dist

from dlviz.cluster.control.board import Board
from dlviz.cluster.hosts.bridge import Bridge
from dlviz.cluster.hosts.network import Store
from dlviz.cluster.hosts.rendezvous import join

HOSTS, TIMES = 8, 3


def be(number, port, run):
    """Be one of the hosts of a run; what it took and what was read, by host."""
    store = Store("127.0.0.1", port, f"run {run}")
    keys = store.open()
    together(keys, "begun")
    wall, processor = time.perf_counter(), time.process_time()
    network, wires = join(store, number, HOSTS, (number,), "cpu")
    with tempfile.TemporaryDirectory() as folder, ExitStack() as left:
        board = Board(os.path.join(folder, "board"), HOSTS, create=True)
        left.callback(board.close)
        for wire in wires.values():
            left.callback(wire.close)
        bridge = Bridge(network, folder, board, dict(wires), print, lambda host, how: None)
        bridge.start()
        left.callback(bridge.close)
        read = {host: bridge.read_clock(host) for host in (wires if number == 0 else (0,))}
        took = time.perf_counter() - wall, time.process_time() - processor
        together(keys, "read")
    return {"wall": took[0], "processor": took[1], "read": list(read.values())}


def together(keys, what):
    """Return when all have come to this."""
    if keys.add(what, 1) == HOSTS:
        keys.set(f"all have {what}", "")
    keys.get(f"all have {what}")


def main():
    known, tell = os.pipe()
    children = []
    for number in range(1, HOSTS):
        if not (pid := os.fork()):
            port = int(os.read(known, 5))
            for run in range(TIMES):
                be(number, port, run)
            sys.exit()
        children.append(pid)
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    os.write(tell, b"%5d" % store.port * len(children))
    print(json.dumps([be(0, store.port, run) for run in range(TIMES)]))
    for pid in children:
        os.waitpid(pid, 0)


if __name__ == "__main__":
    main()
