"""Two hosts with two ranks each, 1 Gbit/s between them, under torchrun, against torch.distributed
on the same processes, in turn; and how long it takes to read the clocks of hosts.

The hosts are namespaces of this machine (namespaces.py). As a script, under torchrun, this writes
the measurements to a file.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch

from benchmarks import collectives, ddp, messages
from benchmarks.clocks import seconds_to_align
from benchmarks.namespaces import several_hosts, why_not
from benchmarks.table import Row, compare
from dlviz import launch

FILE = "/tmp/measured.json"
TRIPS = {"1 KB": (2**10, 0.8), "1 MB": (2**20, 1.0)}  # bytes, target
SIZES = {"1 KB": 2**10, "1 MB": 2**20, "16 MB": 2**24}
CALLS = {"1 KB": 16, "1 MB": 4, "16 MB": 1}  # in one round
ROUNDS = {"1 KB": 25, "1 MB": 15, "16 MB": 5}
TARGETS = {  # for each size
    "ring": (1.0, 1.0, 1.0),
    "hierarchical": (1.0, 1.0, 1.3),
    "auto": (1.0, 1.0, 1.0),
}
ALL_REDUCES = ("ring", "hierarchical")  # of our DDP to all-reduce
HOSTS, ALIGNED = 8, 0.5  # hosts whose clocks are read, and s that this may take
LIMIT = 600  # s
NAN = float("nan")

Times = dict[str, list[float]]


def across(rank: int, peer: Any, ball: torch.Tensor) -> None:
    """A message from rank 0 to rank 2, which is on the other host, and back."""
    for source, target in ((0, 2), (2, 0)):
        if rank == source:
            peer.isend(ball, target).wait()
        elif rank == target:
            peer.irecv(ball, source).wait()


def worker(comm: Any) -> dict[str, Times]:
    found: dict[str, Times] = {}
    for name, (nbytes, _) in TRIPS.items():
        pattern = partial(across, ball=torch.zeros(nbytes // 4))
        times = messages.worker(comm, pattern, messages.CALLS)
        found[f"trip {name}"] = {"ours": times["ours"], "peer": times["torch"]}
    for algorithm in TARGETS:
        for name, nbytes in SIZES.items():
            args = algorithm, nbytes, CALLS[name], ROUNDS[name]
            found[f"{algorithm} {name}"] = collectives.beside_gloo(comm, *args)
    for size, times in ddp.worker(comm, ALL_REDUCES).items():
        for algorithm in ALL_REDUCES:
            found[f"ddp {size} {algorithm}"] = {"ours": times[algorithm], "peer": times["torch"]}
    return found


def measured() -> dict[str, Times]:
    """What the worker returns on two hosts."""
    torchrun = Path(sys.executable).with_name("torchrun")
    how = ("--nnodes=2", "--nproc-per-node=2", "--rdzv-backend=c10d", "--rdzv-id=bench")
    environ = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[1])}
    command = (torchrun, *how, "--rdzv-endpoint=host-a:29500", "-m", "benchmarks.hosts")
    with several_hosts() as hosts:
        runs = [host.start(*command, **environ) for host in hosts]
        said = [run.communicate(timeout=LIMIT) for run in runs]
        if any(run.returncode for run in runs):
            raise OSError("\n".join(text for both in said for text in both))
        return json.loads(hosts[0].file(FILE).read_text())


def rows() -> list[Row]:
    took = median(seconds_to_align(HOSTS))
    found = [Row(f"clocks of {HOSTS} hosts read", took, NAN, NAN, most=ALIGNED)]
    reason = why_not()
    if reason:
        return [*found, Row("two hosts", NAN, NAN, NAN, remark=f"not measured: {reason}")]
    times = measured()
    on = "2 x 2 ranks"

    def row(what: str, key: str, target: float) -> Row:
        return compare(what, times[key]["ours"], times[key]["peer"], target)

    for name, (_, target) in TRIPS.items():
        found.append(row(f"round trip of {name} between hosts", f"trip {name}", target))
    for algorithm, targets in TARGETS.items():
        for name, target in zip(SIZES, targets, strict=True):
            what = f"{algorithm} all_reduce, {on}, {name}"
            found.append(row(what, f"{algorithm} {name}", target))
    for size in ddp.SIZES:
        for algorithm in ALL_REDUCES:
            what = f"DDP, {on}, {size:,} par., {algorithm}"
            found.append(row(what, f"ddp {size} {algorithm}", ddp.TARGET))
    return found


if __name__ == "__main__":
    run = launch(worker, 4, timeout=LIMIT)
    if run.trace is not None:  # rank 0
        Path(FILE).write_text(json.dumps(run.results[0]))
