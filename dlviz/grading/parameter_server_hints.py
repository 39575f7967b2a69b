"""Hints for the locked worker and the parameter server that a student wrote: what may be behind
what a check saw."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from dlviz.cluster.stuck.waits import SENDS, Wait
from dlviz.grading.feedback import listed, number
from dlviz.grading.parameter_server_rules import Clocks, Event

HOW_MANY = "how many pushes come in all? pushes[worker] says how many of each worker."


def why_stuck(clocks: Clocks, done: Sequence[Event], server: Wait | None) -> tuple[str, str]:
    """What a server waits for that never comes, and a hint. `server` is its wait, None where the
    program has returned."""
    for event in done:
        clocks.note(event)
    if server is None:
        if clocks.held:
            return f"the server has returned, and {_not_answered(clocks)}", (
                "every push is answered, the last one of each worker too: who is still held when "
                "the last push has come?"
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
        return (
            f"worker {worker} has pushed its last gradient: it starts no further iteration, so "
            "nothing can keep it from being answered."
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


def why_ahead(clocks: Clocks, most: float) -> str:
    """Why a worker is answered that is too far ahead; `most` is the largest lead of the run."""
    if most > clocks.bound + 1:
        return (
            f"later a worker is even {most:g} ahead. From whose clock is the bound counted: the "
            "slowest worker's?"
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


def why_weights(got: torch.Tensor, versions: Sequence[torch.Tensor], own: int) -> tuple[str, str]:
    """What an answer is that is not the last of the `versions` of the weights, and a hint. Version
    `own` is the first that holds the worker's gradient."""
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
    return "no weights that the updates lead to", (
        "with which tensor is update called, and does that still hold the gradient of this worker "
        "then? A push that is received into it replaces what it held."
    )


def why_memory(
    after: torch.Tensor,
    before: torch.Tensor,
    read: torch.Tensor,
    gradient: torch.Tensor,
    rate: float,
) -> tuple[str, str]:
    """What a rank has put into the shared tensor instead of `before` less `rate` times `gradient`,
    and a hint. `read` are the weights that the gradient was computed with."""
    moved = -rate * gradient
    parts = {
        "the weights that it had read, moved by its gradient": (
            read + moved,
            "the other ranks' updates since then are overwritten. Of what is the gradient's part "
            "to be taken: of the copy, or of what is there now?",
        ),
        "the weights moved by its gradient twice": (
            before + 2 * moved,
            "how often is the gradient taken off in a step?",
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
    return "other weights", (
        "W - lr·g, with the weights W that are there now and the gradient g of this step: what "
        "else is in it?"
    )


def _not_answered(clocks: Clocks) -> str:
    held = [f"worker {each} (clock {clocks.clock[each]})" for each in clocks.held]
    return f"{listed(held)} {'is' if len(held) == 1 else 'are'} not answered"
