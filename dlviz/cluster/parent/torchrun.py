"""Processes that torchrun has started: on each host the first is the parent, which starts the ranks
of all of them, and the others wait until these are done.

    torchrun --standalone --nproc-per-node=4 script.py

Every process runs the script and so calls `launch`, each for one rank of the run, which gets its
job and its environment from there. On one host the parent is a Supervisor, as without torchrun; on
several (`--nnodes=2 --rdzv-backend=c10d --rdzv-endpoint=host:port`) the
parents join: see cluster/hosts.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from typing import Any

from dlviz.cluster.hosts.coordinator import Coordinator
from dlviz.cluster.hosts.network import Store
from dlviz.cluster.hosts.remote_parent import RemoteParent
from dlviz.cluster.hosts.rendezvous import join
from dlviz.cluster.hosts.supervise import Left, TorchrunSupervisor
from dlviz.cluster.hosts.torchrun_ranks import Waiter, await_result, waiters
from dlviz.cluster.parent.arguments import choose_device, pack_worker, ranks_here
from dlviz.cluster.parent.inherited import Inherited
from dlviz.cluster.parent.interrupts import sigterm_too
from dlviz.cluster.parent.start import is_waiter, shared_memory
from dlviz.machine import Machine

_launched = 0  # runs that this process has joined


def started_this() -> bool:
    """Whether torchrun started this process."""
    return "TORCHELASTIC_RUN_ID" in os.environ and "RANK" in os.environ


def join_run(
    worker: Callable[..., Any],
    ranks: int,
    machine: Machine | None,
    device: str,
    timeout: float,
    args: tuple,
    kwargs: dict[str, Any],
    may_lose: Collection[int],
    inherited: Inherited,
) -> Left:
    """Be the parent of this host's ranks, or wait for the result of one of them."""
    global _launched
    attempt = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
    run = f"{attempt:04x}{_launched:04x}"
    folder = os.path.join(shared_memory(), f"dlviz-{os.getppid()}-{run}")
    _launched += 1
    here = ranks_here(ranks)
    _check(ranks, here, machine, may_lose)
    job = pack_worker(worker, args, kwargs, inherited)
    own = Waiter(int(os.environ["RANK"]), dict(os.environ), job)
    if is_waiter():
        result, lost = await_result(folder, own, timeout)
        return [result], [""], None, lost
    on = choose_device(device, here), timeout
    with sigterm_too(), waiters(folder, own, here, timeout) as all_waiters:
        if here < ranks:
            return _join_hosts(run, all_waiters, *on)
        with TorchrunSupervisor(all_waiters, ranks, machine, *on, frozenset(may_lose)) as parent:
            return parent.lead()


def _check(ranks: int, here: int, machine: Machine | None, may_lose: Collection[int]) -> None:
    """Raise if torchrun has not started what such a run needs."""
    size = int(os.environ["WORLD_SIZE"])
    if ranks != size:
        raise ValueError(
            f"ranks={ranks} is not what torchrun started: it started {size}; make the two the same."
        )
    if here < ranks and machine is not None:
        raise ValueError(
            "a run on several hosts cannot be paced: their clocks differ by more than a message "
            "takes; leave out the machine, or start all ranks on one host."
        )
    if here < ranks and may_lose:
        raise ValueError(
            f"may_lose={may_lose!r} does not work on several hosts: leave it out, or start all "
            "ranks on one host."
        )


def _join_hosts(run: str, here: list[Waiter], device: str, timeout: float) -> Left:
    """Be the parent of this host's ranks of run number `run` beside those of other hosts."""
    number, hosts = int(os.environ["GROUP_RANK"]), int(os.environ["GROUP_WORLD_SIZE"])
    prefix = f"dlviz {os.environ['TORCHELASTIC_RUN_ID']} {run}"
    store = Store(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), prefix)
    joined = join(store, number, hosts, tuple(waiter.rank for waiter in here), device)
    with (RemoteParent if number else Coordinator)(joined, here, device, timeout) as parent:
        return parent.lead()
