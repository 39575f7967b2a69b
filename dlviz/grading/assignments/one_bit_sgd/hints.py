"""Hints for a student's 1-bit SGD: what known mistakes would have left, compared with what was
seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from dlviz.grading.assignments.one_bit_sgd.model import (
    ORDERS,
    WRONG,
    ResidualRule,
    TwoEnds,
    Values,
    code_bytes,
    decoded,
    looked_up,
    means_of,
    rendered,
)
from dlviz.grading.assignments.one_bit_sgd.run import PAIR, Attempt, Buckets, Coded, Compensated
from dlviz.grading.harness.feedback import number

FOUND = tuple[str, str]  # what was seen, and a hint


# -- encode ----------------------------------------------------------------------------------------


def wrong_code(left: Coded) -> FOUND | None:
    """What is wrong with a code; None of a right one."""
    if left.code is None:
        return f"encode returned something else than {PAIR}", "what does its last line return?"
    return _wrong_bits(left, left.code[0]) or _wrong_means(left, left.code[1])


def _wrong_bits(left: Coded, bits: np.ndarray) -> FOUND | None:
    n, per, ones = left.size.values, left.size.per, left.values >= 0
    if bits.dtype != np.uint8 or bits.size != -(-n // 8):
        ragged = sum(-(-min(per, n - start) // 8) for start in range(0, n, per))
        hint = {
            n: "each value has a byte of its own: one byte has room for eight bits.",
            n // 8: "the last values fill no whole byte. They need one nevertheless.",
            ragged: "each block begins a new byte: pack the bits of all blocks in one row.",
        }.get(bits.size, "eight values share a byte, and the last byte may have fewer.")
        if bits.dtype != np.uint8:
            hint = "a byte is torch.uint8: which line makes another type?"
        return f"bits hold {bits.size} numbers of {bits.dtype}", hint
    if _packed(bits, ones):
        return None
    hint = "compare the first byte with the signs of the first eight values, bit by bit."
    if _packed(bits, ~ones):
        hint = "the bits are inverted: which values have a 1?"
    if _packed(bits, left.values > 0):
        hint = "a value that is exactly 0 belongs to the upper side here: its bit is 1."
    return "the bits are not those of the values, from neither end of a byte", hint


def _packed(bits: np.ndarray, ones: np.ndarray) -> bool:
    """Whether each byte holds its values, the first in its highest or in its lowest bit."""
    n = len(ones)
    each = (np.unpackbits(bits.reshape(-1), count=n, bitorder=order) for order in ORDERS)
    return any((seen == ones).all() for seen in each)


def _wrong_means(left: Coded, means: np.ndarray) -> FOUND | None:
    values, per = left.values, left.size.per
    right = means_of(values, per)
    if means.dtype != np.float32:
        return f"means of {means.dtype}", "8 bytes a block are two float32 numbers."
    if means.size != right.size:
        hint = {
            2 * (len(values) // per): "the last block, which may be shorter, is dropped: it "
            "needs means, too.",
            len(right): "a block has one mean. Values below 0 need one of their own.",
            2: "all values share two means: each block has its own.",
        }.get(means.size, "how many blocks are there, if the last one may be shorter?")
        return f"{number(means.size, 'mean')} for {number(len(right), 'block')}", hint
    if np.isnan(means).any():
        return (
            "a mean that is NaN",
            "a block may have no value on one side: the mean of nothing is NaN. The mean is 0 "
            "there.",
        )
    if _close(means.reshape(right.shape), right):
        return None
    starts = np.arange(0, len(values), per)
    lengths = np.diff(np.append(starts, len(values)))[:, None]
    sizes = np.add.reduceat(np.abs(values), starts)[:, None] / lengths
    alone = np.add.reduceat(values, starts)[:, None] / lengths
    one = "both signs have one mean: each bit stands for the mean of the values that have that bit."
    hint = _first(
        means.reshape(right.shape),
        [
            (sizes * [-1, 1], one),
            (alone * [1, 1], one),
            (right[:, ::-1], "the two means have changed places: that below 0 is first."),
            (means_of(values, len(values)).repeat(len(right), 0), "each block has its own means."),
        ],
    )
    return "means that are not those of the blocks' two sides", hint or (
        "for the first block, add up its values below 0 and divide by their number. Which values "
        "does your line take?"
    )


# -- decode ----------------------------------------------------------------------------------------


def why_decoded(left: Coded) -> str:
    """A hint for values that are not those of the code."""
    values, per, seen = left.values, left.size.per, left.decoded
    n, ones, means = len(values), values >= 0, means_of(values, per)
    if seen is None:
        return "what does its last line return?"
    if seen.shape != (n,):
        return {
            n // 8 * 8: "the last values fill no whole byte, and are dropped.",
            n // per * per: "the last block, which may be shorter, is dropped.",
            -(-n // 8) * 8: "the last byte has bits that belong to no value: n says how many do.",
        }.get(seen.size, f"return one row of {number(n, 'value')}.")
    big, little = ORDERS
    turned = np.unpackbits(np.packbits(ones, bitorder=big), bitorder=little)[:n]
    hint = _first(
        seen,
        [
            (looked_up(turned, means, per), "encode and decode begin at different ends of a byte."),
            (looked_up(~ones, means, per), "the two means are mixed up: which one has the bit 1?"),
            (looked_up(ones, means, n), "all values get the means of block 0."),
            (np.where(np.arange(n) < n // per * per, decoded(values, per), 0.0), "the last block, "
             "which may be shorter, is left at 0."),
        ],
    )  # fmt: skip
    return hint or "for value i: which byte, which bit in it, and which block?"


# -- feedback --------------------------------------------------------------------------------------


def chain(left: Compensated, rule: ResidualRule) -> list[tuple[Values, Values]]:
    """What is decoded, and the residual, in each step by a rule."""
    e, found = np.zeros(left.size.values), []
    for g in left.gradients:
        v = rule.v(g, e)
        d = decoded(v, left.size.per)
        e = rule.after(g, e, v, d)
        found.append((d, e))
    return found


def follows(left: Compensated, rule: ResidualRule) -> int:
    """The first step that differs from the rule, -1 if there is none."""
    seen = zip(left.decoded, left.residuals, strict=True)
    pairs = [
        own is not None and _close(own, d) and _close(residual, e)
        for (own, residual), (d, e) in zip(seen, chain(left, rule), strict=True)
    ]
    return pairs.index(False) if False in pairs else -1


def why_compensated(left: Compensated) -> str:
    general = "for one value write down gradient, residual, v, and what the code holds of v."
    return next((rule.hint for rule in WRONG if follows(left, rule) < 0), general)


# -- the exchange ----------------------------------------------------------------------------------

OWN_CODE = (
    "a rank's residual is what its own code lost. Here it is v minus what all ranks together "
    "decoded, which is mostly the others' gradients."
)
SHARED = (
    "the buckets share a residual: what bucket 0 lost is added to bucket 1. Each bucket has "
    "residuals of its own."
)
MISTAKES = [
    *((TwoEnds(rule, rule), rule.hint) for rule in (WRONG[0], *WRONG[2:])),
    (
        TwoEnds(sent=WRONG[0]),
        "no residual of the ranks' own codes stays from step to step: their loss is never sent.",
    ),
    (
        TwoEnds(owned=WRONG[0]),
        "the owner codes the mean, and what that second code loses is lost for ever: which "
        "residual belongs to it?",
    ),
    *((TwoEnds(against=what), OWN_CODE) for what in ("sum", "mean")),
    (
        TwoEnds(against="averaged"),
        "each rank's residual is the average of all ranks' residuals. It is what the rank's own "
        "code lost, and never leaves its rank.",
    ),
    *((TwoEnds(shared=end), SHARED) for end in ("both", "sent", "owned")),
    (TwoEnds(coded=False), "the mean comes back uncoded: its owner codes it, too."),
    (
        TwoEnds(power=2),
        "the mean is divided by the number of ranks twice: who divides, the senders, the owner or "
        "those who receive the result?",
    ),
    (TwoEnds(power=0), "this is the sum over the ranks: who divides it by their number?"),
]


def why_averaged(tried: Attempt) -> str:
    """The mistake that would have left these numbers; mistakes at both ends come first."""
    equal = len({*tried.size.lengths}) == 1
    given, per = tried.given, tried.size.per
    for how, hint in MISTAKES:
        if (equal or not how.shared) and tried.leaves(rendered(given, per, how)):
            return hint
    if all(
        np.array_equal(before, after)
        for own in tried.left
        for ahead, behind in zip(own.given, own.results, strict=True)
        for before, after in zip(ahead, behind, strict=True)
    ):
        return (
            "the gradients are as they were. Write the result into the cells of `gradient`; an "
            "assignment gives its name to another tensor."
        )
    if any(np.isnan(each).any() for own in tried.left for step in own.results for each in step):
        return "a tensor was read before its message had arrived. Which call returns when it has?"
    first = replace(tried, left=[replace(own, results=own.results[:1]) for own in tried.left])
    if first.leaves(rendered(given, per)[:1]):
        return (
            "step 0 is right, so the codes meet as they should. What is wrong is what stays "
            "from step to step: which residual belongs to which bucket, end and chunk?"
        )
    return (
        "step 0 is wrong already, where all residuals are 0. Follow one chunk: p codes come to its "
        "owner, its own among them; their mean is coded once more, and every rank decodes that."
    )


def bytes_sent(size: Buckets, rank: int) -> list[int]:
    """In a step: the other chunks' codes, the own chunk's code to all others, both in float64, and
    all codes to all others."""
    others = size.ranks - 1
    found = np.zeros(5, int)
    for n in size.lengths:
        chunks = [len(part) for part in np.array_split(np.zeros(n), size.ranks)]
        codes = [code_bytes(each, size.per) for each in chunks]
        out, dense = sum(codes) - codes[rank], 8 * (n - chunks[rank])
        found += [out, others * codes[rank], dense, 8 * others * chunks[rank], others * sum(codes)]
    return found.tolist()


def why_bytes(size: Buckets, rank: int, sent: int) -> str:
    out, back, dense_out, dense_back, to_all = bytes_sent(size, rank)
    known = {
        0: "nothing was sent: which codes does each owner need?",
        out + dense_back: "the mean comes back in float64: its owner codes it, too.",
        dense_out + back: "the gradients go to the owners in float64: a rank codes them first.",
        dense_out + dense_back: "these are float64 numbers in both directions. What is sent is the "
        "code, not what was decoded.",
        out: "the codes of the means are missing.",
        to_all: "all codes go to all other ranks. Only its owner needs a chunk's codes.",
    }
    more = "something is sent in addition to the codes: a residual stays on its rank."
    fewer = "some codes are missing: which rank still needs one?"
    return known.get(sent, more if sent > out + back else fewer)


def _close(one: np.ndarray, other: np.ndarray) -> bool:
    return one.shape == other.shape and np.allclose(one, other, rtol=0, atol=1e-5)


def _first(seen: np.ndarray, known: Sequence[tuple[np.ndarray, str]]) -> str:
    """The hint of the first that equals what was seen, "" if there is none."""
    return next((hint for values, hint in known if _close(seen, values)), "")
