"""Hints for a training step on a mesh that a student wrote: what may be behind what a check saw."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from dlviz.grading.feedback import number
from dlviz.grading.mesh_model import State, blocks_of, cut, gradients
from dlviz.grading.mesh_run import RATE, Key, Meshed, MeshSize, reference

GROUP = "a rank's group on an axis has the ranks whose numbers on the other axes are the same."
ACROSS = (
    "each sum is one of parts or of copies of the same thing. Which ranks hold those of this "
    "tensor, and which axis do they lie on?"
)


def why_group(size: MeshSize, axis: str, rank: int, seen: tuple[int, ...]) -> str:
    """Why a rank has another group."""
    wanted, axes = size.group(rank, axis), [*size.axes]
    turned = MeshSize(size.dp, size.pp, size.tp, " ".join(reversed(axes)))
    if seen == turned.group(rank, axis):
        return (
            "that is the group where the first axis varies fastest. On comm.mesh the last one "
            "does: of which axis is rank 1 the neighbour of rank 0?"
        )
    if sorted(seen) == sorted(wanted):
        return "the ranks are listed in the order of their numbers on the axis."
    if rank not in seen:
        return "a rank is a member of its own group: which number has it on this axis?"
    if len(seen) != len(wanted):
        return "a group has as many ranks as its axis is long."
    for other in axes:
        if other != axis and seen == size.group(rank, other):
            return f"that is the group on {other}: which length is whose?"
    if len(seen) > 1 and seen[1] - seen[0] == wanted[1] - wanted[0]:
        return (
            "the distance is right, the first rank is not: where does the group of this rank "
            "begin? Its number on this axis, times the distance, lies between the two."
        )
    return (
        f"two neighbours on an axis are as far apart as the axes behind it have places: {axis} "
        f"has {', '.join(axes[axes.index(axis) + 1 :]) or 'none'} behind it. Multiply lengths."
    )


def why_sum(tried: Meshed, key: Key, more: bool) -> str:
    """Why other bytes went along an axis than those of its sums."""
    axis, size = key[0], tried.size
    if axis == "tp" and more:
        return (
            "tp adds the shares of a block in forward, and the gradients of its x in backward. The "
            "gradients of weights are each rank's own there: they are parts of different weights."
        )
    if axis == "tp":
        return (
            "g adds the shares of y forwards, f the gradients of x backwards: are both called for "
            "each block?"
        )
    if axis == "dp" and more:
        return "each gradient is averaged once in a step. What else goes along dp?"
    if axis == "dp":
        return (
            "every parameter of a rank has a copy in each replica, which has seen other rows. "
            "Which gradients are averaged over them, and which are not?"
        )
    if more:
        return (
            "only what both stages have is added over pp. The stages' blocks are different layers."
            if size.pp > 1
            else "there is one stage: nothing is to be sent."
        )
    return (
        "the first stage looks up tokens in the embedding, the last one multiplies by it: each has "
        "a share of one gradient. Where are the shares added?"
    )


def why_gradient(tried: Meshed, step: int, rank: int, name: str) -> tuple[str, str]:
    """What the gradient of a rank's part is instead, and a hint."""
    seen = tried.left[rank].gradients[step].get(name)
    if seen is None:
        return "None", (
            "backward never came to it: is .backward called on the loss of the last stage, and on "
            "y of the others with the gradient that arrives?"
        )
    for what, (value, hint) in known_gradients(tried, step, rank, name).items():
        if same(seen, value):
            return what, hint
    if not seen.any():
        return "0", "which line leaves no gradient there?"
    for key, sent, wanted in tried.odd_sums():
        return "something else", why_sum(tried, key, sent > wanted)
    return "something else", (
        "follow the step back from the loss: what a stage gets from the one behind it, what f adds "
        "over tp, what both stages have of the embedding, what the replicas average. With rehearse "
        "of a mesh of one long axis you see which of them it is."
    )


def known_gradients(
    tried: Meshed, step: int, rank: int, name: str
) -> Mapping[str, tuple[torch.Tensor, str]]:
    """What known mistakes leave on a rank, each with its hint."""
    size, place = tried.size, tried.size.place(rank)
    _, whole, shares = reference(tried)[step]
    own = _of_replica(tried, step, place["dp"])
    right = _part(size, rank, name, whole)
    alone = _part(size, rank, name, own[0])
    known = {
        f"that of replica {place['dp']} alone": (
            alone,
            "each replica has seen its own rows. Over which axis are the gradients averaged?",
        ),
        f"{size.dp} times what it should be": (
            size.dp * right,
            "the loss is a mean over the rows of all replicas: their gradients are averaged, not "
            "added up.",
        ),
        f"1/{size.dp} of what it should be": (
            right / size.dp,
            "something is divided twice: the loss by the tokens of a replica, or of all of them? "
            "After that, do the gradients still need their mean over dp, or their sum?",
        ),
        f"{_tokens(tried)} times what it should be": (
            _tokens(tried) * right,
            "part.loss gives a sum over tokens: what turns it into their mean?",
        ),
        "the mean over all ranks": (
            _over_all(tried, step, rank, name, whole),
            "the mean over all ranks mixes up gradients of different weights. Which ranks have "
            "copies of this one?",
        ),
        "the mean over tp too": (
            _over_tp(size, rank, name, whole),
            "the ranks of tp have parts of different columns, no copies: which axis has copies?",
        ),
    }
    if name != "embedding" and size.pp > 1:
        known["the sum over the stages"] = (
            size.pp * _over_stages(size, rank, name, whole),
            "the stages have different blocks: what of theirs has the same gradient?",
        )
    if name == "embedding" and size.pp > 1:
        stage = "first" if place["pp"] == 0 else "last"
        known = {
            f"the share of the {stage} stage": (
                shares[stage],
                "the first stage looks up tokens in the embedding, the last one multiplies by it. "
                "Both have the same weight, so its gradient is the sum of both shares.",
            ),
            f"the share of the {stage} stage, of replica {place['dp']} alone": (
                own[1][stage],
                "two sums are missing: that of the stages that share the embedding, and the mean "
                "of the replicas.",
            ),
            "half of what it should be": (
                right / 2,
                "the stages' shares of the embedding's gradient are added, not averaged.",
            ),
            **known,
        }
    return known


def _of_replica(tried: Meshed, step: int, replica: int) -> tuple[State, State]:
    """The gradients of one replica's rows, in one process."""
    state = tried.widths.whole(tried.seed)
    for _, found, _ in reference(tried)[:step]:
        state = {name: each - RATE * found[name] for name, each in state.items()}
    tokens, targets = tried.widths.batch(tried.seed, step, tried.size.dp)
    _, found, shares = gradients(state, tokens[replica], targets[replica])
    return found, shares


def _part(size: MeshSize, rank: int, name: str, whole: State) -> torch.Tensor:
    return cut(name, whole, size.tp, size.place(rank)["tp"])


def _over_tp(size: MeshSize, rank: int, name: str, whole: State) -> torch.Tensor:
    return torch.stack([cut(name, whole, size.tp, t) for t in range(size.tp)]).mean(0)


def _over_all(tried: Meshed, step: int, rank: int, name: str, whole: State) -> torch.Tensor:
    """The mean of what lies at the same place in each rank's list of parameters."""
    size, (_, _, shares) = tried.size, reference(tried)[step]
    if name == "embedding":
        if size.pp == 1:
            return whole[name]
        return (shares["first"] + shares["last"]) / 2
    parts = [
        _over_stages(size, size.rank(**{**size.place(rank), "tp": t}), name, whole)
        for t in range(size.tp)
    ]
    return torch.stack(parts).mean(0)


def _over_stages(size: MeshSize, rank: int, name: str, whole: State) -> torch.Tensor:
    """The mean over the stages of what lies at the same place."""
    block, kind = name.split(".")
    turn = int(block) - blocks_of(size.pp, size.place(rank)["pp"])[0]
    names = [f"{blocks_of(size.pp, p)[turn]}.{kind}" for p in range(size.pp)]
    return torch.stack([_part(size, rank, each, whole) for each in names]).mean(0)


def _tokens(tried: Meshed) -> int:
    return tried.widths.rows * tried.widths.tokens


def why_loss(tried: Meshed, seen: float, wanted: float) -> str:
    """Why a rank returns another loss."""
    size, tokens = tried.size, _tokens(tried)
    if seen == 0:
        return "the last stage alone has the loss. How does it come to the others?"
    for times in (size.dp, 1 / size.dp, tokens, tokens * size.dp, 1 / size.pp, size.pp):
        if times != 1 and abs(seen - times * wanted) < 1e-9:
            return (
                f"that is {times:g} times the mean over all {number(tokens * size.dp, 'token')}: "
                "by what is it divided, and over which axes is it added or averaged?"
            )
    if size.dp > 1:
        return "each replica has the loss of its own rows. Which axis brings them together?"
    return "follow the loss from part.loss to the return: what is added to it, what divides it?"


def same(seen: torch.Tensor | None, wanted: torch.Tensor) -> bool:
    """But for the order of additions."""
    if seen is None or seen.shape != wanted.shape:
        return False
    return torch.allclose(seen.double(), wanted, rtol=1e-9, atol=1e-11)
