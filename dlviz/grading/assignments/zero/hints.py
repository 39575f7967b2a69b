"""Hints for a student's ZeRO: what known mistakes would have left, compared with what was seen."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch

from dlviz.grading.assignments.zero.model import (
    How,
    Vectors,
    as_they_come,
    by_shards,
    clipped,
    mean,
)
from dlviz.grading.assignments.zero.run import BYTES, ROWS, Attempt, Clipped, ShardsLeft, StageSize

TAIL = (
    "the last values are in no shard: the ranks do not divide the length. A shard has ceil(length "
    "/ ranks) values, and the last one is filled up with zeros."
)
SUM = "this is the sum over the ranks: the gradient of the mean loss is the mean of the ranks'."
LOCAL = (
    "each rank clips by the norm of its own shards. The norm is that of the whole gradient: which "
    "number do the ranks have to add?"
)
EARLY = (
    "shards are updated before all gradients are in: each layer is clipped by {}. When is the norm "
    "of all layers known?"
)
ALONE = "each shard is that of the rank's own gradient: the others' gradients are in no sum."
MISTAKES: list[tuple[How, str]] = [
    (lambda each, clip: clipped([len(each) * g for g in mean(each)], clip), SUM),
    *((partial(by_shards, padded=padded), LOCAL) for padded in (True, False)),
    *((partial(by_shards, padded=padded, own=True), ALONE) for padded in (True, False)),
    (as_they_come, EARLY.format("the norm of those that have come by then")),
    (lambda each, clip: [clipped([g], clip)[0] for g in mean(each)], EARLY.format("its own norm")),
    (
        lambda each, clip: mean([clipped(own, clip) for own in each]),
        "each rank's own gradient is clipped, and then the mean is taken: clip the mean.",
    ),
    (lambda each, clip: mean(each), "nothing is clipped: who calls clip, and between which lines?"),
]


def why_weights(tried: Attempt) -> str:
    """A hint for wrong weights in the end."""
    size, begin = tried.size, torch.cat(tried.size.begin(tried.seed))
    seen = [torch.cat(own.weights or []) for own in tried.left]
    if seen[0].isnan().any():
        return "there are NaNs: was a tensor read that torch.empty has made, and nobody filled?"
    if tried.unchanged:
        return (
            "the weights are as they were in the beginning. Adam changes the tensor that it gets: "
            "is that a copy, which nobody uses then?"
        )
    for rank, each in enumerate(seen):
        if not close([each], [seen[0]]):
            return (
                f"rank {rank} ends with other weights than rank 0. Each rank updates its own "
                "shards: how do the others get them?"
            )
    tails = [n - n % size.ranks for n in size.lengths]
    ends = torch.cat([torch.arange(n) >= t for n, t in zip(size.lengths, tails, strict=True)])
    if ends.any() and torch.equal(seen[0][ends], begin[ends]):
        return TAIL
    for how, hint in MISTAKES:
        if tried.leaves(how):
            return hint
    return (
        "for one layer: the mean of all ranks' gradients, its shards, the factor of clip, Adam on "
        "each shard, and all shards gathered. Which line differs?"
    )


# -- shards and clipping ---------------------------------------------------------------------------


def wrong_shards(left: Sequence[ShardsLeft], rank: int) -> tuple[str, str] | None:
    """What is wrong with a rank's shards, and a hint; None of right ones."""
    n, most = len(left[0].given[0]), -(-len(left[0].given[0]) // len(left))
    mean_of_all = torch.stack([each.given[1] for each in left]).mean(0)
    for name, wanted in (("shard", left[rank].given[0]), ("mean_shard", mean_of_all)):
        if name not in left[rank].found:
            return f"{name} or whole returned no tensor", "which line returns?"
        part, seen = left[rank].found[name]
        if part.ndim != 1 or len(part) > most:
            hint = "with equal shards no rank needs more values: which are too many?"
            return f"{name} returned a tensor of the shape {tuple(part.shape)}", hint
        if seen.shape != (n,):
            hint = "the zeros at the end are no values of the vector: cut them off."
            return (
                f"whole, of what {name} returned, has the shape {tuple(seen.shape)}",
                TAIL if seen.numel() < n else hint,
            )
        if not close([seen], [wanted]):
            off, divided = int(((seen - wanted).abs() > 1e-9).sum()), n // len(left) * len(left)
            hint = "follow one value: in whose shard is it, and where does whole put it?"
            if close([seen[:divided]], [wanted[:divided]]):
                hint = TAIL
            elif name == "mean_shard" and close([seen], [wanted * len(left)]):
                hint = SUM
            return f"whole, of what {name} returned, has {off} wrong values of {n}", hint
    return None


def why_clipped(left: Sequence[Clipped], call: int) -> str:
    """A hint for shards that have another factor than they should."""
    before, after = ([torch.cat(getattr(e, n)[call]) for e in left] for n in ("before", "after"))
    norms, seen = (torch.stack([each.norm() for each in vectors]) for vectors in (before, after))
    if close(before, after):
        return "the shards are as they were: `s *= x` changes the tensor s, `s = s * x` does not."
    if (seen > 1.01 * norms).any():
        return "a small gradient is scaled up: the factor is 1 at most."
    if torch.allclose(seen, torch.full_like(seen, left[0].most[call])):
        return LOCAL
    if torch.allclose(seen, norms * left[0].most[call] / norms.sum()):
        return "norms do not add up: their squares do."
    return "which number do all ranks have to add, and what is it the square of?"


# -- bytes and memory ------------------------------------------------------------------------------


def units(size: StageSize) -> tuple[float, float]:
    """The fewest and the most bytes that a rank sends to reduce-scatter or gather all layers once:
    with shards as short as any, and with padding."""
    short = sum(n // size.ranks for n in size.lengths[:-1])  # the last may stay for its backward
    return (size.ranks - 1) * short * BYTES, (size.ranks - 1) * size.sharded * BYTES


def why_bytes(tried: Attempt, sent: float) -> str:
    size = tried.size
    due, count = 2 + (size.stage == 3), sent / units(size)[1]
    if sent == 0:
        return "nothing is sent: which ranks have the other gradients?"
    if "all_reduce" in tried.order:
        return (
            f"this is {count:.1f} times (n-1)/n of the weights. An all-reduce sends each gradient "
            "twice, and brings every rank all sums, of which it uses one shard."
        )
    if count < due - 0.5 and size.stage == 3:
        return (
            "two of three: weights for forward, weights for backward, gradients. Which is missing?"
        )
    if count < due - 0.5:
        return "gradients come to their owners, and new weights to all. Which of them is missing?"
    return (
        f"this is {count:.1f} times (n-1)/n of the weights, and {due} are due. What is sent that "
        "the rank that receives it does not need, or has already?"
    )


def least(size: StageSize) -> int:
    """Bytes that a rank has to hold between two steps: weights (all, or shards), two states."""
    weights = size.sharded if size.stage == 3 else size.values
    return BYTES * (weights + 2 * (size.sharded if size.stage else size.values))


def most_held(size: StageSize) -> int:
    """What it may hold: a gradient of its shards too."""
    return least(size) + BYTES * (size.sharded + 64)


def most_at_peak(size: StageSize) -> int:
    """With inputs and outputs of the layers, and the longest layer's gradient and copies of it (in
    stage 3 of its weights, too), or of the gradients of all shards."""
    longest = max(size.lengths)
    at_work = max((5 if size.stage == 3 else 3) * longest, size.sharded + longest)
    return most_held(size) + BYTES * (at_work + ROWS * size.width * (len(size.lengths) + 3))


def why_held(size: StageSize, held: int) -> str:
    """A hint from the bytes that are too many."""
    extra, states = held - least(size), 2 * (size.values - size.sharded)
    known = [(states, "as many as the states of all other shards: Adam needs those of its own.")]
    if size.stage == 3:
        own = (size.ranks - 1) * size.sharded
        others = "as many as the other shards: a slice holds its whole vector, until it is cloned."
        known += [(each, others) for each in (size.values - size.sharded, own)]
    known += [
        (size.values, "as many as all layers: which list of whole vectors, weights or gradients, "
         "outlives the step?"),
    ]  # fmt: skip
    slack = (size.sharded / 2 + 32) * BYTES
    hint = next((hint for n, hint in known if abs(extra - n * BYTES) < slack), "")
    return f"these are {extra:,} bytes too many, " + (
        hint or "which belong to other ranks, or to the step that is over."
    )


def why_peak(tried: Attempt, peak: int) -> str:
    extra = f"{peak - most_at_peak(tried.size):,} bytes too many: "
    gathers = [i for i, name in enumerate(tried.order) if name == "all_gather"]
    sums = [i for i, name in enumerate(tried.order) if name != "all_gather"]
    twice = len(gathers) > len(tried.size.lengths)
    if tried.size.stage == 2 or (twice and sums and sums[0] > gathers[-1]):
        return extra + (
            "the whole gradients of all layers are there at once. When does a rank need no more "
            "of a layer's gradient than its shard?"
        )
    return extra + (
        "gathered layers are never freed: a list or an attribute that names a tensor holds it. Who "
        "needs a layer after its forward, and after its backward?"
    )


def close(seen: Vectors, wanted: Vectors) -> bool:
    return all(
        a.shape == b.shape and torch.allclose(a, b, rtol=0, atol=1e-9)
        for a, b in zip(seen, wanted, strict=True)
    )
