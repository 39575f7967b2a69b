"""Hints for the locked worker and the parameter server that a student wrote: what may be behind
what a check saw."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from dlviz.cluster import SENDS, Wait
from dlviz.grading.assignments.parameter_server.rules import Clocks, Event
from dlviz.grading.harness.feedback import listed, number
from dlviz.grading.harness.solved import CLOSE, solved

OF_WHAT = "the gradient's part is taken off the weights (-=), and does not replace them."
HOW_MANY = "how many pushes come in all? pushes[worker] says how many of each worker."


def why_stuck(clocks: Clocks, done: Sequence[Event], server: Wait | None) -> tuple[str, str]:
    """What a server waits for that never comes, and a hint. `server` is its wait, None where the
    program has returned."""
    for event in done:
        clocks.record(event)
    if server is None:
        if clocks.held:
            ended = all(each not in clocks.going for each in clocks.held)
            return f"the server has returned, and {_not_answered(clocks)}", (
                "the last push of a worker is answered too, at once. Has a line for those that are "
                "done taken it out of those that are looked at, or passed it by?"
                if ended
                else "every push is answered: who is still held when the last push has come?"
            )
        left = sum(clocks.pushes.values()) - sum(clocks.clock.values())
        come = f"{number(left, 'push')} {'is' if left == 1 else 'are'} still to come"
        return f"the server has returned, and {come}", HOW_MANY
    if server.op in SENDS:
        return f"the server sends to worker {server.peer}, which waits for no answer", (
            "one answer belongs to each push: is a worker answered twice, or before its push has "
            "come?"
        )
    if server.peer is not None:
        said = f"the server waits for a push of worker {server.peer} and takes no other one"
        if clocks.clock.get(server.peer) == clocks.pushes.get(server.peer):
            return said, "that worker has pushed all its gradients: how many are pushes[worker]?"
        return said, (
            "which worker is slow is not known before. Which call takes whichever push comes first?"
        )
    if clocks.unanswered:
        return f"the server waits for a push, and {_not_answered(clocks)}", why_held(clocks)
    return "the server waits for one more push, and all have been answered", HOW_MANY


def why_held(clocks: Clocks) -> str:
    """Why a worker is held that may go on."""
    waiting = clocks.unanswered
    worker = clocks.last if clocks.last in waiting else waiting[0]
    everyone = min(clocks.clock.values())  # of those too that have pushed all
    if worker not in clocks.going:
        if clocks.clock[worker] - everyone <= clocks.bound:
            return (
                f"worker {worker} has pushed its last gradient, and the bound does not hold it "
                "either. Is it among the workers that are looked at after a push, or has a line "
                "for those that are done taken it out, or passed it by?"
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
            f"worker {worker} was held, rightly, until the slowest pushed. Who is looked at when a "
            "push has come?"
        )
    if lead == clocks.bound:
        return (
            f"worker {worker} was ahead by {lead}, exactly the bound. May a worker go on that is "
            "no more than the bound ahead?"
        )
    if lead == 0:
        return f"worker {worker} was the slowest itself, and is held. Who is to wait for whom?"
    return (
        f"worker {worker} was ahead by {lead}, which the bound allows. What does its answer wait "
        "for: the pushes of all workers?"
    )


def why_ahead(clocks: Clocks, done: Sequence[Event]) -> str:
    """Why a worker is answered that is too far ahead, by what the server has `done` where workers
    push as if there were no bound."""
    now, bound = Clocks(clocks.pushes, clocks.bound), clocks.bound
    seen = []  # of a worker that is not done: how far it is ahead, and behind; is it answered?
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
            "With whose clock is its own compared, if with any?"
        )
    if held and all(answered == (behind <= bound) for _, behind, answered in seen):
        return (
            f"a worker more than {bound:g} behind the fastest is held, and the fastest goes on. "
            "Who is to wait for whom?"
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
    """Why a worker that has pushed so often has not one update a push; `of_all` are the updates for
    all workers."""
    if of_all == 0:
        return "a push changes the weights when update(worker, gradient) is called. Who calls it?"
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
    """What an answer is that is not the last of the `versions` of the weights, and a hint. Version
    `own` is the first that holds the worker's gradient; `pushed` are the gradients until then, each
    with its worker."""
    for i, each in enumerate(versions):
        if torch.equal(got, each):
            if i < own:
                return f"the weights after {number(i, 'update')}, its own not among them", (
                    "the weights that a worker gets lack its own gradient. What comes first, the "
                    "update or the answer?"
                )
            return f"the weights after {number(i, 'update')}", (
                "a worker that was held gets the weights as they are when it is answered. Were "
                "they copied before?"
            )
    worker, gradient = pushed[own - 1]
    for other, each in pushed[::-1]:
        if torch.equal(got, each):
            whose = "its own gradient" if each is gradient else f"the gradient of worker {other}"
            return f"{whose}, and no weights", (
                "what is sent is the tensor that a push was received into. The answer to a push "
                "is the weights."
            )
    found = solved(got, [versions[0], *(-rate * each for _, each in pushed)])
    if found is None:
        return "no weights that the updates lead to", (
            "what is done to the weights beside update(worker, gradient), or to the gradient "
            "before it?"
        )
    start, *times = found
    if abs(start - 1) > CLOSE:
        return f"{start:.3g} times the weights at the start, with updates", (
            "update changes the weights in place, and they are sent as they are. What else is "
            "added to them, or multiplied?"
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
            "push that is received into a tensor replaces what that held. What is in it when "
            "update is called?"
        )
    return said, (
        "each gradient is in the weights once, by update(worker, gradient) alone. Which other line "
        "changes the weights, or the gradient?"
    )


def why_no_update(made: int, unlocked: int, replaced: int) -> str:
    """Why a rank has made so many updates, fewer than its gradients, having written to the shared
    tensor without the lock, and put another one in its place, so often."""
    if replaced:
        return (
            "`shared.tensor = ...` gives that name to a new tensor on this rank, and the ranks "
            "share the old one. It is changed in place, by -= or copy_."
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
        "the rank has held the lock and left the shared tensor as it was. A copy (clone) may "
        "change as it likes; which line changes shared.tensor, by -= or copy_?"
    )


def why_memory(
    after: torch.Tensor,
    before: torch.Tensor,
    read: torch.Tensor,
    gradients: Sequence[torch.Tensor],
    rate: float,
) -> tuple[str, str]:
    """What a rank has put into the shared tensor instead of `before` less `rate` times the last of
    its `gradients`, and a hint. `read` are the weights that it was computed with."""
    *earlier, gradient = gradients
    moved = -rate * gradient
    parts = {
        "the weights that it had read, moved by its gradient": (
            read + moved,
            "the other ranks' updates since then are overwritten. Of what is the gradient's part "
            "to be taken: of the copy, or of what is there now?",
        ),
        "the weights moved the other way": (
            before - moved,
            "the loss falls against the gradient: which sign does it have?",
        ),
        "the weights moved by the whole gradient": (
            before - gradient,
            "the learning rate lr is not in it.",
        ),
        "its copy of the weights, not moved": (
            read,
            "the other ranks' updates since then are overwritten. What is to be written?",
        ),
        "its gradient's part alone": (moved, OF_WHAT),
        "its gradient": (gradient, OF_WHAT),
    }
    right = before + moved
    if torch.allclose(after, right, rtol=1e-5, atol=1e-6):
        return "the right weights with fewer digits", (
            "weights and gradients are float64, and some digits are lost on the way: which type "
            "has what is taken off?"
        )
    for said, (tensor, hint) in parts.items():
        if torch.allclose(after, tensor, rtol=1e-12, atol=1e-15):
            return said, hint
    since = [] if torch.equal(read, before) else [read]
    found = solved(after, [before, moved, *since, *(-rate * each for each in earlier)])
    if found is None:
        return "other weights", (
            "they are no sum of the weights and of this rank's gradients. What else is in it, or "
            "which part of it is a product or a rounding?"
        )
    there, times, *others = found
    said = f"{there:.3g} of the weights that are there, moved by its gradient {times:.3g} times"
    copy = others.pop(0) if since else 0.0
    if any(abs(each) > CLOSE for each in others):
        return f"{said}, and by those of earlier steps", (
            "they are in the weights already. What is added up from step to step, and where does "
            "it begin anew?"
        )
    if abs(copy) > CLOSE:
        return f"{said}, with {copy:.3g} of its copy", (
            "the copy is to compute the gradient with. What is there now has the others' updates "
            "in it: of that alone the gradient's part is taken."
        )
    if abs(there - 1) > CLOSE:
        return said, "only lr times the gradient is taken off: what else shrinks the weights?"
    return said, "how often is lr times the gradient taken off in a step, or by what is it divided?"


def _not_answered(clocks: Clocks) -> str:
    held = [f"worker {each} (clock {clocks.clock[each]})" for each in clocks.held]
    return f"{listed(held)} {'is' if len(held) == 1 else 'are'} not answered"
