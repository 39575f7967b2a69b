"""`launch` on several hosts: who is the parent here, and what it gives back."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from typing import Any

from dlviz.cluster.hosts.judge import Judge
from dlviz.cluster.hosts.network import Store
from dlviz.cluster.hosts.outpost import Outpost
from dlviz.cluster.hosts.rendezvous import meet
from dlviz.cluster.hosts.seats import Seat, seats, sit
from dlviz.cluster.parent.arguments import choose_device, pack
from dlviz.cluster.parent.output import Progress
from dlviz.machine import Machine
from dlviz.trace import Trace

Left = tuple[list[Any], list[str], Trace | None]  # results, outputs, Trace


def join_run(
    folder: str,
    run: str,
    worker: Callable[..., Any],
    machine: Machine | None,
    device: str,
    timeout: float,
    args: tuple,
    kwargs: dict[str, Any],
) -> Left:
    """Be one rank of run number `run`, or the parent of this host's ranks too. Rank 0 gets all, any
    other its own result. `folder` is one that all processes of this host, and no others, know."""
    if machine is not None:
        raise ValueError(
            "a run on several hosts cannot be paced: their clocks are not alike to less than a "
            "message takes; leave out the machine, or start all ranks on one host."
        )
    own = Seat(int(os.environ["RANK"]), dict(os.environ), pack(worker, args, kwargs))
    here = int(os.environ["LOCAL_WORLD_SIZE"])
    if int(os.environ["LOCAL_RANK"]):
        return [pickle.loads(sit(folder, own))], [""], None
    with seats(folder, own, here) as all_seats:
        return _lead(run, all_seats, choose_device(device, here), timeout)


def _lead(run: str, here: list[Seat], device: str, timeout: float) -> Left:
    """Be the parent of this host's ranks."""
    number, hosts = int(os.environ["GROUP_RANK"]), int(os.environ["GROUP_WORLD_SIZE"])
    prefix = f"dlviz {os.environ['TORCHELASTIC_RUN_ID']} {run}"
    store = Store(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), prefix)
    meeting = meet(store, number, hosts, tuple(seat.rank for seat in here))
    on = meeting, here, device, timeout, Progress()
    if number:
        with Outpost(*on) as outpost:
            results = outpost.serve()
        for seat in here:
            seat.answer("result", results[seat.rank])
        return [pickle.loads(results[here[0].rank])], [""], None
    with Judge(*on) as judge:
        results, output, trace = judge.run(b"")
        for seat in here:
            seat.answer("result", judge.ranks[seat.rank].result)
    return results, output, trace
