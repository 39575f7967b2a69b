"""How long a step waits for its gradients if their buckets leave during the last backwards: the
closed form of `hybrid.train(..., overlap=True)`.

    stage 1   |block 3 |block 2 |                        the backwards of the last microbatch
    along dp           |bucket 0||bucket 1|
    stage 0                     |block 1 |block 0 |
    along dp                             |bucket 0||bucket 1|        the step waits for this one

The last microbatch completes a layer's gradients, stage by stage from the last to the first; a
bucket leaves when it is full, after those before it. Gradients to which other ranks add after the
flush come last: of an embedding that two stages hold, and under sequence parallelism of what tp
does not cut. Under ZB-H1 each rank has all gradients only at its end, and nothing is hidden.

Stages whose groups along dp share a slow link use it in turn. A message to the previous stage waits
until that of a bucket has left the port. Messages along tp need the port too, so gradients hide
behind math alone; how long these wait is left out.

Source: Li et al., "PyTorch Distributed", VLDB 2020 (buckets); D. Narayanan et al., SC 2021.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from dlviz.sim.data_parallel import fill

if TYPE_CHECKING:
    from dlviz.sim.planner import Load, StageCost
    from dlviz.sim.transformer_size import TransformerShape


class Gradient(NamedTuple):
    """Of a parameter on a rank: seconds of math between its completion and the one before, how many
    numbers it has, whether tp cuts it, and whether two stages share it."""

    seconds: float
    numbers: float
    cut: bool = True
    tied: bool = False


def stage_gradients(
    shape: TransformerShape,
    tp: int,
    run: tuple[int, bool, bool],
    block: StageCost,
    logits: StageCost,
) -> list[Gradient]:
    """The gradients of a stage in the order of its backward. `run`: how many blocks, whether the
    embedding precedes them and the logits follow; `block` and `logits` cost a microbatch."""
    blocks, first, last = run
    h, square = shape.hidden, shape.hidden**2 / tp
    again = block.backward - 2 * block.forward  # what is recomputed comes first
    matrix = 2 * block.weights / 12  # of h x h numbers: gradients of weights and of inputs
    attention = 2 * (block.forward - block.weights)
    norm = 2 * [Gradient(0.0, h, False)]
    of_block = [
        Gradient(again, h, False), Gradient(4 * matrix, 4 * square),  # down: bias, weights
        Gradient(4 * matrix, 4 * h / tp), Gradient(0.0, 4 * square),  # up
        *norm,
        Gradient(0.0, h, False), Gradient(matrix, square),  # output
        Gradient(attention + matrix, h / tp), Gradient(0.0, square),  # v
        *(2 * [Gradient(matrix, h / tp), Gradient(0.0, square)]),  # k, q
        *norm,
    ]  # fmt: skip
    found = [Gradient(logits.backward, h, False), norm[0]] if last else []
    found += blocks * of_block
    if first:
        found.append(Gradient(0.0, shape.sequence * h, False))
    if first or last:
        found.append(Gradient(0.0, shape.vocabulary * h / tp, tied=not (first and last)))
    return found


class Bucket(NamedTuple):
    """Bytes of a bucket, and when its last gradient is complete: so many seconds before the end of
    the backward through the rank's stage number `place`."""

    nbytes: float
    before: float = 0.0
    place: int = 0


@lru_cache(maxsize=64)
def rank_buckets(
    shape: TransformerShape,
    tp: int,
    runs: tuple[tuple[int, bool, bool], ...],
    block: StageCost,
    logits: StageCost,
    sequence_parallel: bool,
    itemsize: int,
    bucket_bytes: float,
) -> tuple[list[Bucket], list[Bucket]]:
    """The buckets of a rank with these runs of blocks, in the order in which they leave: those that
    the backwards complete, and those that come after the flush."""
    complete: list[Bucket] = []
    late: list[Bucket] = []
    for place, run in reversed([*enumerate(runs)]):
        gradients = stage_gradients(shape, tp, run, block, logits)
        left = sum(each.seconds for each in gradients)
        for each in gradients:
            left -= each.seconds
            waits = each.tied or (sequence_parallel and not each.cut)
            (late if waits else complete).append(Bucket(each.numbers * itemsize, left, place))
    complete, late = (
        [group[last]._replace(nbytes=nbytes) for last, nbytes in fill(sizes, bucket_bytes)]
        for group in (complete, late)
        for sizes in [[each.nbytes for each in group]]
    )
    return complete, late


def exposed_seconds(
    load: Load,
    schedule: str,
    pp: int,
    costs: Sequence[StageCost],
    borders: Sequence[float],
    ties: float,
    bucket_bytes: float,
) -> float:
    """From the end of the flush, and of the `ties` after it, until every rank has the means.
    `costs` of a microbatch on each stage, `borders` of its message between two."""
    turns, average = load.by_turns
    buckets = [
        rank_buckets(*load.of_gradients(tuple(runs)), bucket_bytes)
        for runs in load.runs(pp, len(costs) // pp)
    ]
    rounds = 2 * (load.axes["dp"].length - 1)
    links = [-math.inf] * pp  # when a rank's way along dp, or the one that stages share, is free
    at = flush = 0.0  # since the last backward began in the last stage: now; the end without waits
    hides = schedule != "zb_h1"
    for stage in reversed(range(len(costs))):
        rank, border = stage % pp, borders[stage - 1] if stage else 0.0
        at += hides * costs[stage].back
        flush += hides * (costs[stage].back + border)
        sent = at
        for bucket in buckets[rank][0]:
            if bucket.place != stage // pp:
                continue
            ready, took = at - hides * bucket.before, average(bucket.nbytes)
            start = max(ready, links[rank // turns])
            links[rank // turns] = start + took
            if ready < at < start + took:  # one of its messages has the port, or comes before
                sent = start + took / rounds * max(1, math.ceil((at - start) / took * rounds))
        if stage:
            at = (sent + border) if hides else 0.0
    for rank, (_, late) in enumerate(buckets):
        for bucket in late:
            start = max(at + ties, links[rank // turns])
            links[rank // turns] = start + average(bucket.nbytes)
    return max(at + ties, *links) - flush - ties
