"""Hints for a student's federated averaging: likely causes of what a check saw."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import torch

from dlviz.cluster import SENDS, Wait
from dlviz.grading.harness.feedback import listed
from dlviz.grading.harness.solved import CLOSE, solved

Tensor = torch.Tensor
Finding = tuple[str, str]  # what was seen, and a hint
SHARES = (
    "a client's share is counts[k] over the sum of the counts of all who answered. What do your "
    "shares add up to?"
)


def same(one: Tensor, other: Tensor) -> bool:
    """Equal up to rounding: another order of sums, or weights in place of updates."""
    return torch.allclose(one.double(), other, rtol=1e-9, atol=1e-11)


def mean(updates: Mapping[int, Tensor], counts: Mapping[int, int], of: float = 0.0) -> Tensor:
    """The sum of the updates weighted by examples, divided by these clients' examples or by
    `of`."""
    whole = of or sum(counts[client] for client in updates)
    return torch.stack([counts[client] / whole * each for client, each in updates.items()]).sum(0)


def why_average(
    seen: Tensor, before: Tensor, ends: Mapping[int, Tensor], counts: Mapping[int, int], own: int
) -> Finding:
    """What the server's new weights are instead of the mean of the clients' weights `ends`, and
    a hint. `own`: the number of the server's own examples."""
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
) -> Finding:
    """What the timed server's new weights are instead of those with the `updates` that came in
    time, and a hint. `late`: updates of earlier rounds received in this one."""
    if seen.isnan().any():
        return "no numbers (NaN)", (
            "nobody answered in this round, so there is nothing to divide. Which weights remain?"
            if not updates
            else "what is divided by what? And a new tensor into which nothing was received holds "
            "arbitrary numbers."
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
            "its update is missing, but its examples are in n: the others' shares no longer add up "
            "to 1.",
        )
    return _why_sum(seen, before, updates, counts, late, others)


def _why_sum(
    seen: Tensor,
    before: Tensor,
    updates: Mapping[int, Tensor],
    counts: Mapping[int, int],
    late: Mapping[int, Tensor],
    others: Mapping[str, tuple[int, str]],
) -> Finding:
    """Solve for how often the weights before the round, each update and each earlier one are in
    `seen`; and a hint. `others`: other numbers of examples to divide by, each with its hint."""
    right = before + mean(updates, counts) if updates else before
    if torch.allclose(seen.double(), right, rtol=1e-4, atol=1e-5):
        return "the right weights with fewer digits", (
            "the weights are float64, and some digits are lost: which type has the sum?"
        )
    found = solved(seen, [before, *updates.values(), *late.values()])
    if found is None:
        return "no weights that these updates lead to", (
            "they contain something that is neither the server's weights nor an update: a message "
            "read from the wrong place, a tensor that is not reset to zero, or a step of the "
            "server's?"
        )
    start, *times = found
    by = dict(zip(updates, times, strict=False))
    old = dict(zip(late, times[len(updates) :], strict=True))
    if belated := [client for client, each in old.items() if abs(each) > CLOSE]:
        return f"a mean with an update of client {belated[0]} that belongs to an earlier round", (
            "its update was for old weights, and came after the deadline of their round. What in a "
            "message says for which round it is?"
        )
    listed_times = listed([f"{each:.3g}" for each in times[: len(updates)]])
    said = f"{listed_times} of the updates of clients {listed([*map(str, by)])}"
    if abs(start - 1) > CLOSE:
        return _why_start(start, sum(by.values()), said)
    return _why_shares(by, counts, others) or (
        f"its weights and {said}",
        f"their shares of the examples are {_shares(updates, counts)}. For which client is it "
        "another number, and what else multiplies or divides it: once, or with each message?",
    )


def _shares(clients: Iterable[int], counts: Mapping[int, int]) -> str:
    of = [counts[client] for client in clients]
    return listed([f"{each / sum(of):.3g}" for each in of])


def _why_start(start: float, whole: float, said: str) -> Finding:
    """A hint if the server's old weights are in the new ones `start` times instead of once; the
    updates are in them `whole` times altogether."""
    if abs(start - 1 - whole) < CLOSE:
        return f"its weights and the clients' weights: {start:.3g} times its own, and {said}", (
            "does a client send its weights, or their change? Only a change is added to the "
            "server's weights."
        )
    if abs(start) < CLOSE:
        return f"the mean of the updates alone: {said}", "an update is a change: of which weights?"
    if abs(start - whole) < CLOSE:
        return f"a sum of the clients' weights: {start:.3g} times its own, and {said}", SHARES
    return f"{start:.3g} times the weights that it had, and {said}", (
        "the new weights are the old ones, once, plus the updates by their shares."
    )


def _why_shares(
    by: Mapping[int, float], counts: Mapping[int, int], others: Mapping[str, tuple[int, str]]
) -> Finding | None:
    """What is wrong with the clients' shares `by` in the new weights."""

    def are(shares: Mapping[int, float]) -> bool:
        far = [abs(by[client] - shares[client]) / max(1.0, abs(shares[client])) for client in by]
        return max(far, default=0.0) < CLOSE

    def over(whole: float) -> dict[int, float]:
        return {client: counts[client] / whole for client in by}

    own = sum(counts[client] for client in by)
    share, n = over(own or 1), len(by)
    if are(dict.fromkeys(by, 0.0)):
        return "the weights that it had", (
            "the updates are missing: which line puts them into the weights that are tested?"
        )
    for said, (whole, hint) in others.items():
        if are(over(whole)):
            return said, hint
    known = {
        "its weights less the mean of the updates": (
            {client: -each for client, each in share.items()},
            "a client's update is its new weights less those that it was sent. Which sign does it "
            "have?",
        ),
        "the mean in which each client counts the same": (
            dict.fromkeys(by, 1 / n),
            "a client with three times the examples counts three times. By what should each update "
            "be multiplied?",
        ),
        "the sum of the updates": (dict.fromkeys(by, 1.0), SHARES),
        "the sum of the updates times their examples": (over(1), SHARES),
        "the mean in which each client counts the same, over all clients": (
            dict.fromkeys(by, 1 / len(counts)),
            "a client that did not answer has no update, and a client counts by its examples. By "
            "which number should each update be divided?",
        ),
    }
    for said, (shares, hint) in known.items():
        if are(shares):
            return said, hint
    return _why_some(by, share, counts)


def _why_some(
    by: Mapping[int, float], share: Mapping[int, float], counts: Mapping[int, int]
) -> Finding | None:
    """A hint if updates are missing, or clients have the shares of others."""
    there = [client for client, each in by.items() if abs(each) > CLOSE]
    left = listed([f"client {client}" for client in by if client not in there] or ["nobody"])
    if len(there) == 1 < len(by) and abs(by[there[0]] - sum(share.values())) < CLOSE:
        return f"the update of client {there[0]} in place of each", (
            "the next message is received into the tensor that held the previous one. What do the "
            "updates that you have stored share? Is one overwritten?"
        )
    if len(there) < len(by):
        return f"a mean without {left}", (
            "each client has one update a round: is the mean computed before all have arrived, or "
            "is one left out or overwritten?"
        )
    seen, wanted = sorted(by.values()), sorted(share.values())
    if all(abs(one - other) < CLOSE for one, other in zip(seen, wanted, strict=True)):
        client = next(each for each in by if abs(by[each] - share[each]) > CLOSE)
        whose = min(share, key=lambda each: abs(share[each] - by[client]))
        return f"a mean in which client {client} counts by the examples of client {whose}", (
            "updates come in any order: comm.recv returns the sender. By whose examples is the "
            "latest one multiplied?"
        )
    halves = sorted([*[0.5 ** (i + 1) for i in range(len(by) - 1)], 0.5 ** (len(by) - 1)])
    if all(abs(one - other) < CLOSE for one, other in zip(seen, halves, strict=True)):
        shares = listed([f"{each:.3g}" for each in by.values()])
        return f"its weights and {shares} of the updates of clients {listed([*map(str, by)])}", (
            "the mean of a mean and one more gives the last one a half. Add all of them, each by "
            "its share of all examples."
        )
    return None


def why_begin(seen: Tensor, server: Tensor, last: Tensor | None, own: Tensor) -> Finding:
    """With which weights other than the server's a client begins a round. `last`: its weights at
    the end of the previous round; `own`: those at the start."""
    if last is not None and same(seen, last):
        return "those that it ended the round before with", (
            "it goes on from its own weights, and the clients drift apart. Which message brings it "
            "the mean, in each round?"
        )
    if same(seen, own):
        return "those that it had at the start", (
            "its weights at the start are older ones. Which message brings it the server's?"
        )
    parts = {"the server's": server, "those that it had at the start": own}
    if last is not None:
        parts["those that it ended the round before with"] = last
    if (times := solved(seen, [*parts.values()])) is not None:
        said = [f"{each:.3g} times {what}" for what, each in zip(parts, times, strict=True) if each]
        return listed(said), "the received weights replace its own: they are added to nothing."
    return "others", (
        "are they the weights that the server has tested, and has anything else been received into "
        "that tensor, or been done to it, since?"
    )


def why_gradient(step: Tensor, gradients: Sequence[Tensor], rows: int) -> Finding:
    """What a client's optimizer got instead of the last of its `gradients`, a mean over `rows`."""
    *earlier, gradient = gradients
    times = solved(step, [gradient])
    if times is not None:
        if abs(times[0] * rows - 1) < CLOSE:
            return f"1/{rows} of its gradient", (
                "data.gradient is the gradient of the mean loss of the rows: it is divided by "
                "their number already."
            )
        return f"{times[0]:.3g} times its gradient", (
            "the optimizer applies the learning rate, and the gradient is that of a mean. What "
            "else is it multiplied by?"
        )
    if earlier and solved(step, gradients) is not None:
        return "its gradient, with those of earlier batches in it", (
            "momentum belongs to the optimizer. Which sum is not reset with each batch?"
        )
    return "something else than its gradient", (
        "what happens to the gradient between the two calls?"
    )


def why_rows(batches: Sequence[Sequence[int]], count: int, batch: int) -> Finding:
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
    """Why a client with `count` rows has computed another number of gradients; `taken`: the rows
    of each."""
    made, batches = len(taken), -(-count // batch)
    if made == 0:
        return "local work is gradients on the client's own rows. Where is data.gradient called?"
    if made == rounds * epochs:
        return (
            "one gradient an epoch is full-batch descent: an epoch has a gradient for each batch."
        )
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
    return "a round has epochs x batches gradients. Which loop is inside which?"


def why_stuck(server: Wait) -> Finding:
    """What a timed server waits for in vain, and a hint."""
    if server.op in SENDS:
        return f"the server sends to client {server.peer}, which still owes an update", (
            "a client that owes an update sends it before it receives new weights. From which "
            "clients should choose select?"
        )
    if server.peer is not None:
        return f"the server waits for client {server.peer}, which owes nothing", (
            "which clients were asked in this round, and which of them have not answered yet?"
        )
    return "the server waits for an update, and no client owes one", (
        "how many were asked, how many have answered, and which updates of earlier rounds were "
        "still to come?"
    )
