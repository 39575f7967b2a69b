"""A step of data parallelism played on a Machine, layer by layer and message by message.

    compute  |forward 0|forward 1|forward 2|backward 2|backward 1|backward 0|wait |update|
    comm                                              |bucket 0|  |bucket 1 |bucket 2|

A layer's gradients go into a bucket in the order of the backward; a bucket that is full, or the
last one, is all-reduced on lane `comm` after those before it. The all-reduce of a bucket is its
pattern's messages, played by the rules of dlviz/sim/collective.py: a rank's messages leave once it
has begun with the bucket, so a slow rank holds up the others where they need it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dlviz.counts import check_counts, of_numbers
from dlviz.machine import Machine
from dlviz.machine.machine import slowdown
from dlviz.machine.topology import require
from dlviz.sim.collective import Messages, transfers
from dlviz.sim.scaling import SCALINGS
from dlviz.trace import Trace

BUCKET_BYTES = 25 * 2**20  # as DDP's


class Layer(NamedTuple):
    """A layer on one rank with the whole batch: seconds of its forward and its backward, bytes of
    its gradients."""

    name: str
    forward: float
    backward: float
    nbytes: int


@of_numbers
def mlp_layers(widths: Sequence[int], batch: int, flops: float) -> list[Layer]:
    """The linear layers of an MLP of these `widths` on `batch` rows, on a device of `flops` FLOP/s:
    named by their places in `models.MLP`, with float32 weights and biases.

    A product of batch x a by a x b takes 2 batch a b FLOP: one in a forward, two in a backward, for
    the gradients of the weights and of the inputs; the first layer needs the former alone.
    ValueError for widths, a batch or FLOP/s that cannot be.
    """
    check_counts(batch=batch)
    for width in widths:
        check_counts(width=width)
    require("mlp_layers", "flops", flops, zero=False, infinite=False)
    layers = []
    for place, (a, b) in enumerate(zip(widths, widths[1:], strict=False)):
        product = 2 * batch * a * b
        backward = product * (2 if place else 1) / flops
        layers.append(Layer(str(2 * place + 1), product / flops, backward, 4 * (a * b + b)))
    return layers


@of_numbers
def data_parallel(
    layers: Sequence[Layer],
    machine: Machine,
    *,
    algorithm: str = "ring",
    bucket_bytes: float = BUCKET_BYTES,
    overlap: bool = True,
    update: float = 0.0,
    scaling: str = "strong",
) -> Trace:
    """The simulated Trace of a step of `layers`, in the order of their forwards, on all ranks of
    `machine`.

    A rank computes its share of each layer's seconds ("strong") or all of them ("weak", and
    "model_weak", where the bytes grow with the ranks), times the machine's factor for it. Without
    `overlap` the buckets wait for the end of the backward. `update`: seconds of an update.

    With equal ranks, equal buckets and equal times to fill them, the makespan without the update is
    `data_parallel_seconds`, with the backward after the first bucket as its overlap. ValueError for
    invalid values.
    """
    _check(layers, bucket_bytes, update, scaling)
    ranks, grown = machine.ranks, machine.ranks if scaling == "model_weak" else 1
    share = 1 / ranks if scaling == "strong" else 1.0
    work = [layer.forward * share for layer in layers]
    work += [layer.backward * share for layer in reversed(layers)]
    slow = [
        [slowdown(machine.factors, rank, number) for number in range(len(work) + 1)]
        for rank in range(ranks)
    ]
    takes = np.array([*work, update]) * np.array(slow)  # (ranks, operations), the update last
    ends = np.cumsum(takes[:, :-1], axis=1)
    buckets = fill([layer.nbytes for layer in reversed(layers)], bucket_bytes)
    full = [len(layers) + last if overlap else -1 for last, _ in buckets]
    ready = ends[:, full]  # (ranks, buckets)
    sizes = [grown * nbytes for _, nbytes in buckets]
    tables = [transfers(algorithm, ranks, size, machine) for size in sizes]
    bucket = np.repeat(np.arange(len(tables)), [len(table) for table in tables])
    messages = _play(tables, bucket, ready, machine)
    begun, done = _all_reduces(messages, bucket, ready)
    spans = [
        _computing(layers, takes, ends),
        _communicating(takes, ends, begun, done, sizes),
        _carrying(messages, bucket, begun),
    ]
    names = ("src", "dst", "nbytes", "offset", "op", "sent", "arrived", "received")
    columns = {name: getattr(messages, name) for name in names}
    rounds = np.concatenate([table["step"] for table in tables])
    meta = {
        "clock": "simulated",
        "ranks": ranks,
        "machine": str(machine),
        "topology": machine.topology.outline,
        "collective": f"{algorithm} of {sum(sizes)} bytes in {len(sizes)} buckets",
    }
    return Trace(
        {name: np.concatenate([part[name] for part in spans]) for name in spans[0]},
        {**columns, "count": messages.nbytes, "step": rounds},
        meta=meta,
    )


def _check(layers: Sequence[Layer], bucket_bytes: float, update: float, scaling: str) -> None:
    if scaling not in SCALINGS:
        raise ValueError(f"scaling={scaling!r} is not known: use one of {', '.join(SCALINGS)}.")
    if not layers:
        raise ValueError("layers=[] make no step: give one or more.")
    require("data_parallel", "bucket_bytes", bucket_bytes, zero=False, infinite=True)
    require("data_parallel", "update", update, zero=True, infinite=False)
    for layer in layers:
        for name in ("forward", "backward", "nbytes"):
            value = getattr(layer, name)
            require(f"Layer {layer.name!r}", name, value, zero=True, infinite=False)


def fill(sizes: Sequence[float], bucket_bytes: float) -> list[tuple[int, float]]:
    """Buckets of gradients of these `sizes` (bytes), in the order of the backward: for each the
    place of its last gradient, and its bytes."""
    buckets: list[tuple[int, float]] = []
    for place, nbytes in enumerate(sizes):
        held = buckets[-1][1] if buckets else 0
        if buckets and held + nbytes <= bucket_bytes:
            buckets[-1] = place, held + nbytes
        else:
            buckets.append((place, nbytes))
    return buckets


def _play(
    tables: list[np.ndarray], bucket: np.ndarray, ready: np.ndarray, machine: Machine
) -> Messages:
    """The messages of all buckets, one bucket after the other; those of a bucket wait until it is
    `ready` (ranks, buckets) on the rank."""
    table = np.concatenate(tables)
    rounds = [0, *np.cumsum([each["step"].max(initial=-1) + 1 for each in tables])]
    table["step"] += np.array(rounds)[bucket]
    leaves, takes = ready[table["src"], bucket], ready[table["dst"], bucket]
    messages = Messages(table, len(ready), machine, leaves, takes)
    messages.play()
    return messages


def _all_reduces(
    messages: Messages, bucket: np.ndarray, ready: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """When each rank began with each bucket, and when it was done: (ranks, buckets). It is done
    when it has added what arrived, and its own messages have left."""
    done = ready.copy()
    np.maximum.at(done, (messages.dst, bucket), messages.received + messages.adding)
    np.maximum.at(done, (messages.src, bucket), messages.sent + messages.sending)
    done = np.maximum.accumulate(done, axis=1)
    before = np.hstack([np.zeros((len(done), 1)), done[:, :-1]])
    return np.maximum(ready, before), done


def _computing(layers: Sequence[Layer], takes: np.ndarray, ends: np.ndarray) -> dict[str, Any]:
    """The spans of forward and backward."""
    ranks, operations = ends.shape
    names = [layer.name for layer in (*layers, *reversed(layers))]
    return _columns(
        ranks * operations,
        rank=np.repeat(np.arange(ranks), operations),
        kind=np.tile(np.repeat(["forward", "backward"], len(layers)), ranks),
        name=np.tile(names, ranks),
        start=(ends - takes[:, :-1]).ravel(),
        end=ends.ravel(),
    )


def _communicating(
    takes: np.ndarray, ends: np.ndarray, begun: np.ndarray, done: np.ndarray, sizes: list[int]
) -> dict[str, Any]:
    """The spans of the buckets on lane comm, of the waits for them, and of the update."""
    ranks, buckets = done.shape
    summary = {
        "rank": np.repeat(np.arange(ranks), buckets),
        "bucket": np.tile(np.arange(buckets), ranks),
    }
    over = np.maximum.accumulate(np.hstack([ends[:, -1:], done]), axis=1)
    parts = [
        _columns(
            ranks * buckets,
            **summary,
            lane="comm",
            kind="collective",
            name=np.array([f"bucket {number}" for number in range(buckets)])[summary["bucket"]],
            nbytes=np.tile(sizes, ranks),
            start=begun.ravel(),
            end=done.ravel(),
        ),
        _columns(
            ranks * buckets,
            **summary,
            kind="wait",
            name="for lane comm",
            start=over[:, :-1].ravel(),
            end=over[:, 1:].ravel(),
        ),
        _columns(
            ranks,
            rank=np.arange(ranks),
            kind="update",
            start=over[:, -1],
            end=over[:, -1] + takes[:, -1],
        ),
    ]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _carrying(messages: Messages, bucket: np.ndarray, begun: np.ndarray) -> dict[str, Any]:
    """The spans inside a bucket's, as a rank runs its part of the pattern: a message that it hands
    to its port, one that it waits for, one that it adds."""
    src, dst, received = messages.src, messages.dst, messages.received
    after, adds = received + messages.adding, np.flatnonzero(messages.adding)
    flow = np.arange(len(src))
    sending, taking = np.split(_since(messages, after, begun, bucket), 2)
    parts = [
        _columns(
            len(carried),
            rank=rank,
            lane="comm",
            kind=kind,
            depth=1,
            peer=peer,
            flow=carried,
            bucket=bucket[carried],
            nbytes=messages.nbytes[carried],
            start=start,
            end=end,
        )
        for kind, rank, peer, carried, start, end in (
            ("send", src, dst, flow, sending, sending),
            ("recv", dst, src, flow, taking, received),
            ("collective", dst[adds], src[adds], adds, received[adds], after[adds]),
        )
    ]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _since(
    messages: Messages, after: np.ndarray, begun: np.ndarray, bucket: np.ndarray
) -> np.ndarray:
    """When each sender starts to send, then when each receiver starts to wait: once it has begun
    with the bucket and has added what it received before. In a round ranks send, then receive."""
    n = len(messages.src)
    rank = np.concatenate([messages.src, messages.dst])
    takes = np.repeat([False, True], n)
    order = np.lexsort((takes, np.tile(messages.step, 2), rank))
    place = np.arange(2 * n)
    last = np.maximum.accumulate(np.where(takes[order], place, -1))
    last = np.append(-1, last[:-1])[: 2 * n]  # the previous receive, of any rank
    since = begun[rank, np.tile(bucket, 2)][order]
    own = (last >= 0) & (rank[order][last] == rank[order])
    since[own] = np.maximum(since[own], np.tile(after, 2)[order][last[own]])
    found = np.empty(2 * n)
    found[order] = since
    return found


def _columns(rows: int, **given: Any) -> dict[str, Any]:
    """Columns of spans in step 0; those not `given` have their defaults."""
    default = {"lane": "compute", "name": None, "depth": 0, "bucket": -1, "nbytes": 0}
    columns = {**default, "peer": -1, "flow": -1, "step": 0, **given}
    text = ("lane", "kind", "name")
    return {
        name: np.broadcast_to(np.asarray(value, object if name in text else None), rows)
        for name, value in columns.items()
    }
