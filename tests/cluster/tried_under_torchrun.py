"""What the tests have ranks do, with torchrun and without. As a script, under torchrun, it
does what its arguments say: each process notes the outcomes of its runs in a file of its own."""

import json
import multiprocessing
import os
import signal
import sys
import time
from pathlib import Path

import torch

import dlviz
from dlviz.machine import classroom

RANKS = 3
MINE = 3 * 2**18  # elements of a result that is fetched out of its rank's memory


# -- what completes --------------------------------------------------------------------------------
def everything(comm, own):
    """Messages, a collective of the backend, one by hand, memory that is shared, and output."""
    print(f"rank {comm.rank} has {own}", flush=True)
    ball, count, (n, rank) = torch.zeros(70_000), float(own), (comm.size, comm.rank)
    comm.sendrecv(torch.full((70_000,), count), (rank + 1) % n, ball, (rank - 1) % n)
    total = torch.tensor([count])
    dlviz.collectives.ring.all_reduce(comm, total)
    shared = comm.shared(torch.zeros(comm.size))
    shared.tensor[comm.rank] = count
    comm.barrier()
    large = torch.full((MINE,), count)
    return ball[-1].item(), total.item(), shared.tensor.tolist(), large


def where(comm):
    return {name: os.environ.get(name) for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "OWN")}


def steps(comm):
    for _ in comm.progress(range(4), "steps"):
        time.sleep(0.25)


def paced(comm):
    for _ in range(3):
        with comm.compute("forward", seconds=0.02):
            pass
        comm.all_reduce(torch.ones(4))


def loses(comm):
    if comm.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    while not comm.lost:
        time.sleep(0.01)
    return sorted(comm.lost)


# -- what does not ---------------------------------------------------------------------------------
def ring(comm):
    comm.recv(torch.zeros(2), (comm.rank + 1) % comm.size)


def mismatch(comm):
    comm.all_reduce(torch.zeros(3 if comm.rank == 2 else 4))


def raises(comm):
    if comm.rank == 1:
        raise KeyError("nothing here")
    comm.barrier()


def dies(comm):
    if comm.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    comm.barrier()


def exits(comm):
    if comm.rank == 2:
        os._exit(7)
    comm.barrier()


def too_long(comm):
    print("at it", flush=True)
    time.sleep(100)


def last(comm):
    Path(f"last-{comm.rank}").touch()
    time.sleep(100)


FAILING = (ring, mismatch, raises, dies, exits, too_long)


def waiting_process_dies(comm):
    if comm.rank == 1:
        os.kill(int(os.environ["PID"]), signal.SIGKILL)
    time.sleep(100)


def parent_dies(comm):
    if comm.rank == 1:
        os.kill(multiprocessing.parent_process().pid, signal.SIGKILL)
    time.sleep(100)


# -- as a script -----------------------------------------------------------------------------------
def tried(worker, ranks=RANKS, timeout=40.0, **options):
    """The outcome of a run, as JSON can hold it."""
    began = time.perf_counter()
    try:
        run = dlviz.launch(worker, ranks, timeout=timeout, **options)
    except (dlviz.RunError, ValueError) as error:
        names = ("rank", "exitcode", "cycle")
        out = {name: getattr(error, name, None) for name in names}
        out |= {"error": type(error).__name__, "message": str(error)}
        trace = getattr(error, "trace", None)
    else:
        trace, out = (
            run.trace,
            {"output": run.output, "lost": {r: run.lost[r].how for r in run.lost}},
        )
        out["results"] = run.results
    if trace is not None:
        columns = ("src", "dst", "nbytes", "op", "group", "step")
        out["messages"] = sorted([getattr(m, c) for c in columns] for m in trace.messages.rows())
        out["meta"] = {name: trace.meta[name] for name in ("clock", "outcome", "device")}
        ends = trace.only(rank=0, kind="collective").spans.end
        out["pace"] = float(ends[-1] - ends[0]) if len(ends) else 0.0  # from first to last
    return {"seconds": time.perf_counter() - began, **out}


def in_short(value):
    """A tensor by its size, its first and its last element."""
    return [value.numel(), value[0].item(), value[-1].item()]


def note(name, outcome):
    with open(f"outcomes-{os.environ['RANK']}", "a") as file:
        file.write(json.dumps({"name": name, **outcome}, default=in_short) + "\n")


def left():
    """What this process holds open, beside the standard three."""
    return {"open": len(os.listdir("/proc/self/fd"))}


def works(own):
    note("where", tried(where))
    note("before", left())
    note("everything", tried(everything, args=(own,)))
    for worker in FAILING:
        note(worker.__name__, tried(worker, timeout=0.7 if worker is too_long else 40.0))
    note("steps", tried(steps))
    note("paced", tried(paced, machine=classroom(RANKS)))
    note("loses", tried(loses, may_lose=(1,)))
    note("five", tried(where, 5))
    note("after", left())
    torch.distributed.init_process_group("gloo")
    note("beside", tried(where))
    torch.distributed.destroy_process_group()
    dlviz.launch(last, RANKS)


def fails():
    """A waiting process is killed, at the next start the parent; the third ends as scripts end that
    catch nothing."""
    attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    note(f"started {attempt}", {"pid": os.getpid()})
    if attempt < 2:
        note(f"attempt {attempt}", tried((waiting_process_dies, parent_dies)[attempt], 2))
    note(f"once more {attempt}", tried(where, 2))
    dlviz.launch(raises, 2)


if __name__ == "__main__":
    os.environ["OWN"] = f"of rank {os.environ['RANK']}"
    os.environ["PID"] = str(os.getpid())
    if "works" in sys.argv:
        works(10 ** int(os.environ["RANK"]))
    elif "fails" in sys.argv:
        fails()
