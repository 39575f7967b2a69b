"""Hints for a student's tensor-parallel MLP: likely causes of what a check saw.

One process of plain torch computes the right result, and those of known mistakes. Symbols: n ranks,
rank r has W1_r, b1_r and W2_r of the whole W1, b1 and W2; b2 is whole.

    y = sum_r GELU(x W1_r + b1_r) W2_r + b2        rank r's share of the sum is its term
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

import torch
from torch.nn.functional import gelu, linear

from dlviz.grading.assignments.tensor_parallel_mlp.run import (
    CUT,
    NO_GRADIENT,
    MLPSize,
    Parallel,
    State,
)
from dlviz.grading.assignments.tensor_parallel_mlp.variations import varied
from dlviz.grading.harness.feedback import listed

LAYOUT = (
    "torch stores a weight as (outputs, inputs). Column-parallel cuts up by its outputs, "
    "row-parallel cuts down by its inputs: which dim of each weight is that?"
)
WHICH_LINE = "which line multiplies or divides by it?"
PARTS = {  # what a rank may hold instead of its part, and a hint
    "the whole": "each rank computes its own part of the inner width, and needs only that part of "
    "the weight.",
    "cut by the other dim": LAYOUT,
    "another rank's part": "rank r holds the r-th part: where does it begin, and where does it "
    "end?",
    "every n-th": "rank r holds the r-th contiguous part, so that the parts in a row are the "
    "whole.",
}


def plain(x: torch.Tensor, state: State, approximate: str = "none") -> torch.Tensor:
    """The MLP in one process."""
    inner = gelu(linear(x, state["up.weight"], state["up.bias"]), approximate=approximate)  # (B, i)
    return linear(inner, state["down.weight"], state["down.bias"])  # (B, h)


def joined(parts: Sequence[State]) -> State:
    """The whole weights, of the ranks' parts."""
    first = parts[0]
    return {
        name: torch.cat([part[name] for part in parts], CUT[name]) if name in CUT else first[name]
        for name in first
    }


def held(tried: Parallel, step: int) -> list[State]:
    """Each rank's part before a step, cut out where a rank holds a whole weight or bias."""
    return [
        {
            name: each
            for name in tried.size.shapes
            if (each := tried.size.own(name, own.steps[step].part.get(name), rank)) is not None
        }
        for rank, own in enumerate(tried.left)
    ]


def terms(x: torch.Tensor, parts: Sequence[State]) -> list[torch.Tensor]:
    """Each rank's share of y, without the bias."""
    return [
        linear(gelu(linear(x, part["up.weight"], part["up.bias"])), part["down.weight"])
        for part in parts
    ]


def gradients(x: torch.Tensor, gradient: torch.Tensor, state: State) -> State:
    """Of one process: of the weights by their names, and of x ("x")."""
    leaves = {name: each.clone().requires_grad_() for name, each in {**state, "x": x}.items()}
    y = plain(leaves["x"], leaves)
    found = torch.autograd.grad(y, [*leaves.values()], gradient)
    return dict(zip(leaves, found, strict=True))


def shares_of_x(
    x: torch.Tensor, gradient: torch.Tensor, parts: Sequence[State]
) -> list[torch.Tensor]:
    """The gradient of x through each rank's part alone."""
    found = []
    for part in parts:
        leaf = x.clone().requires_grad_()
        found += torch.autograd.grad(terms(leaf, [part])[0], leaf, gradient)
    return found


def same(seen: torch.Tensor | None, wanted: torch.Tensor) -> bool:
    """Equal up to the order of additions."""
    if seen is None or seen.shape != wanted.shape:
        return False
    return torch.allclose(seen.double(), wanted, rtol=1e-9, atol=1e-9)


def why_part(size: MLPSize, name: str, seen: torch.Tensor | None, whole: torch.Tensor) -> str:
    """Why what a rank holds as `name` is not its part."""
    if seen is None:
        return (
            "the module's parameters are found by their names. Is it an nn.Parameter, set as an "
            "attribute of the module, or of an nn.Linear in it?"
        )
    n = size.ranks
    others: dict[str, list[torch.Tensor]] = {"the whole": [whole]}
    if name in CUT:
        dim = CUT[name]
        others["another rank's part"] = [*whole.tensor_split(n, dim)]
        others["every n-th"] = [
            whole.index_select(dim, torch.arange(r, whole.shape[dim], n)) for r in range(n)
        ]
        if whole.dim() == 2:
            others["cut by the other dim"] = [*whole.tensor_split(n, 1 - dim)]
    for what, known in others.items():
        if any(same(seen, each) for each in known):
            return PARTS[what]
    if seen.dtype != whole.dtype:
        return "the weights are float64: a new module has float32 unless given a dtype."
    if name == "down.bias":
        return "down.bias has a number for each output, and down's outputs are whole on each rank."
    part = size.part(name, whole, 0)
    if seen.shape == part.shape:
        return "the part has the numbers of the whole weight: nothing is drawn again or changed."
    dim = CUT[name]
    if seen.dim() == 2 and seen.T.shape == part.shape:
        return "it is transposed. PyTorch stores a weight as (outputs, inputs): leave it so."
    if seen.dim() == part.dim() and {*enumerate(seen.shape)} ^ {*enumerate(part.shape)} == {
        (dim, seen.shape[dim]),
        (dim, part.shape[dim]),
    }:
        return (
            f"it has {seen.shape[dim]} of the {size.inner} numbers of the inner width, and a part "
            f"has i/n = {part.shape[dim]}: where does it begin, and where does it end?"
        )
    return LAYOUT


def why_output(tried: Parallel, rank: int, step: int) -> tuple[str, str]:
    """What the output of a rank is instead of the MLP's, and a hint."""
    size, own = tried.size, tried.left[rank].steps[step]
    state = size.whole(tried.seed)
    parts = [{k: size.part(k, each, r) for k, each in state.items()} for r in range(size.ranks)]
    if step:
        parts = held(tried, step)
        state = joined(parts)
    x = size.batch(tried.seed, step)[0]
    known = wrong_outputs(x, state, parts, rank)
    for what, (value, hint) in known.items():
        if same(own.output, value):
            return what, hint
    right = plain(x, state)
    if torch.allclose(own.output.double(), right, rtol=1e-5, atol=1e-5):
        return "the MLP's with fewer digits", (
            "all numbers are float64: which line makes float32 of them? torch.zeros and a new "
            "module do, unless given a dtype."
        )
    times = float((own.output * right).sum() / (right * right).sum())
    if times and same(own.output, times * right):
        k = Fraction(times).limit_denominator(1000)
        return f"{_times(k)} the MLP's", f"it is wrong by a factor of {k}: {WHICH_LINE}"
    if step:
        return "no longer the MLP's", (
            "step 0 is right. The weights have changed since, each rank's own, as by an optimizer: "
            "does forward use the current parameters?"
        )
    if same(own.output, plain(x, joined(held(tried, step)))):
        return "that of other weights", (
            "the output is that of the parts that the ranks hold, but these are not parts of the "
            "given weights: fix that first."
        )
    return "something else", (
        "follow one row of x: which columns of the inner width does each rank compute, does GELU "
        "get them whole, and where are the ranks' shares of y added?"
    )


def wrong_outputs(
    x: torch.Tensor, state: State, parts: Sequence[State], rank: int
) -> Mapping[str, tuple[torch.Tensor, str]]:
    """The outputs of known mistakes on a rank, each with its hint."""
    n, bias = len(parts), state["down.bias"]
    shares = terms(x, parts)
    total = torch.stack(shares).sum(0)
    inner = torch.stack([linear(x, part["up.weight"], part["up.bias"]) for part in parts])
    down = [part["down.weight"] for part in parts]
    summed = gelu(inner.sum(0))
    late = torch.stack([linear(summed, each) for each in down]).sum(0)
    alone = (
        "nothing of the other ranks is in it. Which of f and g adds the ranks' shares, and does it "
        "return the sum?"
    )
    scaled = "x is whole on every rank: in forward f returns x itself and adds nothing."
    divided = "the ranks hold parts of one sum, not copies of a result: nothing has to be divided."
    early = (
        "the ranks' columns of the inner width are different ones, and GELU of a sum is not the "
        "sum of GELUs. Before GELU there is nothing to add: each column is whole on its rank."
    )
    return {
        f"rank {rank}'s share of the sum": (shares[rank] + bias, alone),
        f"rank {rank}'s share of the sum without the bias": (shares[rank], alone),
        f"the MLP's with down.bias added {n} times": (
            total + n * bias,
            "each rank adds the bias to its share, and the sum then contains all of them. Where is "
            "there one sum to add it to?",
        ),
        "the MLP's without down.bias": (total, "the bias is missing: after what is it added?"),
        "the mean of the ranks' shares": (total / n + bias, divided),
        "that of GELU of the sum over the ranks": (late + bias, early),
        f"that of GELU of the sum over the ranks, by rank {rank}'s part of down": (
            linear(summed, down[rank]) + bias,
            early,
        ),
        "that of the two layers without GELU": (
            linear(linear(x, state["up.weight"], state["up.bias"]), state["down.weight"], bias),
            "GELU lies between the two layers.",
        ),
        "GELU of the MLP's": (gelu(total + bias), "GELU lies between the two layers."),
        "the MLP's with an approximate GELU": (
            plain(x, state, "tanh"),
            "GELU is asked for as nn.GELU() computes it.",
        ),
        f"that of x times {n}": (plain(n * x, state), scaled),
        f"rank {rank}'s share of that of x times {n}": (
            terms(n * x, parts)[rank] + bias,
            "in forward f adds and g does not: are the two swapped?",
        ),
        f"{n} times the MLP's": (
            n * (total + bias),
            "the output is summed once more: how often is g called?",
        ),
    }


def why_gradient(tried: Parallel, rank: int, step: int, wrong: Sequence[str]) -> tuple[str, str]:
    """What the first wrong gradient of a rank is, and a hint that fits all of them."""
    size, n = tried.size, tried.size.ranks
    own, name = tried.left[rank].steps[step], wrong[0]
    seen = seen_of(tried, step)[rank].get(name)
    if seen is None and not (own.functions or seen_of(tried, step)[rank]):
        return "None", NO_GRADIENT
    if seen is None:
        return "None", (
            "backward never reached it. Does the output depend on it, and does backward of f and g "
            "return a gradient for x?"
        )
    if not seen.any():
        return "0", "which line leaves the gradient empty?"
    x, gradient = size.batch(tried.seed, step)
    parts = held(tried, step)
    whole = gradients(x, gradient, joined(parts))
    right = whole[name] if name == "x" else size.part(name, whole[name], rank)
    if torch.allclose(seen.double(), right, rtol=1e-4, atol=1e-5):
        return "right to some digits", "all gradients are float64: which line makes float32?"
    if not same(own.output, plain(x, joined(parts))):
        return "something else", (
            "the output is wrong too, and the gradients follow from it: fix that first."
        )
    if variation := varied(x, gradient, parts, seen_of(tried, step)):
        return "that of f or g in another place", variation.why
    times = float((seen * right).sum() / (right * right).sum())
    if same(seen, times * right):
        return _said_of_factor(Fraction(times).limit_denominator(1000), n, wrong)
    if name == "x" and (found := _shares_in(seen, shares_of_x(x, gradient, parts))) is not None:
        return _said_of_shares(found, rank, own.functions)
    return "something else", (
        "go back from y: g returns the gradient of y unchanged, f adds the gradients of x of all "
        "ranks, and everything in between stays on a rank."
    )


def seen_of(tried: Parallel, step: int) -> list[State]:
    """Each rank's gradients of its part, of down.bias and of x, without missing ones."""
    found = []
    for rank, own in enumerate(tried.left):
        seen = own.steps[step].gradients
        each = {name: tried.size.own(name, seen.get(name), rank) for name in tried.size.shapes}
        found.append({k: v for k, v in {**each, "x": seen.get("x")}.items() if v is not None})
    return found


def _said_of_factor(k: Fraction, n: int, wrong: Sequence[str]) -> tuple[str, str]:
    what = f"{_times(k)} what it should be"
    if k == n and {*wrong} & {*CUT}:
        return what, (
            "y is the same on every rank, and so is its gradient: the gradient of each rank's "
            "share is that of y itself. What does g do in backward?"
        )
    if k == n:
        return what, (
            "the gradients of x are added up twice. Which function adds them in backward, and is "
            "there anything left to add after it?"
        )
    if k == Fraction(1, n) and {*wrong} == {"down.bias"}:
        return what, (
            "down.bias is added in parts, so its gradient is a part too. To what should it be "
            "added once?"
        )
    if k == Fraction(1, n):
        return what, "nothing is divided: the ranks hold parts of one sum, and a sum is no mean."
    return what, f"it is wrong by a factor of {k}, on {n} ranks: {WHICH_LINE}"


def _times(k: Fraction) -> str:
    return f"{k} times" if k.denominator == 1 else f"{k} of"


def _shares_in(seen: torch.Tensor, shares: Sequence[torch.Tensor]) -> list[float] | None:
    """How much of each rank's share is in a gradient of x, None if it is no sum of them."""
    table = torch.stack([each.flatten() for each in shares], 1)
    if len(table) <= table.shape[1]:
        return None
    found = torch.linalg.lstsq(table, seen.flatten(), driver="gelsd").solution
    return found.tolist() if same((table @ found).view_as(seen), seen) else None


def _said_of_shares(found: Sequence[float], rank: int, functions: int) -> tuple[str, str]:
    summary = [f"{each:.3g}" if abs(each) > 1e-6 else "0" for each in found]
    if summary == ["1" if r == rank else "0" for r in range(len(found))]:
        if not functions:
            return f"rank {rank}'s share of it", (
                "backward passes through no Function of yours: is f called by apply?"
            )
        return f"rank {rank}'s share of it", (
            "x goes to the columns of every rank, so its gradient is the sum of the gradients from "
            "all of them. What does f do in backward?"
        )
    return f"{listed(summary)} of the shares of ranks 0 to {len(found) - 1}", (
        "each rank's share is in the gradient of x once. From which ranks does yours get a share, "
        "and how often?"
    )


PRICES = {  # of collectives that give no sum on all ranks, or at a higher price than an all-reduce
    ("all_gather",): "it brings every share to all ranks, to be added there: n-1 times the bytes "
    "of a share. A ring adds at every hop.",
    ("reduce", "broadcast"): "the sum goes to one rank, and from there to all. One collective does "
    "both, with equal work for all ranks.",
    ("reduce",): "it leaves the sum on one rank only. Who needs it?",
    ("broadcast",): "it brings one rank's tensor to all, and adds nothing.",
    ("reduce_scatter",): "it leaves each rank a piece of the sum. Which collective joins the "
    "pieces?",
}


def why_calls(calls: Sequence[tuple[str, int]], size: MLPSize, direction: str) -> str:
    """Why a direction has other collectives than one all-reduce of a tensor the size of y."""
    if not calls:
        return (
            "in forward, no rank has more than its share of y before they are added."
            if direction == "forward"
            else "each rank has the gradient of x through its own columns alone. Which function "
            "adds them?"
        )
    names, counts = tuple(name for name, _ in calls), [count for _, count in calls]
    if max(counts) >= size.hidden * size.inner // size.ranks:
        return "a weight is sent. The weights stay where they are: what is sent instead?"
    if names in PRICES:
        return PRICES[names]
    z = size.rows * size.inner // size.ranks
    if z in counts and z != size.rows * size.hidden:
        return (
            f"{z} elements are a rank's part of z, whose columns no other rank has: none has "
            "anything "
            + ("to add to them." if direction == "forward" else "to add to their gradient.")
        )
    if len(calls) > 1 and direction == "forward":
        return (
            "one sum is enough: a rank's columns after up are whole, GELU is computed on them, and "
            "its rows of down need exactly these."
        )
    if len(calls) > 1:
        return (
            "backward adds once: the gradient of y is the same on every rank already, so g returns "
            "it unchanged, and f adds."
        )
    if names[0] == "all_reduce":
        return (
            f"it has {counts[0]} elements, and y has {size.rows} rows of {size.hidden}: which "
            "tensor is the sum of the ranks' shares?"
        )
    return f"{names[0]} leaves no sum on all ranks. Which collective does?"


def why_bytes(tried: Parallel, rank: int, step: int, direction: str) -> str:
    """Why a rank's bytes in a direction are not those of a ring."""
    size, calls = tried.size, tried.left[rank].steps[step].calls[direction]
    sent, whole = tried.sent(direction, step), 8 * size.rows * size.hidden
    if sent[rank] and not calls:
        if len({*sent.tolist()}) > 1:
            return (
                f"rank {int(sent.argmax())} sends most, rank {int(sent.argmin())} least. In a ring "
                "all ranks do the same: what does one rank do for the others in yours?"
            )
        if sent[rank] == (size.ranks - 1) * whole:
            return (
                "the whole tensor goes to each of the others. In a ring a rank sends one of n "
                "pieces at a time, and adds at every hop."
            )
        return (
            f"that is {Fraction(float(sent[rank]) / whole).limit_denominator(100)} times the bytes "
            "of y. "
            "Has each chunk gone once round to be added, and once round to be copied?"
        )
    if calls != [("all_reduce", size.rows * size.hidden)]:
        return why_calls(calls, size, direction)
    if 2 * sent[rank] == size.all_reduced:
        return "half of that is float32: all numbers are float64."
    return "which algorithm of all_reduce is used? The ring, which is the default, sends least."
