"""What fails while it runs on two hosts, with two ranks and one: under torchrun this script tries
all of it in turn. It says "step NAME" when the test is to break something, and notes each outcome.
"""

import os
import sys
import threading
import time
from pathlib import Path

import torch
from tried_on_hosts import note, tried

import dlviz
from dlviz.cluster.hosts import rendezvous

STEP = 0.5  # s by which a clock is stepped
LINE = "x" * 1000


# -- the workers -----------------------------------------------------------------------------------
def small(comm):
    """Messages, short and long, round the ranks, and a sum of all."""
    found = []
    for count in (1, 70_000):
        ball, peer = torch.zeros(count), (comm.rank + 1) % comm.size
        own = torch.full((count,), float(comm.rank))
        comm.sendrecv(own, peer, ball, (comm.rank - 1) % comm.size)
        found.append(ball.sum().item())
    total = torch.arange(3.0) * comm.rank
    comm.all_reduce(total)
    return [*found, total.tolist()]


def flood(comm):
    """The rank of the other host prints for ever; after a second rank 0 has had enough."""
    if comm.rank == 2:
        while True:
            print(LINE)
    until, ball = time.monotonic() + 1, torch.ones(1)
    while comm.rank == 1 or time.monotonic() < until:
        comm.sendrecv(torch.ones(1), 1 - comm.rank, ball, 1 - comm.rank)
        time.sleep(0.05)
    raise RuntimeError("enough")


def stepped(comm):
    """The clock of the second host is stepped while ranks 0 and 2 talk."""
    ball = torch.zeros(5000)
    for turn in range(20):
        if turn == 10 and comm.rank == 2:
            Path("/tmp/step").touch()  # for the process that launched this one
            step_clock()
            time.sleep(0.2)
        if comm.rank != 1:
            comm.sendrecv(torch.full((5000,), float(turn)), 2 - comm.rank, ball, 2 - comm.rank)
    return ball[0].item()


def rounds(comm):
    """For ever."""
    if comm.rank == 0:
        print("step", os.environ["DLVIZ_STEP"], flush=True)
    ball = torch.zeros(20_000)
    while True:
        peer = 2 - comm.rank
        if peer != comm.rank:
            comm.sendrecv(torch.ones(20_000), peer, ball, peer)
        time.sleep(0.05)


real = time.perf_counter_ns


def later():
    return real() + int(STEP * 1e9)


def step_clock(clock=later):
    """What a system does when it steps its clock, for all that reads it by Python here."""
    for module in list(sys.modules.values()):
        if getattr(module, "__dict__", {}).get("perf_counter_ns") in (real, later):
            module.perf_counter_ns = clock


def wait_for(path):
    while not Path(path).exists():
        time.sleep(0.02)


# -- as a script -----------------------------------------------------------------------------------
def trial(name, worker):
    os.environ["DLVIZ_STEP"] = name
    found = tried(worker, timeout=80.0)
    return found | {"name": name, "output": None}


def look():
    """What of this host another one does not share."""
    note(name="apart", memory=os.stat("/dev/shm").st_dev, clock=time.perf_counter())


def note_wires():
    """Note the ends of each wire that is made; in "no lines" have them all that gets through."""
    join = rendezvous.join

    def noted(*args):
        joined = join(*args)
        ends = [(w.sock.getsockname()[1], w.sock.getpeername()[1]) for w in joined.wires.values()]
        note(name="wire", ends=ends, store=[int(os.environ["MASTER_PORT"]), 29500])
        if os.environ.get("DLVIZ_STEP") == "no lines" and os.environ["RANK"] == "0":
            print("step no lines", flush=True)
            wait_for("/tmp/no-lines")
        return joined

    for module in list(sys.modules.values()):
        if getattr(module, "__dict__", {}).get("join") is join:
            module.join = noted


def memory(what):
    """In bytes, of this process: VmRSS or VmHWM, the most since the mark."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(what)) * 1024


def flooded():
    """The flood, and how much more memory this process took for it than before."""
    Path("/proc/self/clear_refs").write_text("5")  # the mark
    before, began = memory("VmRSS"), time.monotonic()
    try:
        dlviz.launch(flood, 3)
    except dlviz.RunError as error:
        printed = error.output and len(error.output[2])
        says = f"{type(error).__name__}: {error}"
    grown, lasted = memory("VmHWM") - before, time.monotonic() - began
    note(name="flood", says=says, printed=printed, grown=grown, seconds=lasted)


def look_back():
    """What the Trace of a run whose clock was stepped says, and the longest way back in time."""
    trace = dlviz.launch(stepped, 3).trace
    if trace is not None:
        back = max(row.sent - row.received for row in trace.messages.rows())
        meta = {name: trace.meta[name] for name in ("outcome", "clock_error", "warning")}
        note(name="stepped", back=back, **meta)


def main():
    parent, first = os.environ["LOCAL_RANK"] == "0", os.environ["RANK"] == "0"
    if parent:
        look()
        note_wires()
    note(**trial("small", small))
    flooded()
    if os.environ["RANK"] == "2":
        wait = threading.Thread(target=lambda: (wait_for("/tmp/step"), step_clock()), daemon=True)
        wait.start()
    look_back()
    step_clock(real)  # the ranks to come have that
    for name in ("no wires", "no bytes", "no lines"):
        note(**trial(name, small if name == "no lines" else rounds))
    if first:
        print("step no way", flush=True)
        wait_for("/tmp/closed")
    patience, rendezvous.PATIENCE = rendezvous.PATIENCE, 1.0
    note(**trial("no way", small))
    rendezvous.PATIENCE = patience
    if first:
        wait_for("/tmp/opened")
    note(**trial("no torchrun", rounds))
    note(**trial("no host", rounds))


if __name__ == "__main__":
    main()
