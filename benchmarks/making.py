"""One large schedule, made and simulated by dlviz, made and spaced by torch; neither is imported
before it is needed. `python -m benchmarks.making ours` prints the memory (MB) that this takes."""

from __future__ import annotations

import contextlib
import os
import resource
import sys

RANKS, MICROBATCHES, CHUNKS = 64, 512, 4
ACTIONS = 2 * RANKS * MICROBATCHES * CHUNKS


def ours() -> None:
    from dlviz import simulate
    from dlviz.schedules import make

    simulate(make("interleaved", RANKS, MICROBATCHES, CHUNKS))


def torchs() -> None:
    from torch.distributed.pipelining._schedule_visualizer import get_schedule_ops

    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):  # it prints a lot
        get_schedule_ops("Interleaved1F1B", RANKS, MICROBATCHES, CHUNKS, add_spacing=True)


def peak_memory() -> float:
    """The peak memory of this process in MB. (Linux's ru_maxrss includes the parent's.)"""
    with contextlib.suppress(OSError), open("/proc/self/status") as status:
        return next(int(line.split()[1]) / 1e3 for line in status if line.startswith("VmHWM"))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6  # macOS counts bytes


if __name__ == "__main__":
    {"ours": ours, "peer": torchs}[sys.argv[1]]()
    print(peak_memory())
