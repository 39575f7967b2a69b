"""Hints for a student's halo exchange: which rows stand where, how often each part was added."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from dlviz.grading.assignments.halo_exchange.model import (
    ROW,
    Geometry,
    Pair,
    common,
    near,
    returned,
    times,
    window,
)
from dlviz.grading.assignments.halo_exchange.run import (
    BLOCKS,
    ExchangeRun,
    Kernel,
    LayerRun,
    Needed,
    Strips,
)
from dlviz.grading.harness.feedback import listed, number

OUTSIDE, UNREAD, MIXED = "zeros", "nothing", "other numbers"
NAN = "a number was read before its message had arrived. Which call returns when it has?"
BORDERS = (
    "{} zeros there, as if the image ended at the cut. Zeros belong only above the first and below "
    "the last row of the whole image: those rows are on {}."
)
ONE_SIDE = "no rows come from {}. A window reads on both sides: which neighbours does a rank have?"
FURTHER = (
    "{} {}, which is not next to this rank: a halo may be thicker than the neighbour's block. "
    "Which ranks overlap with what this one needs?"
)
CROSSES = (
    "the gradient of rows that {} read is missing here: no gradient crosses the cut. Those windows "
    "read these rows too."
)
TWICE = "what comes back from {} is in the sum {}: add each rank's part once."
REPLACES = (
    "what comes back replaces what was there. A row that two ranks read has a gradient from each: "
    "they are added."
)
SYMMETRIC = (
    "the halo is {} on both sides. With a stride the two sides differ: at which row does the "
    "window of the first output row begin, and where does that of the last one end?"
)
EVERYWHERE = (
    "{} brings the whole image to every rank, which needs a few rows of it: send each rank what it "
    "needs."
)


def why_needed(left: Needed) -> str:
    """A hint for wrong pairs: the first known formula that gives all of them."""
    if None in left.found:
        return "needed returns two whole numbers: the first row, and the one behind the last."
    for formula, hint in _formulas(left.size):
        if [formula(*block) for block in BLOCKS] == left.found:
            return hint
    reads, seen = _reads(left.size)(*BLOCKS[0]), left.found[0] or (0, 0)
    off = [f"{name} is off by {a - b:+d}" for name, a, b in zip(
        ("first", "end"), seen, reads, strict=True) if a != b]  # fmt: skip
    where = f" for the output rows {BLOCKS[0][0]} to {BLOCKS[0][1] - 1}" if off else ""
    return (
        f"{' and '.join(off) or 'some blocks are right'}{where}. Draw the window of the first "
        "output row and that of the last: which rows do they read?"
    )


def _reads(size: Kernel) -> Callable[[int, int], Pair]:
    return Geometry(0, size.kernel, size.stride, size.dilation, size.padding).reads


def _formulas(size: Kernel) -> list[tuple[Callable[[int, int], Pair], str]]:
    k, s, d, p = size.kernel, size.stride, size.dilation, size.padding
    right, reach = _reads(size), d * (k - 1)
    whole = "a halo of the whole kernel, {} rows on each side: how far does a window reach beyond "
    whole += "its output row?"
    return [
        (lambda lo, hi: (lo * s - k, hi * s + k), whole.format(k)),
        (lambda lo, hi: (lo * s - d * k, hi * s + d * k), whole.format(d * k)),
        (lambda lo, hi: (lo * s - p, hi * s - p + reach), SYMMETRIC.format(number(p, "row"))),
        (lambda lo, hi: (lo * s - p, hi * s + p), SYMMETRIC.format(number(p, "row"))),
        (lambda lo, hi: (lo - p, hi - p + reach), "the stride is in no number: from one output row "
         "to the next a window moves by so many rows."),
        (lambda lo, hi: (lo * s - p, (hi - 1) * s - p + k), "the dilation is in no number: so many "
         "rows lie between two rows that a window reads."),
        (lambda lo, hi: (right(lo, hi)[0], right(lo, hi)[1] - 1), "this is the last row that is "
         "read: end is the one behind it."),
        (lambda lo, hi: (max(right(lo, hi)[0], 0), right(lo, hi)[1]), "rows outside of the image "
         "count too, with negative numbers above it: there will be zeros."),
        (lambda lo, hi: (lo * s - reach // 2, (hi - 1) * s + reach - reach // 2 + 1), "the window "
         f"of output row 0 begins at row {-p}, by the padding, wherever the kernel's middle is."),
        (lambda lo, hi: (lo * s, (hi - 1) * s + reach + 1), "the padding is in no number: with it "
         "the window of output row 0 begins above the image."),
    ]  # fmt: skip


# -- rows that travel ------------------------------------------------------------------------------


def standing(found: torch.Tensor | None, image: torch.Tensor) -> list[int | str]:
    """Which row of the image stands in each place of a tensor (N, C, rows, W), or what else."""

    def one(row: torch.Tensor) -> int | str:
        same = [i for i, each in enumerate(image.unbind(2)) if torch.equal(each, row)]
        if same:
            return same[0]
        return OUTSIDE if not row.any() else UNREAD if row.isnan().any() else MIXED

    return [] if found is None else [one(row) for row in found.unbind(2)]


def of_ranks(ranks: Sequence[int]) -> str:
    return f"rank{'s' * (len(ranks) > 1)} {listed([*map(str, ranks)])}"


def _are(rows: Sequence[int]) -> str:
    return f"row{'s' * (len(rows) > 1)} {listed([*map(str, rows)])} {'are' if rows[1:] else 'is'}"


def why_rows(tried: ExchangeRun, rank: int, stands: Mapping[int, Sequence[int | str]]) -> str:
    """A hint for rows that a rank has in place of those it needs; `stands` of all ranks."""
    size, stand, (first, _) = tried.size, stands[rank], tried.size.need[rank]
    if UNREAD in stand:
        return NAN
    both = [*zip(stand, wanted(size, rank), strict=True)]
    shifts = {a - b for a, b in both if isinstance(a, int) and isinstance(b, int)}
    if len(shifts) == 1 and 0 not in shifts:
        return (
            f"every row is {-shifts.pop():+d} places from where it belongs. Place 0 is row {first} "
            "here: at which place is row a?"
        )
    lost = {
        r: [b for a, b in zip(found, wanted(size, r), strict=True) if a == OUTSIDE != b]
        for r, found in stands.items()
    }
    if lost[rank]:
        return why_lost(size, rank, lost)
    if any(b == OUTSIDE != a for a, b in both):
        return "rows outside of the image are zeros: which rank have you asked for them?"
    if MIXED in stand:
        return "some rows are no row of the image: are rows added, or cut along the wrong dim?"
    return (
        "the right places have other rows of the image. Of which block does the sender take them, "
        "and from where does it count?"
    )


def wanted(size: Strips, rank: int) -> list[int | str]:
    return [q if 0 <= q < size.rows else OUTSIDE for q in range(*size.need[rank])]


def why_lost(size: Strips, rank: int, lost: Mapping[int, Sequence[Any]]) -> str:
    """A hint for rows that a rank needs and has as zeros; `lost` of all ranks."""
    own, mine = size.own, lost[rank]
    owners = [r for r in range(size.ranks) if any(q in range(*own[r]) for q in mine)]
    if rank in owners:
        return f"{_are(mine)} zeros there, and this rank has them: its own rows belong there too."
    if all(abs(r - rank) > 1 for r in owners):
        return FURTHER.format(f"{_are(mine)} on", of_ranks(owners))
    sides = {q < own[r][0] for r, rows in lost.items() for q in rows}
    if len(sides) == 1:  # is anything there of what comes from the other side?
        above = sides.pop()
        for r, need in enumerate(size.need):
            beyond = (own[r][1], size.rows) if above else (0, own[r][0])
            if r in lost and common(need, beyond):
                return ONE_SIDE.format("above" if above else "below")
    return BORDERS.format(_are(mine), of_ranks(owners))


def returns(size: Strips, rank: int, every: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The parts of a rank's dx: from each rank's gradient of the rows that it needs."""
    return [returned(g, size.need[r], size.own[rank]) for r, g in enumerate(every)]


def why_back(size: Strips, rank: int, seen: torch.Tensor, parts: Sequence[torch.Tensor]) -> str:
    """A hint for a dx, of the right shape, that is not the sum of its parts."""
    if seen.isnan().any():
        return NAN
    others = [r for r in range(size.ranks) if r != rank and parts[r].any()]
    own = parts[rank].clone()
    for r in others:
        own[:, :, parts[r].abs().sum((0, 1, 3)) > 0] = 0  # what another rank reads as well
    count = times(seen, [own, parts[rank] - own, *(parts[r] for r in others)])
    if count is None:
        return (
            "this is no sum of what the ranks' gradients say of these rows. At which place of g is "
            "row a, and at which place of dx?"
        )
    alone, both, back = count[0], count[1], dict(zip(others, count[2:], strict=True))
    if alone == 1 and both == 0 and any(back.values()):
        return REPLACES
    if lost := [r for r, n in back.items() if n == 0]:
        return CROSSES.format(of_ranks(lost))
    if alone == both == 1:
        odd = {r: n for r, n in back.items() if n != 1}
        return TWICE.format(of_ranks([*odd]), f"{next(iter(odd.values())):g} times")
    if alone == 1:
        return (
            f"where another rank has read a row, this rank's own part is in the sum {both:g} "
            "times. A gradient is the sum over all that have read the row, each once."
        )
    return f"this rank's own part of the gradient is in the sum {alone:g} times: once is due."


# -- a layer ---------------------------------------------------------------------------------------


def why_outputs(tried: LayerRun, step: int, rank: int) -> str:
    """A hint for wrong rows of y."""
    size, seen = tried.size, tried.each(step)[rank].y
    need, (lo, hi) = size.need[rank], size.out[rank]
    assert seen is not None
    if size.stride > 1:  # the symmetric halo of its own rows, or of the rows of its windows
        for first, end in (size.own[rank], (lo * size.stride, hi * size.stride)):
            if _same_rows(tried, step, (first - size.padding, end + size.padding), seen):
                return SYMMETRIC.format(number(size.padding, "row"))
    if seen.isnan().any():
        return NAN
    absent = {r: found for r in range(size.ranks) if (found := _absent(tried, step, r))}
    if rank not in absent:
        for by in range(-size.geometry.span, size.geometry.span + 1):
            if _same_rows(tried, step, (need[0] + by, need[1] + by), seen):
                return f"the windows begin {by:+d} rows from where they should: which row is first?"
        return (
            "this is no sum of rows of the image: which rows does the convolution get, and where?"
        )
    lost, old = absent[rank]
    if old:
        return (
            f"the rows of {of_ranks(old)} are those of the step before. Each forward needs those "
            "of its own x: when are they sent, and when is the convolution computed?"
        )
    if lost:
        return why_lost(size, rank, {r: rows for r, (rows, _) in absent.items()})
    return "all rows are there, but not once each: which are added in place of copied?"


def _absent(tried: LayerRun, step: int, rank: int) -> tuple[list[int], list[int]] | None:
    """The rows that a rank's y lacks, and the ranks whose rows in it are those of the step before;
    None if y is no sum of rows."""
    size, need, seen = tried.size, tried.size.need[rank], tried.each(step)[rank].y
    ranks = [r for r in range(size.ranks) if common(size.own[r], need)]
    parts = [window(tried.image(step), need, size.own[r]) for r in ranks]
    if step:
        parts += [window(tried.image(step - 1), need, size.own[r]) for r in ranks if r != rank]
    made = [tried.conv.forward(part, tried.weight) for part in parts]
    count = None if seen is None else times(seen, made)
    if count is None:
        return None
    lost = [r for r, n in zip(ranks, count, strict=False) if n == 0]
    others = [r for r in ranks if r != rank] if step else []
    old = [r for r, n in zip(others, count[len(ranks) :], strict=True) if n and r in lost]
    return [q for r in lost for q in common(size.own[r], need)], old


def _same_rows(tried: LayerRun, step: int, need: Pair, seen: torch.Tensor) -> bool:
    """Whether y is the beginning of what the convolution makes of these rows."""
    if need[1] - need[0] < tried.size.geometry.span:
        return False
    made = tried.conv.forward(window(tried.image(step), need), tried.weight)
    return near(seen, made[:, :, : seen.shape[2]])


def why_dw(tried: LayerRun, step: int, rank: int, seen: torch.Tensor) -> str:
    """A hint for a wrong dw, of the right shape."""
    size, steps, conv = tried.size, tried.each(step), tried.conv
    if seen.isnan().any():
        return NAN
    count = times(seen, [back_of(tried, step, r)[1] for r in range(size.ranks)])
    if count is not None:
        return _why_counted(count, rank)
    alone = [
        conv.backward(window(tried.image(step), size.need[r], size.own[r]), tried.weight, own.dy)[1]
        for r, own in enumerate(steps)
    ]
    if times(seen, alone) is not None:
        return (
            "dw is that of each rank's own rows: the windows at the cuts read rows of others too."
        )
    return (
        "this is no sum of the ranks' dw. Is x, of which backward makes dw, the one that forward "
        "used, with the rows of other ranks?"
    )


def back_of(tried: LayerRun, step: int, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The gradients of the rows that a rank needs, and of the weight, from its own dy."""
    x = window(tried.image(step), tried.size.need[rank])
    return tried.conv.backward(x, tried.weight, tried.each(step)[rank].dy)


def _why_counted(count: Sequence[float], rank: int) -> str:
    if all(n == (r == rank) for r, n in enumerate(count)):
        return "dw is this rank's own part. All ranks use one weight: what do they have to add?"
    if len({*count}) == 1:
        n, ranks = count[0], len(count)
        if n == round(1 / ranks, 6):
            return (
                f"dw is the sum over the {ranks} ranks, divided by {ranks}. Nobody has averaged "
                "the windows: each belongs to one rank, and a gradient is the sum over all uses."
            )
        return f"dw is {n:g} times the sum over the ranks."
    parts = [f"{n:g} times that of rank {r}" for r, n in enumerate(count)]
    return f"dw has {listed(parts)}: each is due once."


# -- bytes -----------------------------------------------------------------------------------------


def in_rows(count: float) -> str:
    return f"{count:.3g} row{'s' * (count != 1)}"


def why_sent(tried: ExchangeRun, rank: int) -> str:
    """A hint for too many rows or too few, by what a rank could have sent."""
    size, own, sent = tried.size, tried.size.own, tried.sent[rank]
    mine, due = own[rank][1] - own[rank][0], size.rows_sent(tried.back)[rank]
    if tried.collectives:
        return EVERYWHERE.format(tried.collectives[0])
    if sent == 0:
        return "nothing is sent: which rank has the rows that others need?"
    if tried.back:
        mine = size.need[rank][1] - size.need[rank][0]
    if sent > due and sent == mine * (size.ranks - 1):
        return (
            f"all its {mine} rows go to every other rank. Which of them are needed there, and "
            "which belong there?"
        )
    extra = in_rows(abs(sent - due))
    if sent > due:
        return (
            f"{extra} too many. Only rows that one rank has and another one needs "
            "travel: how many are in that overlap?"
        )
    return f"{extra} too few: which rank gets nothing of what belongs to it?"


def why_step_sent(tried: LayerRun, rank: int) -> str:
    extra = tried.sent[rank] - tried.due(rank)
    if tried.collectives:
        return EVERYWHERE.format(tried.collectives[0])
    if abs(extra + tried.ring) < ROW / 4:
        return "the halos are there, and dw is summed by nobody: which collective adds tensors?"
    rows = in_rows(abs(extra) / ROW)
    if extra > 0:
        return (
            f"{rows} of x too many. In forward and in backward the same rows cross each cut, "
            "once, and dw is all-reduced."
        )
    return f"{rows} of x too few: rows cross each cut in forward, and their gradients in backward."
