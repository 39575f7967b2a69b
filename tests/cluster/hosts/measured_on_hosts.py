"""What the tests of the network have four ranks do, on one host and on two. As a script, under
torchrun, it leaves what rank r returned in a file."""

import os
import pickle

import torch

import dlviz
from dlviz.cluster import measure_network
from dlviz.collectives import all_reduce, auto

SIZES = (8, 1 << 16, 1 << 22)  # bytes
ELEMENTS = 40_000
CALLS = ("broadcast", "reduce", "all_reduce", "all_gather", "reduce_scatter", "all_to_all")


def everything(comm):
    """Measure, choose, reduce: by `auto`, by the hierarchical algorithm and by the backend, in all
    ranks and in a group of either host."""
    found = {"hosts": comm.hosts, "topology": measure_network(comm)}
    grid = comm.mesh(dp=2, tp=2)
    found["of groups"] = grid.dp.hosts, grid.tp.hosts
    found["not in a row"] = comm.split(0, key=comm.rank % 2).hosts
    found["choices"] = [auto.choose(comm, nbytes) for nbytes in SIZES]
    found["link"] = auto.link_of(comm)
    for group, algorithm in ((comm, "auto"), (comm.split(7), "hierarchical")):
        tensor = torch.arange(float(ELEMENTS)) * (comm.rank + 1)
        all_reduce(group, tensor, algorithm)
        found[algorithm] = tensor.tolist()
    found["in a host"] = [backends(grid.tp, call) for call in CALLS]
    found["by gloo"] = grid.tp._gloo is not None
    found["uneven"] = uneven(comm)
    return found


def backends(comm, call):
    """The sum of what one of the backend's collectives leaves of a tensor of 40,000 numbers."""
    tensor = torch.arange(float(ELEMENTS)) + comm.rank
    if call in ("all_gather", "reduce_scatter", "all_to_all"):
        sizes = {"all_gather": 2 * ELEMENTS, "reduce_scatter": ELEMENTS // 2}
        out = torch.zeros(sizes.get(call, ELEMENTS))
        getattr(comm, call)(out, tensor)
        return out.sum().item()
    getattr(comm, call)(tensor)
    return tensor.sum().item() if call != "reduce" or comm.rank == 0 else None


def uneven(comm):
    """A group of two ranks of one host and one of the other: what it says, and what it chooses."""
    three = comm.split(0 if comm.rank < 3 else None)
    if three is None:
        return None
    tensor = torch.ones(1000)
    all_reduce(three, tensor, "auto")
    try:
        measure_network(three)
        says = ""
    except ValueError as error:
        says = str(error)
    return says, auto.choose(three, 1 << 22), tensor.sum().item()


def sent(trace):
    """Of each message: source, destination, bytes, group."""
    return [(row.src, row.dst, row.nbytes, row.group) for row in trace.messages.rows()]


if __name__ == "__main__":
    run = dlviz.launch(everything, 4, timeout=100)
    rank = int(os.environ["RANK"])
    with open(f"/tmp/measured-{rank}", "wb") as file:
        pickle.dump(run.results if rank else (run.results, sent(run.trace)), file)
