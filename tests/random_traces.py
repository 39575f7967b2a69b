"""Traces of any shape: spans that nest to any depth on several lanes, waits for ranks and lanes,
messages that are sent at any time."""

from __future__ import annotations

from typing import Any

import numpy as np

from dlviz.trace import Trace

KINDS = ["forward", "backward", "send", "wait", "recv", "step", "phase", "collective"]


def random_trace(seed: int, ranks: int = 3, until: float = 12.0) -> Trace:
    random = np.random.default_rng(seed)
    spans: list[dict[str, Any]] = []
    messages: list[dict[str, Any]] = []
    for rank in range(ranks):
        for lane in ("compute", "comm"):
            spans += _nested(random, {"rank": rank, "lane": lane}, 0.0, until, 0, ranks)
    sends = [one for one in spans if one["kind"] == "send"]
    for one in spans:
        if one["kind"] not in ("wait", "recv") or random.random() < 0.4:
            continue
        src = one.get("peer", one["rank"])
        if src == one["rank"]:
            continue
        one["flow"] = len(messages)
        sent = one["start"] + random.uniform(-0.5, 1.0) * (one["end"] - one["start"])
        ready = [s for s in sends if s["rank"] == src and s["start"] <= one["end"]]
        if ready and random.random() < 0.7:
            send = ready[random.integers(len(ready))]
            sends.remove(send)
            send["flow"] = one["flow"]
            sent = min(random.uniform(send["start"], send["end"]), one["end"])
        message = {"src": src, "dst": one["rank"], "sent": sent, "received": one["end"]}
        messages.append(message)
    return Trace(spans, messages, meta={"ranks": ranks})


def _nested(
    random: np.random.Generator,
    lane: dict[str, Any],
    begin: float,
    until: float,
    depth: int,
    ranks: int,
) -> list[dict[str, Any]]:
    """Spans of one lane between `begin` and `until`, that nest or follow each other."""
    spans, now = [], begin
    while now < until:
        now += random.choice([0.0, random.exponential(0.3)])
        end = min(
            now + random.choice([0.0, random.exponential(1.0), random.exponential(1.0)]), until
        )
        if now > until:
            break
        kind = str(random.choice(KINDS))
        more: dict[str, Any] = {"name": str(random.choice(["", "layer 1", "layer 2"]))}
        if kind in ("wait", "recv", "send"):
            more = {"peer": int(random.integers(0, ranks))}
        if kind == "wait" and random.random() < 0.3:
            more = {"name": f"for lane {random.choice(['comm', 'compute'])}"}
        spans.append({**lane, "kind": kind, "start": now, "end": end, "depth": depth, **more})
        if depth < 3 and random.random() < 0.5:
            spans += _nested(random, lane, now, end, depth + 1, ranks)
        now = max(end, now + 1e-6)
    return spans
