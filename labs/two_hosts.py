"""Lab 02's all-reduces on two hosts: a Trace of the ring and one of the hierarchical all-reduce.

On your two hosts, in this folder; HOST is the first one:

    torchrun --nnodes=2 --nproc-per-node=2 --node-rank=0 --master-addr=HOST two_hosts.py  # on HOST
    torchrun --nnodes=2 --nproc-per-node=2 --node-rank=1 --master-addr=HOST two_hosts.py

The first host then has `two_hosts/ring.json.gz` and `two_hosts/hierarchical.json.gz`, which lab 02
uses instead of the committed ones. Those are made by

    make hosts        (as root, with iproute2; or `python labs/two_hosts.py`)

on two network namespaces of one machine with a cable of RATE between them. Both measure the links
first: `meta["network"]` has the latency (s) and the bandwidth (bytes/s) inside a host and between
hosts, `meta["recorded"]` says when and where.
"""

from __future__ import annotations

import os
import sys
from datetime import date
from pathlib import Path

import dlviz
from dlviz.cluster import measure_network
from dlviz.collectives import trials

LABS = Path(__file__).resolve().parent
ALGORITHMS = ("ring", "hierarchical")
NBYTES, REPEATS = 16_000_000, 5
SLOWEST = 600.0  # s for one algorithm, on a slow network
RATE = "100mbit"  # in each direction
WHERE = f"two network namespaces of one machine, {RATE} between them"


def record(folder: Path, where: str) -> None:
    """Run both as one of torchrun's ranks; rank 0 saves the Traces in `folder`."""
    ranks = int(os.environ["WORLD_SIZE"])
    network = dlviz.launch(measure_network, ranks).results[0]
    links = [[link.latency, link.bandwidth] for link in network.levels]
    for algorithm in ALGORITHMS:
        run = dlviz.launch(trials, ranks, args=(algorithm, NBYTES, REPEATS), timeout=SLOWEST)
        trace = run.trace
        if trace is not None:  # rank 0
            trace.meta |= {"network": links, "recorded": f"{date.today()}, {where}"}
            folder.mkdir(parents=True, exist_ok=True)
            trace.save(folder / f"{algorithm}.json.gz")
            step = 1000 * min(dlviz.metrics.step_seconds(trace, "wall"))
            print(f"{algorithm}: {step:.0f} ms, saved in {folder / algorithm}.json.gz")


def record_here() -> None:
    """Make two hosts on this machine and run this file on each by torchrun."""
    sys.path.insert(0, str(LABS.parent))  # before an installed package of that name
    from benchmarks.namespaces import several_hosts

    how = ("--nnodes=2", "--nproc-per-node=2", "--master-addr=host-a")
    torchrun = Path(sys.executable).with_name("torchrun")
    with several_hosts(rate=RATE) as hosts:
        for host in hosts:  # the usual TCP in any case: bbr shares slowly
            route = f"10.77.0.0/24 dev eth0 scope link src {host.address} congctl cubic"
            host.link("ip", "route", "replace", *route.split())
        runs = [
            host.start(torchrun, *how, f"--node-rank={number}", __file__, LABS / "recorded", WHERE)
            for number, host in enumerate(hosts)
        ]
        for run in runs:
            said, complaints = run.communicate()
            print(said, end="")
            if run.returncode:
                sys.exit(complaints)


if __name__ == "__main__":
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        record_here()
    else:
        folder, where = sys.argv[1:] or (LABS, "two hosts")
        record(Path(folder) / "two_hosts", where)
