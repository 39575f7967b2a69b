"""Hints for a student's training step on a mesh: likely causes of what a check saw.

The parts of a wrong gradient are solved for: how much it contains of each replica's, stage's and
tp rank's. A known mistake is named if it explains the gradients of all ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from math import prod

import torch

from dlviz.grading.assignments.mesh_3d.model import blocks_of, cut, gradients, part_of
from dlviz.grading.assignments.mesh_3d.run import NUMBER, Key, Meshed, MeshSize
from dlviz.grading.assignments.mesh_3d.variations import VARIATIONS, taken, varied
from dlviz.grading.harness.feedback import listed, number
from dlviz.grading.harness.solved import solved

Groups = Sequence[dict[str, list[int]]]  # of all ranks
GROUP = "a rank's group on an axis has the ranks whose numbers on the other axes are the same."


def why_group(size: MeshSize, got: Groups, rank: int, axis: str) -> str:
    """Why a rank has a wrong group: a mistake that explains all ranks' groups, or else what is
    wrong with this one."""
    for known, hint in _known_groups(size):
        if all(
            tuple(own[each]) == known(r, each) for r, own in enumerate(got) for each in size.axes
        ):
            return hint
    seen, wanted = got[rank][axis], size.group(rank, axis)
    if sorted(seen) == sorted(wanted):
        return "list the ranks in the order of their numbers on the axis."
    if rank not in seen:
        return "a rank is a member of its own group: which number does it have on this axis?"
    if len(seen) != len(wanted):
        return f"a group has as many ranks as its axis is long: {axis} has {len(wanted)}."
    apart, behind = seen[1] - seen[0], [*size.axes][[*size.axes].index(axis) + 1 :]
    if apart == wanted[1] - wanted[0]:
        return (
            "the distance is right, the first rank is not: where does the group of this rank "
            "begin? Its number on this axis, times the distance, lies between the two."
        )
    return (
        f"neighbours on {axis} are {abs(apart)} apart here. They are as far apart as the axes "
        f"behind {axis} have places: {' times '.join(behind) or 'there is none, so 1'}."
    )


def _known_groups(size: MeshSize) -> list[tuple[Callable[[int, str], tuple[int, ...]], str]]:
    """The groups that known mistakes give, each with a hint."""
    fixed = MeshSize(size.dp, size.pp, size.tp)
    turned = MeshSize(size.dp, size.pp, size.tp, " ".join(reversed(size.order.split())))

    def apart(axis: str) -> int:
        behind = [*size.axes][[*size.axes].index(axis) + 1 :]
        return prod(size.axes[each] for each in behind)

    def from_itself(rank: int, axis: str) -> tuple[int, ...]:
        return tuple(rank + i * apart(axis) for i in range(size.axes[axis]))

    def across(rank: int, axis: str) -> tuple[int, ...]:
        own = size.place(rank)[axis]
        return tuple(r for r in range(size.ranks) if size.place(r)[axis] == own)

    return [
        (
            fixed.group,
            f"that is the group where the axes come as dp, pp, tp. Here they come as "
            f"{', '.join(size.axes)}, in the order of sizes.",
        ),
        (
            turned.group,
            "that is the group where the first axis varies fastest. On comm.mesh the last one "
            "does: of which axis is rank 1 the neighbour of rank 0?",
        ),
        (
            lambda rank, axis: tuple(range(size.axes[axis])),
            "these are the places on the axis, and the same for all ranks. Which rank has each "
            "place, if the numbers on the other axes stay those of this rank?",
        ),
        (
            from_itself,
            "every group begins with the rank itself. The distance is right, the first rank is "
            "not: how far is it back to place 0?",
        ),
        (
            lambda rank, axis: tuple(i * apart(axis) for i in range(size.axes[axis])),
            "these are the groups of rank 0, for every rank: where does this rank's group begin?",
        ),
        (lambda rank, axis: (rank,), "that is the rank alone: who differs from it on the axis?"),
        (
            lambda rank, axis: tuple(r for r in size.group(rank, axis) if r != rank),
            "a rank is a member of its own group, and here it is left out.",
        ),
        (
            across,
            "these ranks have the same number on the axis. A group has the ranks that differ on "
            "it, and on no other.",
        ),
        *(
            (
                lambda rank, axis, to=to: size.group(rank, to[axis]),
                f"the groups of {a} and {b} have changed places: which length is whose?",
            )
            for a, b in (("dp", "pp"), ("dp", "tp"), ("pp", "tp"))
            for to in [{**{each: each for each in size.axes}, a: b, b: a}]
        ),
    ]


def why_across(size: MeshSize, ranks: Sequence[int]) -> str:
    """Why a sum goes along more than one axis."""
    return (
        f"these ranks differ on {listed(size.apart(ranks))}. Each sum is one of shares or of "
        "copies of the same thing: which ranks hold those of this tensor, and which axis do they "
        "lie on?"
    )


def why_sum(tried: Meshed, key: Key, more: bool) -> str:
    """Why the bytes along an axis are not those of its sums."""
    if variation := varied(tried):
        return variation.why
    axis, size, widths = key[0], tried.size, tried.widths
    off = abs(tried.summed.get(key, 0.0) - tried.wanted(key)) / (2 * (len(key[1]) - 1) * NUMBER)
    embedding = widths.vocabulary * widths.hidden
    if axis == "tp" and more:
        if off == embedding:
            return (
                "the surplus is the size of the embedding: its gradient is whole on each rank of "
                "tp already, since f has added the blocks' gradients."
            )
        return (
            "tp adds the shares of a block in forward, and the gradients of its x in backward. The "
            "gradients of weights stay on each rank: they are parts of different weights."
        )
    if axis == "tp":
        return (
            "g adds the shares of y in forward, f the gradients of x in backward: are both called "
            "for each block?"
        )
    if axis == "dp" and more:
        if off == tried.wanted(key) / (2 * (len(key[1]) - 1) * NUMBER):
            return "twice as many as it should be: every gradient is averaged twice."
        return "each gradient is averaged once in a step. What else goes along dp?"
    if axis == "dp" and not tried.summed.get(key):
        return (
            "nothing goes along dp, on which every parameter of a rank has copies that have seen "
            "other rows. Over which axis are the gradients averaged?"
        )
    if axis == "dp":
        if off == embedding:
            return "the embedding is not averaged over the replicas: it has a copy in each of them."
        return (
            "every parameter of a rank has a copy in each replica, which has seen other rows. "
            "Which gradients are averaged over them, and which are not?"
        )
    if more:
        return (
            "only what both stages have is added over pp. The stages' blocks are different layers."
            if size.pp > 1
            else "there is one stage: nothing has to be sent."
        )
    return (
        "the first stage looks up tokens in the embedding, the last one multiplies by it: each has "
        "a share of one gradient. Where are the shares added?"
    )


def why_gradient(tried: Meshed, step: int, rank: int, wrong: Sequence[str]) -> tuple[str, str]:
    """What the first wrong gradient of a rank's part is instead, and a hint."""
    name = min(wrong, key=lambda name: name == "embedding")
    seen = tried.left[rank].gradients[step].get(name)
    if seen is None:
        return "None", (
            "backward never reached it: is .backward called on the loss of the last stage, and on "
            "y of the others with the gradient that arrives?"
        )
    if not seen.any():
        return "0", "which line leaves the gradient empty?"
    if step:
        before = tried.left[rank].gradients[step - 1][name]
        if before is not None and (said := _said_of_steps(tried, step, rank, name, seen, before)):
            return said
        return "not that of this step", (
            "the step before was right. What remains of it: a tensor made outside, a gradient that "
            "was never reset, old weights?"
        )
    if variation := varied(tried):
        return "of another network", variation.why
    parts = parts_of(tried, rank, name)
    if parts is not None:
        return _said(tried, rank, name, parts, alone={*wrong} == {"embedding"})
    for key, sent, wanted in tried.odd_sums():
        return "something else", why_sum(tried, key, sent > wanted)
    if any(count != 1 for count in tried.handed_on.values()) or _astray(tried):
        return "something else", (
            "activations or their gradient go to a rank that is not the neighbour on pp: fix that "
            "first."
        )
    return "something else", (
        "follow the step back from the loss: what a stage gets from the next one, what f adds over "
        "tp, each stage's share of the embedding's gradient, what the replicas average. Rehearse a "
        "mesh with one long axis to see which of them it is."
    )


def _said_of_steps(
    tried: Meshed, step: int, rank: int, name: str, seen: torch.Tensor, before: torch.Tensor
) -> tuple[str, str] | None:
    """A gradient that mixes this step's and the one `before`, and a hint."""
    size, at = tried.size, tried.size.place(rank)
    whole = tried.reference[step].gradients
    own = part_of(whole, size.pp, at["pp"], size.tp, at["tp"])[name]
    found = solved(seen.flatten(), [own.flatten(), before.double().flatten()])
    if found is None or not found[1]:
        return None
    if not found[0]:
        return "that of the step before", (
            "where is it stored, and where does this step's go instead?"
        )
    return f"{found[0]:.3g} of this step's and {found[1]:.3g} of that of the step before", (
        "the step before was right, and its gradient is in this one's. p.grad is empty when "
        "train_step is called: where do you store a gradient from one step to the next?"
    )


def _astray(tried: Meshed) -> bool:
    return any(dst not in tried.size.group(src, "pp") for src, dst in tried.handed_on)


def parts_of(tried: Meshed, rank: int, name: str) -> torch.Tensor | None:
    """How much of each replica's gradient (of the mean loss of its own rows) is in a rank's, (D,
    P, T): for a block's weight, P and T are the stage and tp rank of the weight at the same
    place; for the embedding, (D, P, 1), P is the stage. None if it is no such sum."""
    size, seen = tried.size, tried.left[rank].gradients[0].get(name)
    if seen is None:
        return None
    basis, shape = [], (size.dp, size.pp, 1 if name == "embedding" else size.tp)
    for d in range(size.dp):
        tokens, targets = (each[d] for each in tried.given.batches[0])
        _, whole, ends = gradients(tried.given.weights, tokens, targets)
        if name == "embedding":
            basis += [ends["first"], ends["last"]] if size.pp > 1 else [whole[name]]
        else:
            basis += [cut(each, whole, size.tp, t) for each in _at_stages(size, rank, name)
                      for t in range(size.tp)]  # fmt: skip
    table = torch.stack([each.flatten() for each in basis], 1)  # (numbers, parts)
    if len(table) <= table.shape[1] or seen.numel() != len(table):
        return None
    held = seen.double().flatten()
    found = torch.linalg.lstsq(table, held, driver="gelsd").solution
    if not torch.allclose(table @ found, held, rtol=1e-5, atol=1e-6 * float(held.abs().max())):
        return None
    return found.view(shape)


def _at_stages(size: MeshSize, rank: int, name: str) -> list[str]:
    """The weights at the same place on each stage."""
    block, kind = name.split(".")
    turn = int(block) - blocks_of(size.pp, size.place(rank)["pp"])[0]
    return [f"{blocks_of(size.pp, p)[turn]}.{kind}" for p in range(size.pp)]


def _said(tried: Meshed, rank: int, name: str, parts: torch.Tensor, alone: bool) -> tuple[str, str]:
    """What a gradient of these parts is, and a hint. `alone`: only the embedding's gradient is
    wrong."""
    size, at = tried.size, tried.size.place(rank)
    if name == "embedding":
        own = parts[:, at["pp"]].sum(-1)
        if size.pp > 1 and not _near(parts[:, 0], parts[:, 1]):
            return _said_of_ends(tried, at, parts[..., 0], own)
        right, rest = parts[:, 0, 0], None
    else:
        right = parts[:, at["pp"], at["tp"]]
        rest = parts.clone()
        rest[:, at["pp"], at["tp"]] = 0
    if rest is not None and rest.abs().max() > 1e-6:
        return _said_of_others(tried, at, parts)
    if _near(right, right[:1]):
        return _said_of_factor(tried, float(right[0]) * size.dp, alone)
    times = _fraction(float(right[at["dp"]]))
    if _near(right * (torch.arange(size.dp) != at["dp"]), torch.zeros(1)):
        what = f"that of replica {at['dp']} alone"
        if times == 1:
            return what, (
                "each replica has seen its own rows. Over which axis are the gradients averaged?"
            )
        return f"{_times(times)} {what}", (
            "it is divided, but nothing of the other replicas is in it. all_reduce puts the sum "
            "into its tensor: is that p.grad itself?"
            if times == Fraction(1, size.dp)
            else "nothing of the other replicas is in it, and something multiplies or divides it."
        )
    summary = listed([f"{float(each):.3g}" for each in right])
    return f"{summary} of those of replicas 0 to {size.dp - 1}", _why_unequal(right, at["dp"])


def _why_unequal(parts: torch.Tensor, own: int) -> str:
    """Why replicas count differently in a gradient of a rank of replica `own`."""
    if missing := [str(d) for d, each in enumerate(parts) if abs(each) < 1e-6]:
        return (
            f"nothing of replica {listed(missing)} is in it: from which replicas does a rank "
            "receive?"
        )
    others = parts[torch.arange(len(parts)) != own]
    if _near(others, others[:1]):
        times = _times(_fraction(float(parts[own] / others[0])))
        return (
            f"a rank's own replica, here {own}, counts {times} what each other one does. The "
            "result of all_reduce has each of them once: what changes it besides the division?"
        )
    return "each replica counts the same in the mean. By what is each share multiplied?"


def _said_of_ends(
    tried: Meshed, at: dict[str, int], parts: torch.Tensor, own: torch.Tensor
) -> tuple[str, str]:
    """A hint for the embedding's gradient if the two stages' shares count differently: (D, P)."""
    stage = ("first", "last")[at["pp"]]
    if parts[:, 1 - at["pp"]].abs().max() > 1e-6:
        ends = listed([f"{float(each):.3g}" for each in parts.sum(0)])
        return f"{ends} of the shares of the first and the last stage", (
            "the gradient of E is the sum of both shares, each once."
        )
    if _near(own, own[:1]):
        return f"the share of the {stage} stage", (
            "the first stage looks up tokens in the embedding, the last one multiplies by it. "
            "Both have the same weight, so its gradient is the sum of both shares."
        )
    return f"the share of the {stage} stage, of replica {at['dp']} alone", (
        "two sums are missing: that of the stages that share the embedding, and the mean of the "
        "replicas."
    )


def _said_of_others(tried: Meshed, at: dict[str, int], parts: torch.Tensor) -> tuple[str, str]:
    """A hint for a gradient that contains parts of other weights."""
    size = tried.size
    stages = size.pp > 1 and bool(parts[:, 1 - at["pp"]].abs().max() > 1e-6)
    others = torch.arange(size.tp) != at["tp"]
    columns = bool(parts[:, :, others].numel() and parts[:, :, others].abs().max() > 1e-6)
    mean = abs(float(parts[:, at["pp"], at["tp"]].sum()) * (size.pp if stages else 1)
               * (size.tp if columns else 1) - 1) < 1e-6  # fmt: skip
    what = "mean" if mean else "sum"
    if stages and columns:
        return f"the {what} over all ranks", (
            f"the {what} over all ranks mixes up gradients of different weights. Which ranks have "
            "copies of this one?"
        )
    if columns:
        return f"the {what} over tp too", (
            "the ranks of tp hold different columns, not copies: which axis has copies?"
        )
    return f"the {what} over the stages", (
        "the stages have different blocks: which of their weights share a gradient?"
    )


def _said_of_factor(tried: Meshed, times: float, alone: bool) -> tuple[str, str]:
    """A hint for a gradient that is wrong by a factor."""
    size, widths = tried.size, tried.widths
    k, n = _fraction(times), size.dp
    if k == 1:
        return "right to some digits", "all numbers are float64: which line makes float32 of them?"
    what = f"{_times(k)} what it should be"
    if alone and size.pp > 1 and k == Fraction(1, size.pp):
        return "half of what it should be", (
            "the stages' shares of the embedding's gradient are added, not averaged."
        )
    if alone and k in (size.tp, size.pp):
        return what, (
            "only the embedding is too large. Its two shares are added once, over pp, and on the "
            "ranks of tp it is whole already: is it added anywhere else?"
        )
    return what, next(
        (hint for value, hint in _factors(size, widths.rows, widths.tokens) if k == value),
        f"each gradient is wrong by a factor of {k}. The loss is the mean over the "
        f"{number(n * widths.rows * widths.tokens, 'token')} of all replicas: what multiplies or "
        "divides it, or its gradients?",
    )


def _factors(size: MeshSize, rows: int, tokens: int) -> list[tuple[Fraction, str]]:
    """The likely causes of a factor."""
    twice = (
        "something is divided twice: the loss by the tokens of a replica, or of all of them? After "
        "that, do the gradients still need their mean over dp, or their sum?"
    )
    return [
        (
            Fraction(size.dp),
            "the loss is a mean over the rows of all replicas: their gradients are averaged, not "
            "added up.",
        ),
        (Fraction(1, size.dp), twice),
        (
            Fraction(size.dp, size.ranks),
            f"the sum over dp is divided by all {number(size.ranks, 'rank')}. How many of them are "
            "in the sum?",
        ),
        (Fraction(rows * tokens), "part.loss gives a sum over tokens: what turns it into a mean?"),
        (
            Fraction(tokens),
            f"the loss is divided by the {number(rows, 'row')} of a replica. A row has "
            f"{number(tokens, 'token')}, and the mean is one over tokens.",
        ),
        (
            Fraction(rows),
            f"the loss is divided by the {number(tokens, 'token')} of a row. A replica has "
            f"{number(rows, 'row')} of them.",
        ),
    ]


def why_loss(tried: Meshed, rank: int, seen: float) -> str:
    """Why a rank returns a wrong loss."""
    size, wanted = tried.size, tried.reference[0].loss
    tokens, targets = (each[size.place(rank)["dp"]] for each in tried.given.batches[0])
    own, all_tokens = gradients(tried.given.weights, tokens, targets)[0], tokens.numel() * size.dp
    if seen == 0:
        return "only the last stage has the loss. How do the others get it?"
    if abs(seen - wanted) < 1e-5 * abs(wanted):
        return "some digits are lost: which line makes float32 of a float64?"
    if size.dp > 1 and abs(seen - own) < 1e-9:
        return "each replica has the loss of its own rows. Over which axis are they averaged?"
    for variation in VARIATIONS:
        losses = taken(tried, variation)[0]
        if abs(seen - float(losses[0, size.place(rank)["tp"]])) < 1e-9 and seen != wanted:
            return f"the network computes something else: {variation.why}"
    for value, what in ((wanted, f"the mean over all {number(all_tokens, 'token')}"), (own, "own")):
        k = _fraction(seen / value)
        if abs(seen - float(k) * value) < 1e-9 * abs(value):
            if what == "own":
                what = f"the mean over the tokens of replica {size.place(rank)['dp']}"
            return (
                f"that is {_times(k)} {what}: by what is it divided, and over which axes is it "
                "added or averaged?"
            )
    if _astray(tried):
        return "the last stage gets activations of other rows than its targets: fix that first."
    return "follow the loss from part.loss to the return: what is added to it, what divides it?"


def _near(one: torch.Tensor, other: torch.Tensor) -> bool:
    return torch.allclose(one.double(), other.double().expand_as(one), rtol=1e-6, atol=1e-9)


def _fraction(number: float) -> Fraction:
    return Fraction(number).limit_denominator(1000)


def _times(k: Fraction) -> str:
    """ "3 times", "1/4 of"."""
    return f"{k} times" if k.denominator == 1 else f"{k} of"
