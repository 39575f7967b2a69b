"""Training that does not wait for all, against torch's own: an asynchronous server against
torch.distributed.rpc, shared memory against the Hogwild example, gossip against isend and irecv.

rpc and gossip run on the same processes as ours, in turn. The example has processes of its own, by
torch.multiprocessing, that sleep while ours run.
"""

from __future__ import annotations

import tempfile
import threading
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import rpc

from benchmarks.table import Row, compare, take_turns
from dlviz import launch, models
from dlviz.parallel.averaging.gossip import mix, neighbours
from dlviz.parallel.server.hogwild import read_modify_write, share
from dlviz.parallel.server.push_pull import Parcel
from dlviz.parallel.step.replicas import flat_by_dtype, spread
from dlviz.parallel.step.sharded_step import rows as rows_of
from dlviz.parallel.step.training import Training
from dlviz.parallel.update_rules import make

RANKS = 4  # a server and three workers, or four that are alike
ROUNDS = 15
PUSHES = {"1 KB": (2**10, 100, 1.5), "1 MB": (2**20, 20, 1.0)}  # bytes, how many in a row, target
UPDATES, MIXES = 200, 50
LR, MOMENTUM = 0.01, 0.5  # the example's
PATIENCE = 300.0  # s


def slowest_of(comm: Any, calls: int, call: Callable[[], None]) -> float:
    """Seconds a call of `calls` in a row, on the slowest rank."""
    comm.barrier()
    start = perf_counter()
    call()
    slowest = torch.tensor([(perf_counter() - start) / calls])
    comm.all_reduce(slowest, "max")
    return slowest.item()


# -- push and pull -------------------------------------------------------------------------------
served: dict[str, torch.Tensor] = {}  # the weights of the server by rpc
one_at_a_time = threading.Lock()


def apply(gradient: torch.Tensor) -> torch.Tensor:
    """What a worker has the server do by rpc."""
    with one_at_a_time:
        served["w"] -= LR * gradient
        return served["w"]


def push_and_pull(comm: Any, nbytes: int, calls: int, rendezvous: str) -> dict[str, list[float]]:
    net = nn.Linear(nbytes // 4, 1, bias=False)
    net.weight.grad = torch.ones_like(net.weight)
    weights, rule, parcel = [*net.parameters()], make("sgd", LR), Parcel(comm, net)

    def ours() -> None:
        if comm.rank:
            for _ in range(calls):
                parcel.push(1.0)
                parcel.pull()
            return
        for clock in range(calls * (RANKS - 1)):
            worker, _ = parcel.receive(range(1, RANKS))
            rule.step(weights, parcel.means(weights))
            parcel.reply(worker, clock)

    def theirs() -> None:
        for _ in range(calls if comm.rank else 0):
            new = rpc.rpc_sync("0", apply, args=(net.weight.grad,))
            net.weight.detach().copy_(new)

    warnings.filterwarnings("ignore", "You are using a Backend", UserWarning)  # torch's own
    served["w"] = net.weight.detach().clone()
    where = rpc.TensorPipeRpcBackendOptions(init_method=f"file://{rendezvous}")
    rpc.init_rpc(str(comm.rank), rank=comm.rank, world_size=RANKS, rpc_backend_options=where)
    variants = {"ours": ours, "rpc": theirs}
    turns = {name: partial(slowest_of, comm, calls, call) for name, call in variants.items()}
    found = take_turns(turns, 1 + ROUNDS)
    rpc.shutdown()
    return {name: times[1:] for name, times in found.items()}  # the first makes connections


# -- an update in shared memory ------------------------------------------------------------------
def example() -> nn.Module:
    """The network of torch's mnist_hogwild, with gradients."""
    torch.manual_seed(0)
    layers = nn.Conv2d(1, 10, 5), nn.Conv2d(10, 20, 5), nn.Linear(320, 50), nn.Linear(50, 10)
    return nn.Sequential(*layers)


def with_gradients(net: nn.Module) -> list[nn.Parameter]:
    for p in net.parameters():
        p.grad = torch.full_like(p, 1e-3)
    return list(net.parameters())


def hogwild(comm: Any) -> float:
    rule, net = make("momentum", LR, momentum=MOMENTUM), example()
    with_gradients(net)
    memory = share(comm, net, [*net.parameters()], rule, count=False)  # as the example
    training = Training(comm, net, rule, None, {}, nn.functional.cross_entropy, rows_of)

    def updates() -> None:
        for _ in range(UPDATES):
            read_modify_write(training, memory)

    updates()
    return slowest_of(comm, UPDATES, updates)


def of_torch(net: nn.Module, start: Any, took: Any) -> None:
    """A process of the example: it updates the shared network whenever all have reached `start`."""
    torch.set_num_threads(1)
    optimizer = torch.optim.SGD(with_gradients(net), lr=LR, momentum=MOMENTUM)
    for _ in range(1 + ROUNDS):
        start.wait(PATIENCE)
        begun = perf_counter()
        for _ in range(UPDATES):
            optimizer.step()
        took.put((perf_counter() - begun) / UPDATES)


def in_shared_memory() -> dict[str, list[float]]:
    context = torch.multiprocessing.get_context("spawn")
    start, took, net = context.Barrier(RANKS + 1), context.Queue(), example().share_memory()
    args = net, start, took
    processes = [context.Process(target=of_torch, args=args, daemon=True) for _ in range(RANKS)]
    for process in processes:
        process.start()

    def theirs() -> float:
        start.wait(PATIENCE)
        return max(took.get(timeout=PATIENCE) for _ in processes)

    theirs()
    found = take_turns(
        {"ours": lambda: max(launch(hogwild, RANKS).results), "torch": theirs}, ROUNDS
    )
    for process in processes:
        process.join()
    return found


# -- a round of gossip ---------------------------------------------------------------------------
def mix_by_torch(comm: Any, tensors: list[torch.Tensor]) -> None:
    others = neighbours(comm.rank, comm.size, "ring", 0)
    for alike, flat in flat_by_dtype(tensors):
        arrived = [torch.empty_like(flat) for _ in others]
        work = [dist.irecv(theirs, other) for theirs, other in zip(arrived, others, strict=True)]
        work += [dist.isend(flat, other) for other in others]
        for each in work:
            assert each is not None, "all four are in the group"
            each.wait()
        for theirs in arrived:
            flat += theirs
        spread(flat / (1 + len(others)), alike)


def gossip(comm: Any) -> dict[str, list[float]]:
    torch.manual_seed(comm.rank)
    variants = {
        "ours": partial(mix, comm, topology="ring", number=0),
        "torch": partial(mix_by_torch, comm),
    }
    first = [torch.randn_like(p) for p in models.MLP().parameters()]
    mixed = {name: [tensor.clone() for tensor in first] for name in variants}

    def rounds(name: str, times: int = MIXES) -> None:
        for _ in range(times):
            variants[name](tensors=mixed[name])

    for name in variants:
        rounds(name, times=1)
    torch.testing.assert_close(*mixed.values(), rtol=0, atol=0)

    turns = {name: partial(slowest_of, comm, MIXES, partial(rounds, name)) for name in variants}
    return take_turns(turns, ROUNDS)


def rows() -> list[Row]:
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for name, (nbytes, calls, target) in PUSHES.items():
            args = nbytes, calls, str(Path(folder, str(nbytes)))
            times = launch(push_and_pull, ranks=RANKS, args=args, timeout=120).results[0]
            what = f"push and pull of {name}, {RANKS - 1} workers, beside rpc"
            found.append(compare(what, times["ours"], times["rpc"], target))
    times = in_shared_memory()
    what = f"update in shared memory, {RANKS} ranks, beside torch's"
    found.append(compare(what, times["ours"], times["torch"], 1.0))
    times = launch(gossip, ranks=RANKS, timeout=120).results[0]
    what = f"round of gossip on a ring of {RANKS}, beside torch's"
    return [*found, compare(what, times["ours"], times["torch"], 1.0)]
