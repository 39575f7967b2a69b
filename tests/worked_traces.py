"""Traces of ranks that go through batches: a phase for each, a forward inside."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from dlviz.trace import Trace

Batch = tuple[int, float, float]  # its number, when a rank began and ended it


def worked(
    batches: Mapping[int, Iterable[Batch]],
    replicas: Mapping[int, Sequence[tuple[int, float, list[float]]]] | None = None,
) -> Trace:
    """What each rank did by its number, after 1 s; and the model with which it began a batch when,
    which messages keep again a little later. By the wall clock all takes twice as long. Rank 0
    serves in a phase of its own if it has no batches."""
    spans = []
    for rank, own in batches.items():
        for number, begin, end in own:
            for depth, kind, last in ((0, "phase", end), (1, "forward", (begin + end) / 2)):
                times = {"start": 1 + begin, "end": 1 + last}
                times |= {"wall_start": 2 * times["start"], "wall_end": 2 * times["end"]}
                spans.append({"rank": rank, "kind": kind, "step": number, "depth": depth, **times})
    if 0 not in batches:
        times = {"start": 0.5, "end": 99.0, "wall_start": 1.0, "wall_end": 198.0}
        spans.append({"rank": 0, "kind": "phase", "step": 0, **times})
    buffers = []
    for rank, own in (replicas or {}).items():
        shots = [(-0.9, [-1, *own[0][2]])]
        for place, (number, when, model) in enumerate(own, 1):
            shots += [(when, [number, *model]), (when + 0.1 * place, [number, *model])]
        for index, (when, held) in enumerate(shots):
            wheres = {"rank": rank, "name": "replica", "index": index, "where": "", "step": 0}
            times = {"time": 1 + when, "wall": 2 * (1 + when)}
            buffers.append({**wheres, **times, "array": np.array(held, float)})
    late = {"worst": 0.03, "median": 0.001}
    meta = {"ranks": 1 + max(batches), "clock": "paced", "machine": "a classroom", "lateness": late}
    return Trace(spans, buffers=buffers, meta=meta)


def dealt(workers: int = 4, batches: int = 400, seconds: float = 0.06, slow: int = 3) -> Trace:
    """Workers 1, 2, ... take whole batches in turn, the last one `slow` times as long for each."""
    plan = {}
    for worker in range(1, workers + 1):
        takes = seconds * (slow if worker == workers else 1)
        numbers = range(worker - 1, batches, workers)
        plan[worker] = [(n, takes * i, takes * (i + 1)) for i, n in enumerate(numbers)]
    return worked(plan)


def lockstep(ranks: int = 4, batches: int = 20, seconds: float = 0.1) -> Trace:
    """All ranks share each batch."""
    steps = [(n, seconds * n, seconds * (n + 1)) for n in range(batches)]
    return worked(dict.fromkeys(range(ranks), steps))


def stages_that_communicate(step: int = 0) -> Trace:
    """A step of 1F1B by two stages (pp) of two ranks each (tp), two microbatches. Seconds:

        forward   | layer 2 | all-reduce 1 | layer 1 |       of a message between stages: 0.5
        backward  | layer 3 | all-reduce 1 | layer 2 |       of a bucket of dp at the end: 2

    ranks 0, 1   0F0 0-4   0F1 4-8   wait 8-15   0B0 15-21   wait 21-25   0B1 25-31   dp 31-33
    ranks 2, 3   wait 0-4.5   1F0 4.5-8.5   1B0 8.5-14.5   1F1 14.5-18.5   1B1 18.5-24.5   dp

    A second copy of it all, ranks 4 to 7, is the other replica; on ranks 2, 3, 6 and 7 the bucket
    is on its way from 23.5 on, on lane comm. Bytes: 40 of a tensor between stages; an all-reduce
    over tp sends 60 a rank, a bucket 200.
    """
    spans, messages = [], []

    def add(rank, kind, start, end, lane="compute", **more):
        times = {"start": start, "end": end, "wall_start": start, "wall_end": end}
        spans.append({"rank": rank, "lane": lane, "kind": kind, "step": step, **times, **more})

    def send(src, dst, nbytes, start, end, axis, **more):
        """A message of a group of `axis`, and its send; its row."""
        apart = {"dp": 4, "pp": 2, "tp": 1}[axis]
        first = min(src, dst)
        group = f"{axis} ({first}, {first + apart})"
        times = {"sent": start, "arrived": end, "received": end, "wall_sent": start}
        messages.append(
            {"src": src, "dst": dst, "nbytes": nbytes, "count": nbytes // 4, "op": "copy"}
            | {**times, "wall_received": end, "group": group}
        )
        add(src, "send", start, start, flow=len(messages) - 1, peer=dst, **more)
        return len(messages) - 1

    def action(rank, name, start, flow):
        """A phase with two layers and an all-reduce in between."""
        stage, kind, microbatch = int(name[0]), name[1], int(name[2])
        works, long, short = ("forward", 2, 1) if kind == "F" else ("backward", 3, 2)
        about = {"stage": stage, "microbatch": microbatch, "flow": flow}
        first, last = start + long, start + long + 1
        add(rank, "phase", start, last + short, name=name, depth=0, **about)
        add(rank, works, start, first, name="up", depth=1, **about)
        partner, fields = rank ^ 1, {"call": len(spans), "direction": works}
        group = f"tp ({min(rank, partner)}, {max(rank, partner)})"
        inside = {"stage": stage, "microbatch": microbatch, "group": group, "fields": fields}
        add(rank, "collective", first, last, name="all-reduce", depth=1, nbytes=60, **inside)
        send(rank, partner, 60, first, last, "tp", depth=2, **inside)
        add(rank, works, last, last + short, name="down", depth=1, **about)

    for replica in (0, 4):
        for rank in (replica, replica + 1):
            after, bucket = rank + 2, f"dp ({rank % 4}, {rank % 4 + 4})"
            action(rank, "0F0", 0, -1)
            onward = [send(rank, after, 40, 4, 4.5, "pp")]
            action(rank, "0F1", 4, -1)
            onward.append(send(rank, after, 40, 8, 8.5, "pp"))
            add(after, "recv", 0, 4.5, flow=onward[0], peer=rank)
            action(after, "1F0", 4.5, onward[0])
            action(after, "1B0", 8.5, -1)
            back = [send(after, rank, 40, 14.5, 15, "pp")]
            action(after, "1F1", 14.5, onward[1])
            action(after, "1B1", 18.5, -1)
            back.append(send(after, rank, 40, 24.5, 25, "pp"))
            add(rank, "recv", 8, 15, flow=back[0], peer=after)
            action(rank, "0B0", 15, back[0])
            add(rank, "recv", 21, 25, flow=back[1], peer=after)
            action(rank, "0B1", 25, back[1])
            add(rank, "collective", 31, 33, name="bucket 0", group=bucket, bucket=0)
            send(rank, (rank + 4) % 8, 200, 31, 33, "dp", depth=1, bucket=0, group=bucket)
            bucket = f"dp ({after % 4}, {after % 4 + 4})"
            about = {"lane": "comm", "bucket": 0, "group": bucket}
            add(after, "collective", 23.5, 25.5, name="bucket 0", **about)
            send(after, (after + 4) % 8, 200, 23.5, 25.5, "dp", depth=1, **about)
    return Trace(spans, messages, meta={"ranks": 8, "clock": "paced", "machine": "two nodes"})
