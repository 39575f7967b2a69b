"""Hints for federated averaging that a student wrote: what may be behind what a check saw."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

import torch

from dlviz.cluster.stuck.waits import SENDS, Wait
from dlviz.grading.feedback import listed

Tensor = torch.Tensor
Told = tuple[str, str]  # what was seen, and a hint
SHARES = (
    "a client counts by its examples, counts[k], and all who answered together by the sum of "
    "theirs. What do your shares add up to?"
)
ONE_RULE = "which part of w + sum of (n_k / n) u_k is missing, and what else is in it?"


def same(one: Tensor, other: Tensor) -> bool:
    """Equal but for rounding: another order of sums, or weights in place of updates."""
    return torch.allclose(one.double(), other, rtol=1e-9, atol=1e-11)


def mean(updates: Mapping[int, Tensor], counts: Mapping[int, int], of: float = 0.0) -> Tensor:
    """The sum of the updates by their clients' examples, over those of these clients or over
    `of`."""
    whole = of or sum(counts[client] for client in updates)
    return torch.stack([counts[client] / whole * each for client, each in updates.items()]).sum(0)


def why_average(
    seen: Tensor, before: Tensor, ends: Mapping[int, Tensor], counts: Mapping[int, int], own: int
) -> Told:
    """What the server's new weights are in place of the mean of its clients' weights at the `ends`
    of their local work, and a hint. `own` are the server's own examples."""
    updates = {client: end - before for client, end in ends.items()}
    whole = sum(counts.values())
    added = {
        "the weights that it had": (
            before,
            "the updates are not in it: which line puts them into the weights that are tested?",
        ),
        "its weights and the clients' weights": (
            before + mean(ends, counts),
            "what a client sends: its weights, or by how much they have changed? Only a change is "
            "added to the server's weights.",
        ),
        "its weights less the mean of the updates": (
            before - mean(updates, counts),
            "a client's update is its new weights less those that it was sent. Which sign has it?",
        ),
        "the mean of the updates alone": (
            mean(updates, counts),
            "an update is a change: of which weights?",
        ),
        "a mean in which the server's own examples count": (
            before + mean(updates, counts, whole + own),
            "the examples of rank 0 are to test with: it has no update. Whose examples are in n?",
        ),
    }
    others = _weighed(before, updates, counts) | _fewer(before, updates, counts)
    return _known(seen, before + mean(updates, counts), added | others)


def why_answered(
    seen: Tensor,
    before: Tensor,
    updates: Mapping[int, Tensor],
    counts: Mapping[int, int],
    asked: Sequence[int],
    late: Mapping[int, Tensor],
) -> Told:
    """What the timed server's new weights are in place of those with the `updates` of who answered,
    and a hint. `late` are the updates of earlier rounds that it received in this one."""
    if seen.isnan().any():
        return "no numbers (NaN)", (
            "nobody answered in this round, so there is nothing to divide. Which weights go on?"
            if not updates
            else "what is divided by what? And a tensor that nothing was received into holds "
            "whatever was in its memory before."
        )
    wrong: dict[str, tuple[Tensor, str]] = {}
    wrong["the weights that it had"] = (
        before,
        "the updates that came in time are not in it: which line adds them?",
    )
    if late:
        wrong |= _mixed(before, updates, late, counts)
    if not updates:
        return _known(seen, before, wrong)
    absent = [client for client in asked if client not in updates]
    every = before + mean(updates, counts, sum(counts.values()))
    wrong["a mean over the examples of all clients"] = (
        every,
        "clients that were not asked, or did not answer, have no update. Whose examples add up to "
        "n?",
    )
    if absent:
        wrong[f"a mean in which client {absent[0]}, who did not answer in time, counts"] = (
            before + mean(updates, counts, sum(counts[client] for client in asked)),
            "its update is not there, and yet its examples are in n: the others' shares no longer "
            "add up to 1.",
        )
    for client, each in updates.items():
        wrong[f"the update of client {client} in place of each"] = (
            before + each,
            "the next message is received into the tensor that held the one before. What do the "
            "updates share that you have kept?",
        )
    return _known(seen, before + mean(updates, counts), wrong | _weighed(before, updates, counts))


def _weighed(
    before: Tensor, updates: Mapping[int, Tensor], counts: Mapping[int, int]
) -> dict[str, tuple[Tensor, str]]:
    """Sums in which the clients have other shares."""
    total = torch.stack([*updates.values()]).sum(0)
    return {
        "the mean in which each client counts the same": (
            before + total / len(updates),
            "a client with three times the examples has three times the say. By what is each "
            "update to be multiplied?",
        ),
        "the sum of the updates": (before + total, SHARES),
        "the sum of the updates times their examples": (before + mean(updates, counts, 1), SHARES),
        "the mean in which each client counts the same, over all clients": (
            before + total / len(counts),
            "who did not answer has no update, and a client counts by its examples. Which number "
            "is each update to be divided by?",
        ),
    }


def _fewer(
    before: Tensor, updates: Mapping[int, Tensor], counts: Mapping[int, int]
) -> dict[str, tuple[Tensor, str]]:
    """Means over some of the clients."""
    found = {}
    for some in (s for n in range(1, len(updates)) for s in combinations(updates, n)):
        left = listed([f"client {client}" for client in updates if client not in some])
        part = {client: updates[client] for client in some}
        hint = "each client has one update a round: which of them is overwritten, or left out?"
        for of in (0, sum(counts.values())):
            found[f"a mean without {left}" + " in full" * bool(of)] = (
                before + mean(part, counts, of),
                hint,
            )
    return found


def _mixed(
    before: Tensor,
    updates: Mapping[int, Tensor],
    late: Mapping[int, Tensor],
    counts: Mapping[int, int],
) -> dict[str, tuple[Tensor, str]]:
    """Means that hold an update of an earlier round, by whatever shares."""
    found = {}
    choices = [s for n in range(1, len(updates) + 1) for s in combinations(updates, n)] + [()]
    for client, each in late.items():
        for some in choices:
            mixed = {other: updates[other] for other in some} | {client: each}
            said = f"a mean with an update of client {client} that belongs to an earlier round"
            found[f"{said}, beside {len(some)}"] = (
                before + mean(mixed, counts),
                "its update was for weights that are gone, and came after the deadline of their "
                "round. What in a message says for which round it is?",
            )
    return found


def _known(seen: Tensor, right: Tensor, wrong: Mapping[str, tuple[Tensor, str]]) -> Told:
    if torch.allclose(seen.double(), right, rtol=1e-4, atol=1e-5):
        return "the right weights with fewer digits", (
            "the weights are float64, and some digits are lost on the way: which type has the sum?"
        )
    for said, (tensor, hint) in wrong.items():
        if same(seen, tensor):
            return said.partition(", beside")[0], hint
    return "no weights that these updates lead to", ONE_RULE


def why_begin(client: int, seen: Tensor, last: Tensor | None, own: Tensor) -> Told:
    """With which weights in place of the server's a client begins a round: `last` are those that it
    ended the round before with, `own` those that it began with."""
    if last is not None and same(seen, last):
        return "those that it ended the round before with", (
            "it trains on from its own weights, and the clients drift apart. Which message brings "
            "it the mean, in each round?"
        )
    if same(seen, own):
        return "those that it had at the start", (
            "what it has at the start are older weights. Which message brings it the server's?"
        )
    return "others", (
        "are they the weights as the server has tested them, and has nothing else been received "
        "into that tensor, or added to it?"
    )


def why_rows(batches: Sequence[Sequence[int]], count: int, batch: int) -> Told:
    """What is wrong with the rows of an epoch."""
    rows = [row for each in batches for row in each]
    sizes = [len(each) for each in batches]
    missing = sorted({*range(count)} - {*rows})
    if missing:
        often = next((row for row in rows if rows.count(row) > 1), None)
        twice = "" if often is None else f", and row {often} more than once"
        return f"row {missing[0]} does not come{twice}", (
            "an order of all rows, cut into batches, has each row once. How are yours drawn?"
        )
    return f"the batches have {listed([str(size) for size in sizes])} rows", (
        f"batches have {batch} rows, and the last one what is left: {count} rows are cut by "
        ".split(batch)."
    )


def why_counted(made: int, wanted: int, epochs: int, batches: int, rounds: int) -> str:
    """Why a client has computed so many gradients."""
    if made == 0:
        return "local work is gradients on the client's own rows. Where is data.gradient called?"
    if made == rounds * epochs:
        return "one gradient an epoch is full-batch descent: an epoch goes from batch to batch."
    if made == rounds * batches:
        return "that is one epoch a round. What is `epochs` for?"
    if made * rounds == wanted:
        return "that is the work of a single round."
    return "a round has epochs x batches gradients, and the last batch counts though it is short."


def why_stuck(server: Wait) -> Told:
    """What a timed server waits for that never comes, and a hint."""
    if server.op in SENDS:
        return f"the server sends to client {server.peer}, which still owes an update", (
            "a client that owes an update sends it before it takes new weights. Of which clients "
            "is choose to choose?"
        )
    if server.peer is not None:
        return f"the server waits for client {server.peer}, which owes nothing", (
            "who has been asked in this round, and who of them has not answered yet?"
        )
    return "the server waits for an update, and no client owes one", (
        "how many were asked, how many have answered, and which updates of earlier rounds were "
        "still to come?"
    )
