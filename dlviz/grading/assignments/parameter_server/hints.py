"""Hints for a student's locked worker and parameter server: likely causes of what a check saw."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from dlviz.cluster import SENDS, Wait
from dlviz.grading.assignments.parameter_server.rules import Clocks, Event
from dlviz.grading.harness.feedback import listed, number
from dlviz.grading.harness.solved import CLOSE, solved

OF_WHAT = "lr times the gradient is subtracted from the weights (-=), it does not replace them."
HOW_MANY = "how many pushes come in all? pushes[worker] says how many of each worker."


def why_stuck(clocks: Clocks, done: Sequence[Event], server: Wait | None) -> tuple[str, str]:
    """What a server waits for in vain, and a hint. `server`: its wait, None if the program has
    returned."""
    for event in done:
        clocks.record(event)
    if server is None:
        if clocks.held:
            ended = all(each not in clocks.going for each in clocks.held)
            return f"the server has returned, and {_not_answered(clocks)}", (
                "the last push of a worker is answered too, immediately. Does a line for finished "
                "workers remove it from those that are checked, or skip it?"
                if ended
                else "every push is answered: which workers are still held when the last push has "
                "arrived?"
            )
        left = sum(clocks.pushes.values()) - sum(clocks.clock.values())
        come = f"{number(left, 'push')} {'is' if left == 1 else 'are'} still to come"
        return f"the server has returned, and {come}", HOW_MANY
    if server.op in SENDS:
        return f"the server sends to worker {server.peer}, which waits for no answer", (
            "each push has one answer: is a worker answered twice, or before its push has arrived?"
        )
    if server.peer is not None:
        said = f"the server waits for a push of worker {server.peer} and receives no other one"
        if clocks.clock.get(server.peer) == clocks.pushes.get(server.peer):
            return said, "that worker has pushed all its gradients: how many are pushes[worker]?"
        return said, (
            "which worker is slow is not known in advance. Which call receives from any worker?"
        )
    if clocks.unanswered:
        return f"the server waits for a push, and {_not_answered(clocks)}", why_held(clocks)
    return "the server waits for one more push, and all have been answered", HOW_MANY


def why_held(clocks: Clocks) -> str:
    """Why a worker that may go on is held."""
    waiting = clocks.unanswered
    worker = clocks.last if clocks.last in waiting else waiting[0]
    everyone = min(clocks.clock.values())  # including workers that have finished
    if worker not in clocks.going:
        if clocks.clock[worker] - everyone <= clocks.bound:
            return (
                f"worker {worker} has pushed its last gradient, and the bound does not hold it "
                "either. Is it among the workers that are checked after a push, or does a line "
                "for finished workers remove or skip it?"
            )
        return (
            f"worker {worker} has pushed its last gradient: it starts no further iteration, so the "
            "bound does not hold it."
        )
    if clocks.clock[worker] - everyone > clocks.bound:
        return (
            "the slowest clock is that of a worker that has pushed its last gradient. Which "
            "workers' clocks still grow?"
        )
    lead = clocks.leads[worker]
    if lead > clocks.bound:
        return (
            f"worker {worker} was rightly held until the slowest pushed. Which workers are checked "
            "when a push has arrived?"
        )
    if lead == clocks.bound:
        return (
            f"worker {worker} was ahead by {lead}, exactly the bound. May a worker go on that is "
            "no more than the bound ahead?"
        )
    if lead == 0:
        return f"worker {worker} was the slowest itself, and is held. Who should wait for whom?"
    return (
        f"worker {worker} was ahead by {lead}, which the bound allows. What does its answer wait "
        "for: the pushes of all workers?"
    )


def why_ahead(clocks: Clocks, done: Sequence[Event]) -> str:
    """Why a worker that is too far ahead is answered, from what the server has `done` when
    workers push as if there were no bound."""
    now, bound = Clocks(clocks.pushes, clocks.bound), clocks.bound
    seen = []  # of each unfinished worker: how far ahead, how far behind; is it answered?
    for what, worker in [*done, Event("push", 0)]:
        asked = {"push": now.held, "reply": [worker]}.get(what, [])
        fastest = max(now.clock.values())
        seen += [
            (now.lead(each), fastest - now.clock[each], what == "reply")
            for each in asked
            if each in now.going
        ]
        if worker:
            now.record(Event(what, worker))
    most = max((lead for lead, _, answered in seen if answered), default=0)
    held = [lead for lead, _, answered in seen if not answered]
    if seen and not held:
        return (
            f"nobody is held, however far ahead: a worker that is {most:g} ahead is answered too. "
            "With whose clock, if any, is its own compared?"
        )
    if held and all(answered == (behind <= bound) for _, behind, answered in seen):
        return (
            f"a worker more than {bound:g} behind the fastest is held, and the fastest goes on. "
            "Who should wait for whom?"
        )
    if held and bound < most < min(held):
        return (
            f"a worker that is {most:g} ahead goes on, one that is {min(held):g} ahead is held. "
            f"The bound is {bound:g}: with what is the lead compared?"
        )
    return (
        "a worker at clock c goes on when the slowest clock is c - bound or more. Try it with the "
        "numbers here: whose clock is compared with whose, and is it < or <=?"
    )


def why_counted(made: int, pushed: int, of_all: int) -> str:
    """Why a worker with `pushed` pushes has another number of updates; `of_all`: the updates for
    all workers."""
    if of_all == 0:
        return (
            "a push changes the weights when update(worker, gradient) is called. Where is it "
            "called?"
        )
    if made < pushed:
        return "some pushes are dropped. A gradient counts here, however late it comes."
    return "a gradient is in the weights more than once: where is update called?"


def why_weights(
    got: torch.Tensor,
    versions: Sequence[torch.Tensor],
    own: int,
    pushed: Sequence[tuple[int, torch.Tensor]],
    rate: float,
) -> tuple[str, str]:
    """What an answer is instead of the last of the `versions` of the weights, and a hint.
    Version `own` is the first with the worker's gradient; `pushed`: the gradients so far, each
    with its worker."""
    for i, each in enumerate(versions):
        if torch.equal(got, each):
            if i < own:
                return f"the weights after {number(i, 'update')}, its own not among them", (
                    "the weights that a worker gets lack its own gradient. Which comes first, the "
                    "update or the answer?"
                )
            return f"the weights after {number(i, 'update')}", (
                "a worker that was held gets the weights as they are when it is answered. Were "
                "they copied earlier?"
            )
    worker, gradient = pushed[own - 1]
    for other, each in pushed[::-1]:
        if torch.equal(got, each):
            whose = "its own gradient" if each is gradient else f"the gradient of worker {other}"
            return f"{whose}, and no weights", (
                "the tensor into which a push was received is sent. The answer to a push is the "
                "weights."
            )
    found = solved(got, [versions[0], *(-rate * each for _, each in pushed)])
    if found is None:
        return "no weights that the updates lead to", (
            "what changes the weights besides update(worker, gradient), or the gradient before it?"
        )
    start, *times = found
    if abs(start - 1) > CLOSE:
        return f"{start:.3g} times the weights at the start, with updates", (
            "update changes the weights in place, and they are sent unchanged. What else is added "
            "to them, or multiplied?"
        )
    odd = [
        f"that of worker {other} ({'this' if i == own - 1 else f'push {i + 1} of all'}) "
        f"{each:.3g} times"
        for i, ((other, _), each) in enumerate(zip(pushed, times, strict=True))
        if abs(each - 1) > CLOSE
    ]
    said = f"the weights with each gradient until then but {listed(odd)}"
    if abs(times[own - 1]) < CLOSE:
        return said, (
            f"the gradient of worker {worker} is not in them, and another one is in its place: a "
            "push that is received into a tensor overwrites it. What does it hold when update is "
            "called?"
        )
    return said, (
        "each gradient is in the weights once, only by update(worker, gradient). Which other line "
        "changes the weights, or the gradient?"
    )


def why_no_update(made: int, unlocked: int, replaced: int) -> str:
    """Why a rank has `made` fewer updates than gradients. `unlocked`: its writes without the
    lock; `replaced`: how often it replaced the shared tensor."""
    if replaced:
        return (
            "`shared.tensor = ...` gives that name to a new tensor on this rank, but the ranks "
            "share the old one. Change it in place, by -= or copy_."
        )
    if unlocked:
        return (
            "the shared tensor was written to while this rank did not hold the lock, and such an "
            "update is lost. Inside which `with` does it belong?"
        )
    if made:
        return (
            "there are gradients that are in no update, or several in one: how often is the lock "
            "taken in a step, and does each time change the weights by one gradient?"
        )
    return (
        "the rank has held the lock and left the shared tensor unchanged. Changes of a copy "
        "(clone) do not count: which line changes shared.tensor, by -= or copy_?"
    )


def why_memory(
    after: torch.Tensor,
    before: torch.Tensor,
    read: torch.Tensor,
    gradients: Sequence[torch.Tensor],
    rate: float,
) -> tuple[str, str]:
    """What a rank has written into the shared tensor instead of `before` less `rate` times the
    last of its `gradients`, and a hint. `read`: the weights of that gradient."""
    *earlier, gradient = gradients
    moved = -rate * gradient
    parts = {
        "the weights that it had read, moved by its gradient": (
            read + moved,
            "the other ranks' updates since then are overwritten. From what should lr times the "
            "gradient be subtracted: from the copy, or from the current weights?",
        ),
        "the weights moved in the other direction": (
            before - moved,
            "the loss falls against the gradient: which sign does it have?",
        ),
        "the weights moved by the whole gradient": (
            before - gradient,
            "the learning rate lr is not in it.",
        ),
        "its copy of the weights, not moved": (
            read,
            "the other ranks' updates since then are overwritten. What should be written?",
        ),
        "its gradient's part alone": (moved, OF_WHAT),
        "its gradient": (gradient, OF_WHAT),
    }
    right = before + moved
    if torch.allclose(after, right, rtol=1e-5, atol=1e-6):
        return "the right weights with fewer digits", (
            "weights and gradients are float64, and some digits are lost: which type has the "
            "tensor that is subtracted?"
        )
    for said, (tensor, hint) in parts.items():
        if torch.allclose(after, tensor, rtol=1e-12, atol=1e-15):
            return said, hint
    since = [] if torch.equal(read, before) else [read]
    found = solved(after, [before, moved, *since, *(-rate * each for each in earlier)])
    if found is None:
        return "other weights", (
            "they are no sum of the weights and of this rank's gradients. What else is in them, or "
            "is a part of them multiplied or rounded?"
        )
    there, times, *others = found
    said = f"{there:.3g} of the current weights, moved by its gradient {times:.3g} times"
    copy = others.pop(0) if since else 0.0
    if any(abs(each) > CLOSE for each in others):
        return f"{said}, and by those of earlier steps", (
            "these are in the weights already. What is summed from step to step, and where is it "
            "reset?"
        )
    if abs(copy) > CLOSE:
        return f"{said}, with {copy:.3g} of its copy", (
            "the copy is only for computing the gradient. The current weights contain the others' "
            "updates: subtract from those."
        )
    if abs(there - 1) > CLOSE:
        return said, "only lr times the gradient is subtracted: what else shrinks the weights?"
    return said, (
        "how often is lr times the gradient subtracted in a step, or by what is it divided?"
    )


def _not_answered(clocks: Clocks) -> str:
    held = [f"worker {each} (clock {clocks.clock[each]})" for each in clocks.held]
    return f"{listed(held)} {'is' if len(held) == 1 else 'are'} not answered"
