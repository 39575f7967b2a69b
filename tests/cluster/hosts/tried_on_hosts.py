"""What the tests have four ranks do, on one host, on two and on three. As a script, under torchrun,
it does all of it in one go: each run's outcome is a line of a file, the Traces of rank 0 are files.
"""

import json
import multiprocessing
import os
import signal
import sys
import time

import pretended
import torch

import dlviz
from dlviz import cli
from dlviz.cluster.hosts import rendezvous

FOLDER = "/tmp"
SEED = 5  # of the random program
SLEEP, SOON = 2.0, 1.5  # s that a sender computes, in which it is made to look for its receiver
TRIES = 8  # other programs may hold a rank up
AFTER = 3  # rounds before the network is cut, and after it is back


# -- what completes --------------------------------------------------------------------------------
def everything(comm):
    """Messages short and long, in a host and between hosts, with tags, from any source; sub-groups,
    a lane, collectives of the backend and one by hand."""
    found, (n, rank) = [], (comm.size, comm.rank)
    for count in (1, 700, 1100, 70_000):  # inline, at its edge, and by the transport
        for step in (1, 2):
            ball = torch.zeros(count)
            comm.sendrecv(
                torch.full((count,), float(rank)), (rank + step) % n, ball, (rank - step) % n
            )
            found.append(ball.sum().item())
    found.append(in_turn(comm))
    total = torch.arange(50_000.0) * rank
    comm.all_reduce(total)
    found.append(total.sum().item())
    dlviz.collectives.ring.all_reduce(comm, total)
    found.append(total.sum().item())
    for group in (comm.split(rank % 2), comm.mesh(dp=2, tp=2).tp):  # across hosts, and within one
        row = torch.zeros(group.size, 3)
        group.all_gather(row, torch.full((3,), float(rank)))
        found.append(row.tolist())
    lane = comm.lane("comm")
    handle = lane.submit(lambda comm, x: comm.all_reduce(x) or x.tolist(), torch.ones(2))
    found.append(handle.wait())
    print(f"rank {rank} is through")
    return found


def in_turn(comm):
    """Rank 0 takes one message of each other rank, from any source."""
    if comm.rank:
        comm.send(torch.tensor([comm.rank]), 0, tag=comm.rank)
        return []
    ball = torch.zeros(1, dtype=torch.int64)
    return [(comm.recv(ball, tag=tag), ball.item()) for tag in (3, 1, 2)]


def with_gpus(comm, seed):
    """A random program of ranks that pretend to have a GPU each, and a sum on the CPU inside each
    host. Then rank 2 waits for a tensor on the GPU of rank 0, which computes on another host."""
    comm, gpus = pretended.with_devices(comm)
    found = *pretended.carry_out(comm, seed, pretended.on_device), gpus.transfers, gpus.carried
    inside, total = comm.split(comm.rank // 2), torch.ones(9000)
    inside.all_reduce(total)
    by_memory = inside._gloo is None and total.sum().item() == 18_000
    waits, slow = [], torch.ones(1)
    while slow.item() and len(waits) < TRIES:
        ball, began = pretended.on_device(torch.zeros(9000)), time.perf_counter()
        if comm.rank == 0:
            comm.isend(pretended.on_device(torch.ones(9000)), 2)
            time.sleep(SLEEP)
        if comm.rank == 2:
            comm.recv(ball, 0)
        waits.append(time.perf_counter() - began)
        slow[0] = waits[-1] >= SOON
        comm.broadcast(slow, root=2)
    return found, by_memory, ball.cpu().sum().item(), waits


def ring_of_gpus(comm):
    """Ranks that wait for each other with tensors on GPUs."""
    comm, _ = pretended.with_devices(comm)
    comm.recv(pretended.on_device(torch.zeros(9000)), (comm.rank + 1) % comm.size)


# -- what does not ---------------------------------------------------------------------------------
def truncation(comm):
    if comm.rank == 0:
        comm.send(torch.zeros(3), 2)
    if comm.rank == 2:
        comm.recv(torch.zeros(4), 0)


def mismatch(comm):
    comm.all_reduce(torch.zeros(3 if comm.rank == 3 else 4))


def ring(comm):
    comm.recv(torch.zeros(2), (comm.rank + 1) % comm.size)


def left_alone(comm):
    """Ranks 1 and 2, on two hosts, wait for each other; the others are through."""
    if comm.rank in (1, 2):
        comm.send(torch.zeros(5000), 3 - comm.rank)


def raises(comm):
    if comm.rank == 3:
        raise KeyError("nothing here")
    comm.barrier()


def dies(comm):
    if comm.rank == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    comm.barrier()


def exits(comm):
    if comm.rank == 3:
        os._exit(7)
    comm.barrier()


def too_long(comm):
    time.sleep(100)


def shares(comm):
    comm.shared(torch.zeros(3))


def shows_progress(comm):
    """A bar of 20 for each rank."""
    for _ in comm.progress(range(20), "balls"):
        time.sleep(0.1)


def shares_inside(comm):
    """The ranks of one host share memory, beside those of others."""
    pair = comm.split(comm.rank // 2 if comm.rank < 2 else comm.rank)
    shared = pair.shared(torch.zeros(2))
    with shared.lock():
        shared.tensor += torch.tensor([1.0, comm.rank])
    pair.barrier()
    return shared.tensor.tolist()


def raises_on_the_last(comm):
    if comm.rank == 3:
        raise KeyError("nothing here")
    comm.recv(torch.zeros(2), 3)


FAILING = (truncation, mismatch, ring, left_alone, raises, dies, exits, too_long, shares)


# -- the network fails -----------------------------------------------------------------------------
def say(words):
    """Tell the test, which then cuts the cable: a file of that name lies on this host."""
    open(f"{FOLDER}/{words}", "w").close()


def goes_on(comm):
    """Balls before and while the network is cut for 2 s, and so many rounds after it is back."""
    ball, rounds, left = torch.zeros(20_000), 0, torch.full((1,), float(AFTER))
    while left.item():
        comm.sendrecv(torch.full((20_000,), rounds + 1.0), comm.rank ^ 2, ball, comm.rank ^ 2)
        rounds += 1
        assert ball.eq(rounds).all()
        if comm.rank == 0 and rounds == AFTER:
            say("cut for 2 s")
        if comm.rank == 0 and os.path.exists(f"{FOLDER}/back"):
            left -= 1
        comm.broadcast(left, root=0)
    return rounds


def cut_off(comm):
    if comm.rank == 0:
        say("cut for ever")
    while True:
        comm.all_reduce(torch.ones(1))
        time.sleep(0.05)


def parent_dies(comm):
    if comm.rank == 2:
        os.kill(multiprocessing.parent_process().pid, signal.SIGKILL)
    time.sleep(100)


# -- as a script -----------------------------------------------------------------------------------
def tried(worker, timeout=40.0, **options):
    """The outcome of a run of four ranks, or as many as torchrun has started, as JSON can hold
    it."""
    began = time.perf_counter()
    try:
        run = dlviz.launch(worker, int(os.environ.get("WORLD_SIZE", 4)), timeout=timeout, **options)
        out = {"results": run.results, "output": run.output}
        trace = run.trace
    except dlviz.RunError as error:
        trace = error.trace
        out = {
            "error": type(error).__name__,
            "message": str(error),
            "rank": error.rank,
            "exitcode": error.exitcode,
            "cycle": error.cycle,
            "waits": [[wait.rank, wait.op, wait.host] for wait in error.waits or []],
        }
    except ValueError as error:
        trace, out = None, {"error": "ValueError", "message": str(error)}
    if trace is not None and "RANK" in os.environ:
        trace.save(f"{FOLDER}/{worker.__name__}.json.gz")
    return {"name": worker.__name__, "seconds": time.perf_counter() - began, **out}


def note(**outcome):
    with open(f"{FOLDER}/outcomes-{os.environ['RANK']}", "a") as file:
        file.write(json.dumps(outcome) + "\n")


def refused():
    """Runs of hosts that do not fit together: what is wrong is on the second."""
    second = os.environ["GROUP_RANK"] == "1"
    for name, value in (("GLOO_SOCKET_IFNAME", "ib7"), ("GLOO_SOCKET_IFNAME", "lo")):
        if second:
            os.environ[name] = value
        note(**tried(everything) | {"name": f"{name}={value}"})
        os.environ.pop(name, None)
    os.environ["DLVIZ_SECRET"] = "another" if second else "one"
    note(**tried(everything) | {"name": "two secrets"})
    os.environ["DLVIZ_SECRET"] = "one"
    note(**tried(everything) | {"name": "one secret"})
    versions = rendezvous.versions
    if second:
        rendezvous.versions = lambda: {"dlviz": "0.0.0"}
    note(**tried(everything) | {"name": "versions"})
    rendezvous.versions = versions


def main(*steps):
    if "works" in steps:
        note(**tried(everything))
        for worker in FAILING:
            note(**tried(worker, timeout=2.0 if worker is too_long else 40.0))
        note(**tried(ring, machine=dlviz.machine.classroom(4)) | {"name": "paced"})
    if "command" in steps:
        out = f"{FOLDER}/command.json.gz"
        note(name="command", code=cli.main(["run", "ddp", "--steps", "3", "--out", out]))
    if "gpus" in steps:
        note(**tried(with_gpus, args=(SEED,)))
        note(**tried(ring_of_gpus))
    if "three" in steps:
        for worker in (everything, shows_progress, shares_inside, ring, raises_on_the_last):
            note(**tried(worker))
    if "refused" in steps:
        refused()
    if "cut" in steps:
        note(**tried(goes_on))
        note(**tried(cut_off))
    if "parent dies" in steps:
        note(**tried(parent_dies))


if __name__ == "__main__":
    main(*sys.argv[1:])
