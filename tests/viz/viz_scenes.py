"""Traces for the tests of the views: what a data-parallel step and a ring all-reduce leave
behind."""

from __future__ import annotations

import numpy as np

from dlviz.analysis.clocks import span_times
from dlviz.analysis.contributions import encode
from dlviz.analysis.waits import waited_until
from dlviz.trace import Trace
from dlviz.viz.words.text import DETAILS


def annotations_of(figure) -> list:
    """The annotations of a plotly figure, without its (i)."""
    return [each for each in figure.layout.annotations if each.name != DETAILS]


def pieces(trace: Trace, clock: str) -> dict[str, np.ndarray]:
    """What is drawn of the spans by kind, (bars, 3): row, begin and end. A span that begins by
    waiting is a bar of kind wait and what is left of it."""
    start, end = span_times(trace, clock)
    waits = dict(zip(*(column.tolist() for column in waited_until(trace, clock)), strict=True))
    found: dict[str, list[tuple[int, float, float]]] = {}
    for row, kind in enumerate(trace.spans.kind.tolist()):
        until = waits.get(row, start[row])
        if row in waits:
            found.setdefault("wait", []).append((row, start[row], until))
        if row not in waits or until < end[row]:
            found.setdefault(kind, []).append((row, until, end[row]))
    return {kind: np.array(sorted(bars)) for kind, bars in found.items()}


def data_parallel(ranks: int = 4, steps: int = 1, slow: int = 2) -> Trace:
    """Data parallel with two buckets on a `comm` lane; rank `slow` computes half as fast again."""
    spans, messages = [], []
    free = {(rank, lane): 0.0 for rank in range(ranks) for lane in ("compute", "comm")}

    def span(rank, lane, kind, start, end, depth, **fields):
        spans.append(
            {"rank": rank, "lane": lane, "kind": kind, "start": start, "end": end, "depth": depth}
            | {"wall_start": start + 1e-4, "wall_end": end + 1e-4, "where": "train.py:12"}
            | fields
        )

    for step in range(steps):
        ready = {}  # when a bucket's gradients exist
        begun = dict(free)
        for rank in range(ranks):
            pace = 1.5 if rank == slow else 1.0
            at = free[rank, "compute"]
            span(rank, "compute", "data", at, at + 0.4e-3, 1, step=step)
            at += 0.4e-3
            for kind, cost, layers in (("forward", 1e-3, (0, 1)), ("backward", 2e-3, (1, 0))):
                start = at
                for layer in layers:
                    span(
                        rank,
                        "compute",
                        kind,
                        at,
                        at + cost * pace,
                        2,
                        step=step,
                        name=f"layer {layer}",
                    )
                    at += cost * pace
                    if kind == "backward":
                        ready[rank, 1 - layer] = at
                span(rank, "compute", kind, start, at, 1, step=step)
            free[rank, "compute"] = at
        for bucket in (0, 1):
            at = {rank: max(ready[rank, bucket], free[rank, "comm"]) for rank in range(ranks)}
            start = dict(at)
            for _ in range(2 * (ranks - 1)):
                sent = dict(at)
                for rank in range(ranks):
                    left = (rank - 1) % ranks
                    arrives = sent[left] + 0.25e-3
                    flow = len(messages)
                    done = max(sent[rank], arrives)
                    messages.append(
                        {"src": left, "dst": rank, "nbytes": 4096, "sent": sent[left], "op": "sum"}
                        | {"arrived": arrives, "received": done, "step": step, "group": "world"}
                        | {"wall_sent": sent[left] + 1e-4, "wall_received": done + 1e-4}
                    )
                    common = {"step": step, "bucket": bucket, "flow": flow, "nbytes": 4096}
                    span(left, "comm", "send", sent[left], sent[left], 1, peer=rank, **common)
                    span(rank, "comm", "recv", sent[rank], done, 1, peer=left, **common)
                    at[rank] = done
            for rank in range(ranks):
                span(
                    rank,
                    "comm",
                    "collective",
                    start[rank],
                    at[rank],
                    0,
                    step=step,
                    bucket=bucket,
                    name=f"all-reduce bucket {bucket}",
                    group="world",
                )
                free[rank, "comm"] = at[rank]
        for rank in range(ranks):
            at, arrived = free[rank, "compute"], free[rank, "comm"]
            span(rank, "compute", "wait", at, max(at, arrived), 1, step=step, name="gradients")
            at = max(at, arrived)
            span(rank, "compute", "update", at, at + 0.6e-3, 1, step=step)
            free[rank, "compute"] = at + 0.6e-3
            span(
                rank,
                "compute",
                "step",
                begun[rank, "compute"],
                at + 0.6e-3,
                0,
                step=step,
                name=f"step {step}",
            )
    meta = {
        "clock": "paced",
        "ranks": ranks,
        "machine": "classroom machine",
        "outcome": "completed",
        "lateness": {"worst": 3.1e-4, "median": 2.2e-5},
        "tolerance": 1e-3,
    }
    return Trace(spans=spans, messages=messages, meta=meta)


def ring(ranks: int = 4, length: int = 16, sabotage=None, steps: bool = True) -> Trace:
    """A ring all-reduce of encoded buffers, as snapshots and messages of real ranks.

    `sabotage(hop, rank, buffer)` may change what a rank holds after its receive of that hop.
    Without `steps` the messages have no step, as if the program had not stated it.
    """
    buffers = [np.array(encode(rank, ranks, length)) for rank in range(ranks)]
    bound = [chunk * length // ranks for chunk in range(ranks + 1)]
    messages, snapshots, count = [], [], [0] * ranks

    def snapshot(rank, time):
        snapshots.append(
            {
                "rank": rank,
                "name": "buffer",
                "time": time,
                "wall": time,
                "step": -1,
                "index": count[rank],
                "where": "ring.py:9",
                "array": buffers[rank].copy(),
            }
        )
        count[rank] += 1

    for hop in range(2 * (ranks - 1)):
        adds = hop < ranks - 1
        shift = hop if adds else hop - ranks  # all_gather goes on with chunk r + 1
        held = [buffer.copy() for buffer in buffers]
        for rank in range(ranks):
            snapshot(rank, hop * 1e-3)
        for rank in range(ranks):
            chunk, right = (rank - shift) % ranks, (rank + 1) % ranks
            low, high = bound[chunk], bound[chunk + 1]
            if low < high:
                part = held[rank][low:high]
                buffers[right][low:high] = buffers[right][low:high] + part if adds else part
                messages.append(
                    {
                        "src": rank,
                        "dst": right,
                        "nbytes": 8 * (high - low),
                        "offset": low,
                        "count": high - low,
                    }
                    | {"op": "sum" if adds else "copy", "step": hop if steps else -1}
                    | {
                        "sent": (hop + 0.1) * 1e-3,
                        "arrived": (hop + 0.8) * 1e-3,
                        "received": (hop + 0.8) * 1e-3,
                    }
                    | {"wall_sent": (hop + 0.1) * 1e-3, "wall_received": (hop + 0.8) * 1e-3}
                )
        for rank in range(ranks):
            if sabotage:
                sabotage(hop, rank, buffers[rank])
            snapshot(rank, (hop + 0.8) * 1e-3)
    meta = {"clock": "wall", "ranks": ranks, "machine": "2 cores"}
    return Trace(messages=messages, buffers=snapshots, meta=meta)


def deadlock(ranks: int) -> Trace:
    """What a run leaves in which every rank receives from the one before it, for ever."""
    spans = [
        {"rank": rank, "lane": "compute", "kind": "recv", "start": rank * 0.1, "end": 3.0}
        | {"peer": (rank - 1) % ranks, "fields": {"unfinished": True}}
        for rank in range(ranks)
    ]
    waits = [
        {"rank": own["rank"], "lane": "compute", "op": "recv", "peer": own["peer"]}
        | {"since": own["start"]}
        for own in spans
    ]
    cycle = [0, *range(ranks - 1, 0, -1)]
    sentence = " waits for ".join(f"rank {rank}" for rank in [*cycle, 0])
    failure = {"message": f"Deadlock: {sentence}.", "cycle": cycle, "waits": waits}
    meta = {"clock": "simulated", "ranks": ranks, "outcome": "failed", "failure": failure}
    return Trace(spans, meta=meta)


KILLED = {"when": 1.5, "how": "was killed by signal 9"}
RAISED = {"when": 9.0, "how": "raised ValueError: no such thing"}


def lossy() -> Trace:
    """Ranks 0 to 2, of which 1 raises after the last span and 2 is killed, with its record."""
    spans = [
        {"rank": rank, "lane": lane, "kind": "forward", "start": step, "end": step + 1.0}
        | {"step": step}
        for rank, lane in ((0, "compute"), (1, "compute"), (1, "comm"))
        for step in range(3)
    ]
    meta = {"clock": "wall", "ranks": 3, "lost": {"1": RAISED, "2": KILLED}}
    trace = Trace(spans, meta=meta)
    trace.validate()
    return trace


TWO_HOSTS = {"host-a": [0, 1], "host-b": [2, 3]}


def on_hosts(trace: Trace, hosts=None, error=None, ahead=None) -> Trace:
    """What a run leaves on several hosts that did what `trace` says. `ahead` is by how much the
    times of a host are wrong (s), `error` by how much they may be."""
    hosts = hosts or TWO_HOSTS
    off = np.zeros(trace.meta["ranks"])
    for name, ranks in hosts.items():
        off[ranks] = (ahead or {}).get(name, 0.0)
    spans, messages = (
        {name: table[name].copy() for name in table.names}
        for table in (trace.spans, trace.messages)
    )
    for name, of in (("start", "wall_start"), ("end", "wall_end")):
        spans[of] = spans[name] = spans[name] + off[spans["rank"]]
    messages["wall_sent"] = messages["sent"] = messages["sent"] + off[messages["src"]]
    got = messages["received"] + off[messages["dst"]]
    for name in ("arrived", "received", "wall_received"):
        messages[name] = got
    meta = {key: trace.meta[key] for key in ("ranks", "outcome", "failure") if key in trace.meta}
    error = error or {name: 0.0 if 0 in ranks else 91e-6 for name, ranks in hosts.items()}
    meta = {
        "clock": "wall",
        "machine": "this machine",
        "hosts": hosts,
        "clock_error": error,
        **meta,
    }
    return Trace(spans, messages, trace.memory, trace.buffers, meta)
