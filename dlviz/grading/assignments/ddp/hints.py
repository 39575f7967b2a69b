"""Hints for a student's DDP: likely causes of what a check saw."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from dlviz.grading.assignments.ddp.run import StudentTraining
from dlviz.grading.harness.feedback import listed

Gradients = Sequence[torch.Tensor | None]  # of all parameters; None where a rank has none
NOBODY = "a full bucket is launched by lane.submit(all_reduce, flat). Who calls that, when?"
SUMS = {  # what a gradient may be instead of the mean, and the likely cause
    "the sum over the ranks": "each rank's loss is the mean over its own examples, and the sum of "
    "such means is too large. By what must a rank multiply its gradient before the sum?",
    "the mean of the ranks' means": "a rank with few examples counts as much as one with many. "
    "With shards of 3 examples and 1, which part of the mean over all 4 is each rank's?",
    "the mean, divided by the ranks once more": "it is divided twice: examples / total already "
    "contains the number of ranks.",
    "the sum over the examples": "each gradient is weighted by its examples, but the sum is not "
    "divided by all examples yet.",
    "this rank's own": "nothing of the other ranks is in it. Is its bucket launched, full or not, "
    "and is the result put into p.grad?",
    "this rank's own, weighted": "nothing of the other ranks is in it yet: launching starts an "
    "all-reduce and returns immediately. What shows that it is done?",
    "zeros": "there was no gradient in the bucket when it left. Which of a bucket's gradients "
    "comes last, and which call of the hook is that?",
}


def why_cut(
    seen: list[list[int]], by_numbers: list[list[int]], sizes: Sequence[int], most: int
) -> str:
    """Why the buckets, as parameter numbers, are wrong. `sizes`: bytes of each parameter;
    `by_numbers`: the buckets cut at `most` numbers instead of bytes."""
    flat, wanted = [i for each in seen for i in each], [*range(len(sizes))][::-1]
    if [] in seen:
        return "a bucket is empty: is a new one begun while the last is still empty?"
    if missing := sorted({*wanted} - {*flat}):
        return (
            f"parameter {missing[0]} is in no bucket: what happens to the last bucket, which may "
            "never be full?"
        )
    if len(flat) > len(wanted):
        return "a parameter is in more than one bucket: when is the next one begun?"
    if flat == wanted[::-1]:
        return "which gradient is ready first in backward, that of the first or the last layer?"
    if flat != wanted:
        return (
            "each bucket has to start where the one before it ended, from the last parameter to "
            "the first."
        )
    held = [sum(sizes[i] for i in each) for each in seen]
    over = [i for i, each in enumerate(seen) if len(each) > 1 and held[i] > most]
    if over:
        if seen == by_numbers:
            return (
                f"these buckets have at most {most} numbers each, and a number of float64 has 8 "
                "bytes. Which of the two is to be counted?"
            )
        return (
            f"bucket {over[0]} has {held[over[0]]} bytes, more than {most}, because of its last "
            "parameter. Is p.nbytes checked before p is put in?"
        )
    if len(seen) == len(wanted):
        return "each parameter has a bucket of its own: would the next gradient still have fitted?"
    for i, following in enumerate(seen[1:]):
        both = held[i] + sizes[following[0]]
        if both <= most:
            return (
                f"bucket {i} is cut too early: with parameter {following[0]} it would have "
                + (f"exactly {most} bytes, which is" if both == most else f"{both} bytes,")
                + " at most what a bucket may have. "
                + ("Is it < or <=?" if both == most else "Is the count of bytes reset?")
            )
    return "from the last parameter on, a bucket takes the next one as long as it fits."


def says(
    tried: StudentTraining, rank: int, wrong: Sequence[int], seen: Gradients, own: list[Gradients]
) -> tuple[str, str]:
    """What the gradients numbered `wrong` of `rank` are, in terms of the ranks' `own`; and a
    hint."""
    shares, n = tried.size.shares, tried.size.ranks
    total = sum(shares)
    known = {
        "the sum over the ranks": [1.0] * n,
        "the mean of the ranks' means": [1 / n] * n,
        "the mean, divided by the ranks once more": [each / total / n for each in shares],
        "the sum over the examples": [float(each) for each in shares],
        "this rank's own": [float(r == rank) for r in range(n)],
        "this rank's own, weighted": [(r == rank) * shares[r] / total for r in range(n)],
        "zeros": [0.0] * n,
    }
    like = list(tried.model.parameters())
    parts = torch.stack([_flat(each, like, wrong) for each in own], dim=1)  # (numbers, ranks)
    held = _flat(seen, like, wrong)
    factors = torch.linalg.lstsq(parts, held, driver="gelsd").solution
    off = float((parts @ factors - held).abs().max() / max(float(held.abs().max()), 1e-300))
    if off > 1e-5:
        return _misplaced(tried, seen, own)
    if off > 1e-9:
        return "a sum of the ranks' gradients with fewer digits", (
            "gradients are float64, and some digits are lost: which type has the tensor that the "
            "bucket is copied into?"
        )
    for what, weights in known.items():
        if _alike(factors, torch.tensor(weights).double()):
            return what, SUMS[what]
    mean = torch.tensor(shares).double() / total
    times = float(factors.sum())
    if _alike(factors, times * mean):
        twice = abs(times - float(mean[rank])) < 1e-6
        return f"the mean, times {times:.3g}", (
            "each gradient is weighted before the all-reduce, and the result once more."
            if twice
            else "the shares of the ranks are right. By what is it multiplied or divided besides?"
        )
    if _alike(factors, mean + torch.eye(n)[rank]):
        return "the mean, added to this rank's own", (
            "the result is the mean already: it replaces p.grad."
        )
    summary = listed([f"{float(each):.3g}" for each in factors])
    return f"{summary} of the gradients of ranks 0 to {n - 1}", (
        f"the ranks have {listed([*map(str, shares)])} of {total} examples: how much of the mean "
        "is each one's?"
    )


def _alike(one: torch.Tensor, other: torch.Tensor) -> bool:
    return torch.allclose(one, other.double(), rtol=1e-6, atol=1e-9)


def _misplaced(tried: StudentTraining, seen: Gradients, own: list[Gradients]) -> tuple[str, str]:
    """What gradients are that are no sum of the ranks': perhaps the mean's numbers, in other
    places."""
    like, shares = [*tried.model.parameters()], tried.size.shares
    for bucket in tried.buckets:
        parts = torch.stack([_flat(each, like, bucket) for each in own])
        mean = (torch.tensor(shares).double() / sum(shares)) @ parts
        held = _flat(seen, like, bucket)
        if not torch.allclose(held, mean) and torch.allclose(held.sort()[0], mean.sort()[0]):
            return "no sum of the ranks' gradients", (
                "its bucket has the numbers of the mean, in other places. Is it joined and split "
                "in the same order, and does each part have the shape of its parameter?"
            )
    return "no sum of the ranks' gradients", (
        "follow one number: what is put into the bucket for it, and is its sum taken out of the "
        "same place?"
    )


def why_launched(tried: StudentTraining, rank: int, step: int) -> str:
    """Why the all-reduces of a rank are not one for each bucket, in the order of the list."""
    seen, wanted = tried.left[rank].reduced[step], tried.elements
    sizes = [p.numel() for p in tried.model.parameters()]
    if not seen:
        return NOBODY
    if sorted(seen) == sorted(sizes) and len(seen) > len(wanted):
        return (
            "there is an all-reduce for each parameter. A bucket puts all its gradients into one "
            "tensor, with one all-reduce."
        )
    if sorted(seen) == sorted(wanted):
        return (
            "every rank has to launch the buckets in the order of the list, or ranks all-reduce "
            "different buckets at the same time. What if bucket 1 is full before bucket 0?"
        )
    if seen == wanted[: len(seen)]:
        left = listed([str(i) for i in range(len(seen), len(wanted))])
        return f"what happens to a bucket that backward has not filled? Never launched: {left}."
    if len(seen) > len(wanted):
        return "some buckets leave more than once: what must be recorded when a bucket has left?"
    return "a bucket's all-reduce carries all gradients of the bucket, and nothing else."


def why_alone(tried: StudentTraining, rank: int) -> str:
    """Why no backward runs while a bucket is in flight."""
    launched = [at for step in tried.left[rank].on_lane for at, _ in step]
    if not launched:
        return "no bucket was launched on a lane: comm.lane(name) makes one in __init__."
    if min(launched) < len([*tried.model.children()]):
        return (
            "the first bucket leaves before backward is over, but backward stops until that bucket "
            "is done. Where is the wait()? Who needs the mean, and when?"
        )
    return (
        "all buckets leave when backward is over. Which function does a parameter call when its "
        "gradient is ready?"
    )


def _flat(gradients: Gradients, like: Sequence[torch.Tensor], wrong: Sequence[int]) -> torch.Tensor:
    """The gradients numbered `wrong` as one row, with zeros for missing ones."""
    parts = [torch.zeros_like(p) if g is None else g for g, p in zip(gradients, like, strict=True)]
    return torch.cat([parts[i].flatten() for i in wrong])
