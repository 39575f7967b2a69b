"""All-reduces against the backend's own, in turn on the same ranks, and what pricing them takes."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from time import perf_counter
from typing import Any

import torch
import torch.distributed as dist

from benchmarks.table import Row, compare, take_turns
from dlviz import launch
from dlviz.collectives import ALGORITHMS, all_reduce
from dlviz.sim import collective_seconds

SIZES = {"1 KB": 2**10, "64 KB": 2**16, "1 MB": 2**20, "16 MB": 2**24, "64 MB": 2**26}  # bytes
CALLS = {"1 KB": 8, "64 KB": 8, "1 MB": 4, "16 MB": 1, "64 MB": 1}  # in one round
# Many short ones, so that other work on this machine slows ours and the peer alike.
ROUNDS = {**dict.fromkeys(SIZES, 25), "64 MB": 7}
TARGETS = {  # by algorithm and ranks, for each size
    ("auto", 2): (1.3, 1.3, 1.3, 1.8, 1.7),
    ("auto", 4): (1.5, 1.6, 1.2, 1.7, 1.4),
    ("backend", 2): (4.0, 1.4, 1.8, 2.0, 1.0),
    ("backend", 4): (5.0, 2.2, 1.5, 1.5, 1.0),
}
PLAYED = """
import resource, time
from dlviz.machine import classroom
from dlviz.sim import collective
start = time.perf_counter()
trace = collective("ring", 1024, 2**20, classroom(1024))
took = time.perf_counter() - start
assert len(trace.messages) > 2_000_000
print(took, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


def beside_gloo(
    comm: Any, algorithm: str, nbytes: int, calls: int, rounds: int
) -> dict[str, list[float]]:
    """Seconds a call of ours and of gloo's own in each round, on the slowest rank. `algorithm` may
    be "backend", for comm.all_reduce."""
    tensor = torch.zeros(nbytes // 4)
    algorithms = {name: partial(all_reduce, comm, algorithm=name) for name in (*ALGORITHMS, "auto")}

    def seconds(call: Any) -> float:
        call(tensor)
        comm.barrier()
        start = perf_counter()
        for _ in range(calls):
            call(tensor)
        slowest = torch.tensor([(perf_counter() - start) / calls])
        comm.all_reduce(slowest, "max")
        return slowest.item()

    return take_turns(
        {
            "ours": lambda: seconds(algorithms.get(algorithm, comm.all_reduce)),
            "peer": lambda: seconds(dist.all_reduce),
        },
        rounds,
    )


def rows() -> list[Row]:
    found = []
    for (algorithm, ranks), targets in TARGETS.items():
        for (name, nbytes), target in zip(SIZES.items(), targets, strict=True):
            args = (algorithm, nbytes, CALLS[name], ROUNDS[name])
            times = launch(beside_gloo, ranks=ranks, args=args, timeout=300).results[0]
            what = f"{algorithm} all_reduce, {ranks} ranks, {name}, beside gloo's"
            found.append(compare(what, times["ours"], times["peer"], target=target))
    ran = subprocess.run([sys.executable, "-c", PLAYED], capture_output=True, text=True, check=True)
    took, held = map(float, ran.stdout.split())
    calls = 10_000
    start = perf_counter()
    for _ in range(calls):
        collective_seconds("halving_doubling", 6, 2**20, 1e-5, 1e-9, 1e-10)
    price = (perf_counter() - start) / calls
    limit = "beside its limit"
    return [
        *found,
        Row("ring of 1,024 ranks played", took, 10.0, 10.0 / took, target=1.0, remark=limit),
        Row("its memory", held / 1e9, 2.0, 2e9 / held, target=1.0, unit="GB", remark=limit),
        Row("closed form, a call", price, 50e-6, 50e-6 / price, target=1.0, remark=limit),
    ]
