"""Hints for federated averaging that a student wrote: what may be behind what a check saw."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import torch

from dlviz.cluster import SENDS, Wait
from dlviz.grading.harness.feedback import listed
from dlviz.grading.harness.solved import CLOSE, solved

Tensor = torch.Tensor
Told = tuple[str, str]  # what was seen, and a hint
SHARES = (
    "a client counts by its examples, counts[k], and all who answered together by the sum of "
    "theirs. What do your shares add up to?"
)


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
    others = {
        "a mean in which the server's own examples count": (
            sum(counts.values()) + own,
            "the examples of rank 0 are to test with: it has no update. Whose examples are in n?",
        )
    }
    return _why_sum(seen, before, updates, counts, {}, others)


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
    others = {
        "a mean over the examples of all clients": (
            sum(counts.values()),
            "clients that were not asked, or did not answer, have no update. Whose examples add up "
            "to n?",
        )
    }
    if absent := [client for client in asked if client not in updates]:
        others[f"a mean in which client {absent[0]}, who did not answer in time, counts"] = (
            sum(counts[client] for client in asked),
            "its update is not there, and yet its examples are in n: the others' shares no longer "
            "add up to 1.",
        )
    return _why_sum(seen, before, updates, counts, late, others)


def _why_sum(
    seen: Tensor,
    before: Tensor,
    updates: Mapping[int, Tensor],
    counts: Mapping[int, int],
    late: Mapping[int, Tensor],
    others: Mapping[str, tuple[int, str]],
) -> Told:
    """How often the weights before the round, each update and each one of an earlier round are in
    what was seen, solved for; and a hint. `others` are other numbers of examples that a mean may be
    over."""
    right = before + mean(updates, counts) if updates else before
    if torch.allclose(seen.double(), right, rtol=1e-4, atol=1e-5):
        return "the right weights with fewer digits", (
            "the weights are float64, and some digits are lost on the way: which type has the sum?"
        )
    found = solved(seen, [before, *updates.values(), *late.values()])
    if found is None:
        return "no weights that these updates lead to", (
            "something is in them that is neither the server's weights nor an update: a message "
            "read from the wrong place, a tensor that is not set back to zero, or a step of the "
            "server's?"
        )
    start, *times = found
    by = dict(zip(updates, times, strict=False))
    old = dict(zip(late, times[len(updates) :], strict=True))
    if belated := [client for client, each in old.items() if abs(each) > CLOSE]:
        return f"a mean with an update of client {belated[0]} that belongs to an earlier round", (
            "its update was for weights that are gone, and came after the deadline of their "
            "round. What in a message says for which round it is?"
        )
    listed_times = listed([f"{each:.3g}" for each in times[: len(updates)]])
    said = f"{listed_times} of the updates of clients {listed([*map(str, by)])}"
    if abs(start - 1) > CLOSE:
        return _why_start(start, sum(by.values()), said)
    return _why_shares(by, counts, others) or (
        f"its weights and {said}",
        f"their shares of the examples are {_shares(updates, counts)}. For whom is it another "
        "number, and what else has multiplied or divided it: once, or anew with each message?",
    )


def _shares(clients: Iterable[int], counts: Mapping[int, int]) -> str:
    of = [counts[client] for client in clients]
    return listed([f"{each / sum(of):.3g}" for each in of])


def _why_start(start: float, whole: float, said: str) -> Told:
    """Where the server's weights before the round are in the new ones other than once; the updates
    are in them `whole` times altogether."""
    if abs(start - 1 - whole) < CLOSE:
        return f"its weights and the clients' weights: {start:.3g} times its own, and {said}", (
            "what a client sends: its weights, or by how much they have changed? Only a change is "
            "added to the server's weights."
        )
    if abs(start) < CLOSE:
        return f"the mean of the updates alone: {said}", "an update is a change: of which weights?"
    if abs(start - whole) < CLOSE:
        return f"a sum of the clients' weights: {start:.3g} times its own, and {said}", SHARES
    return f"{start:.3g} times the weights that it had, and {said}", (
        "the weights of the round before are in the new ones once, and the updates by their shares."
    )


def _why_shares(
    by: Mapping[int, float], counts: Mapping[int, int], others: Mapping[str, tuple[int, str]]
) -> Told | None:
    """What is wrong with the shares `by` which the clients' updates are in the new weights."""

    def are(shares: Mapping[int, float]) -> bool:
        far = [abs(by[client] - shares[client]) / max(1.0, abs(shares[client])) for client in by]
        return max(far, default=0.0) < CLOSE

    def over(whole: float) -> dict[int, float]:
        return {client: counts[client] / whole for client in by}

    own = sum(counts[client] for client in by)
    share, n = over(own or 1), len(by)
    if are(dict.fromkeys(by, 0.0)):
        return "the weights that it had", (
            "the updates are not in it: which line puts them into the weights that are tested?"
        )
    for said, (whole, hint) in others.items():
        if are(over(whole)):
            return said, hint
    known = {
        "its weights less the mean of the updates": (
            {client: -each for client, each in share.items()},
            "a client's update is its new weights less those that it was sent. Which sign has it?",
        ),
        "the mean in which each client counts the same": (
            dict.fromkeys(by, 1 / n),
            "a client with three times the examples has three times the say. By what is each "
            "update to be multiplied?",
        ),
        "the sum of the updates": (dict.fromkeys(by, 1.0), SHARES),
        "the sum of the updates times their examples": (over(1), SHARES),
        "the mean in which each client counts the same, over all clients": (
            dict.fromkeys(by, 1 / len(counts)),
            "who did not answer has no update, and a client counts by its examples. Which number "
            "is each update to be divided by?",
        ),
    }
    for said, (shares, hint) in known.items():
        if are(shares):
            return said, hint
    return _why_some(by, share, counts)


def _why_some(
    by: Mapping[int, float], share: Mapping[int, float], counts: Mapping[int, int]
) -> Told | None:
    """Where some updates are missing, or clients have the shares of others."""
    there = [client for client, each in by.items() if abs(each) > CLOSE]
    left = listed([f"client {client}" for client in by if client not in there] or ["nobody"])
    if len(there) == 1 < len(by) and abs(by[there[0]] - sum(share.values())) < CLOSE:
        return f"the update of client {there[0]} in place of each", (
            "the next message is received into the tensor that held the one before. What do the "
            "updates share that you have kept? Is one overwritten?"
        )
    if len(there) < len(by):
        return f"a mean without {left}", (
            "each client has one update a round: is the mean made before all have come, or is one "
            "left out or overwritten?"
        )
    seen, wanted = sorted(by.values()), sorted(share.values())
    if all(abs(one - other) < CLOSE for one, other in zip(seen, wanted, strict=True)):
        client = next(each for each in by if abs(by[each] - share[each]) > CLOSE)
        whose = min(share, key=lambda each: abs(share[each] - by[client]))
        return f"a mean in which client {client} counts by the examples of client {whose}", (
            "updates come in whichever order: comm.recv returns from whom. By whose examples is "
            "the one multiplied that has just come?"
        )
    halves = sorted([*[0.5 ** (i + 1) for i in range(len(by) - 1)], 0.5 ** (len(by) - 1)])
    if all(abs(one - other) < CLOSE for one, other in zip(seen, halves, strict=True)):
        shares = listed([f"{each:.3g}" for each in by.values()])
        return f"its weights and {shares} of the updates of clients {listed([*map(str, by)])}", (
            "the mean of a mean and of one more gives the last one half. Add all of them, each by "
            "its share of all examples."
        )
    return None


def why_begin(seen: Tensor, server: Tensor, last: Tensor | None, own: Tensor) -> Told:
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
    parts = {"the server's": server, "those that it had at the start": own}
    if last is not None:
        parts["those that it ended the round before with"] = last
    if (times := solved(seen, [*parts.values()])) is not None:
        said = [f"{each:.3g} times {what}" for what, each in zip(parts, times, strict=True) if each]
        return listed(said), "what it has received are its weights now: they are added to nothing."
    return "others", (
        "are they the weights as the server has tested them, and has nothing else been received "
        "into that tensor, or been done to it since?"
    )


def why_gradient(step: Tensor, gradients: Sequence[Tensor], rows: int) -> Told:
    """What a client's optimizer was given in place of the last of its `gradients`, that of so many
    rows."""
    *earlier, gradient = gradients
    times = solved(step, [gradient])
    if times is not None:
        if abs(times[0] * rows - 1) < CLOSE:
            return f"1/{rows} of its gradient", (
                "data.gradient is that of the mean loss of the rows: it is divided by their number "
                "already."
            )
        return f"{times[0]:.3g} times its gradient", (
            "the optimizer knows the learning rate, and the gradient is that of a mean. What else "
            "is it multiplied by?"
        )
    if earlier and solved(step, gradients) is not None:
        return "its gradient, with those of earlier batches in it", (
            "momentum is the optimizer's. Which sum is not begun anew with each batch?"
        )
    return "something else than its gradient", (
        "what has become of the gradient between the two calls?"
    )


def why_rows(batches: Sequence[Sequence[int]], count: int, batch: int) -> Told:
    """What is wrong with the rows of an epoch."""
    rows = [row for each in batches for row in each]
    sizes = [len(each) for each in batches]
    missing = sorted({*range(count)} - {*rows})
    if {*rows} == {*range(count - 1)}:
        return f"row {count - 1} does not come", (
            f"the {count} rows have the numbers 0 to {count - 1}. How many numbers are drawn?"
        )
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


def why_counted(taken: Sequence[int], count: int, batch: int, epochs: int, rounds: int) -> str:
    """Why a client with `count` rows has computed its gradients, each of as many rows as `taken`
    says."""
    made, batches = len(taken), -(-count // batch)
    if made == 0:
        return "local work is gradients on the client's own rows. Where is data.gradient called?"
    if made == rounds * epochs:
        return "one gradient an epoch is full-batch descent: an epoch goes from batch to batch."
    if made == rounds * batches:
        return "that is one epoch a round. What is `epochs` for?"
    if made == epochs * batches:
        return "that is the work of a single round."
    if made == rounds * epochs * batch and taken[0] != batch:
        return f"an epoch has {batch} batches here: `batch` is the number of rows in one of them."
    if made == rounds * epochs * (count // batch):
        return "the last batch of an epoch counts though it is short. Is it left out?"
    if made == rounds * epochs * count:
        return f"there is a gradient for each row: a batch has {batch} of them."
    return "a round has epochs x batches gradients. Around which loop does which one stand?"


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
