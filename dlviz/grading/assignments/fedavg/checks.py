"""Checks of a student's federated averaging: what was seen, what was expected, one hint.

    server, client    rounds in which all clients answer: weights out, local work, updates back
    select            a random fraction of the clients
    timed_server      rounds that end at a deadline (run.py)

Each check runs the functions on real ranks for some tenths of a second. It records what the
clients did at which weights; the Trace shows the messages: how many bytes, and when the server
had whose update. One process of plain torch then has to reach the same weights.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch

from dlviz import datasets
from dlviz.federated import partition
from dlviz.grading.assignments.fedavg.hints import (
    mean,
    same,
    why_answered,
    why_average,
    why_begin,
    why_counted,
    why_gradient,
    why_rows,
)
from dlviz.grading.assignments.fedavg.model import STEP, DigitsOf, Problem
from dlviz.grading.assignments.fedavg.run import (
    DRAWS,
    TIMES,
    Averaged,
    Cohort,
    Program,
    RoundSeen,
    SelectSize,
    Stragglers,
    Timed,
    averaged,
    epochs_of,
    joined,
    selected,
    timed,
)
from dlviz.grading.harness.check import at_each, check
from dlviz.grading.harness.feedback import CheckFailed, Rehearsal, listed, number, passes
from dlviz.metrics import makespan
from dlviz.trace import Trace

__all__ = [
    "check_answered",
    "check_average",
    "check_bytes",
    "check_deadline",
    "check_local",
    "check_no_hang",
    "check_select",
    "experiment",
    "rehearse",
    "rehearse_deadline",
]
NUMBER = 8  # bytes
SPARE = 1.1  # times the bytes of the weights that a message may have: room for a number more
SLACK = 0.0005  # s of tolerance for the end of a round: half of what one message takes
CLIENTS, DIGITS, GOAL = 5, 500, 0.9  # of an experiment
COHORTS = ((3, 2, 2, 4), (2, 3, 1, 6), (4, 2, 2, 5))  # clients, rounds, epochs, batch
R = TypeVar("R", bound=Rehearsal)
Selected = tuple[SelectSize, list[list[Any]], bool]


def in_rounds(programs: Sequence[Program], sizes: Sequence[Cohort]) -> Mapping[Cohort, Any]:
    return at_each(sizes, lambda size: averaged(programs, size))


def by_deadline(
    programs: Sequence[Program], sizes: Sequence[Stragglers]
) -> Mapping[Stragglers, Any]:
    return at_each(sizes, lambda size: timed(programs[0], size))


of_rounds = partial(check, size=Cohort, sizes=COHORTS, run=in_rounds)
of_deadline = partial(check, size=Stragglers, run=by_deadline)


# -- a round ---------------------------------------------------------------------------------------


@of_rounds("each client does its local work from the server's weights", points=3)
def check_local(ran: Averaged) -> None:
    """In each round a client begins with the server's weights and a new optimizer, takes all its
    rows in each epoch, batch by batch, in a new order in each round, and makes a step with each
    gradient."""
    _check_tested(ran)
    for client in ran.problem.clients:
        _check_counted(ran, client)
        _check_order(ran, client)
        for r in range(ran.size.rounds):
            _check_steps(ran, client, r)


def _check_tested(ran: Averaged | Timed) -> None:
    made = len(ran.left[0].tested)
    if made != ran.size.rounds:
        raise CheckFailed(
            f"{ran.size}, the server has tested weights {number(made, 'time')} in "
            f"{number(ran.size.rounds, 'round')}",
            "data.test(weights) once in each round, with the new weights",
            "what does the server do at the end of a round?",
        )


def _check_counted(ran: Averaged, client: int) -> None:
    """Check for a gradient and a step for each batch of each epoch of each round."""
    own, size, batches = ran.left[client], ran.size, ran.batches(client)
    wanted = size.rounds * size.epochs * batches
    if len(own.asked) != wanted:
        raise CheckFailed(
            f"{size}, client {client}, who has {number(ran.problem.counts[client], 'row')}, has "
            f"computed {number(len(own.asked), 'gradient')}",
            f"{wanted}: {number(size.rounds, 'round')} x {epochs_of(size.epochs)} x "
            f"{number(batches, 'batch')}",
            why_counted(
                [len(rows) for _, rows, _ in own.asked],
                ran.problem.counts[client],
                size.batch,
                size.epochs,
                size.rounds,
            ),
        )
    if len(own.steps) != wanted:
        raise CheckFailed(
            f"{size}, client {client} has computed {wanted} gradients and made "
            f"{number(len(own.steps), 'step')}",
            "one step of the optimizer for each gradient",
            "a gradient moves the weights when optimizer.step(weights, gradient) is called.",
        )


def _check_order(ran: Averaged, client: int) -> None:
    size, count, each = ran.size, ran.problem.counts[client], ran.batches(client)
    rows = [asked[1] for asked in ran.left[client].asked]
    epochs = [rows[i : i + each] for i in range(0, len(rows), each)]
    for i, batches in enumerate(epochs):
        lengths = sorted((len(batch) for batch in batches), reverse=True)
        whole = sorted(row for batch in batches for row in batch) == [*range(count)]
        if not whole or any(length != size.batch for length in lengths[:-1]):
            said, hint = why_rows(batches, count, size.batch)
            raise CheckFailed(
                f"{size}, in epoch {i % size.epochs} of round {i // size.epochs} of client "
                f"{client} {said}",
                f"each of its {count} rows once in an epoch, {size.batch} in a batch",
                hint,
            )
    by_round = [epochs[r * size.epochs : (r + 1) * size.epochs] for r in range(size.rounds)]
    if all(order == by_round[0] for order in by_round):
        drawn = [row for batch in epochs[0] for row in batch] != [*range(count)]
        raise CheckFailed(
            f"{size}, client {client} takes its rows in the same order in every round: "
            f"{listed([str(row) for row in rows[0]])} first",
            "a new order in each round",
            "SGD takes the rows in a newly drawn order. Where is yours drawn, and is its generator "
            "seeded again?"
            if drawn
            else "the rows come in stored order. What draws an order?",
        )


def _check_steps(ran: Averaged, client: int, r: int) -> None:
    """Check that the steps of a round follow from each other and from the server's weights."""
    own, where = ran.left[client], f"{ran.size}, client {client}"
    asked = ran.of_round(client, own.asked, r)
    steps = ran.of_round(client, own.steps, r)
    begin = asked[0][0]
    if not same(begin, ran.before(r)):
        last = ran.of_round(client, own.steps, r - 1)[-1].after if r else None
        said, hint = why_begin(begin, ran.before(r), last, own.start)
        raise CheckFailed(
            f"{where} begins round {r} with other weights than the server has: {said}",
            "all clients begin a round with the server's weights",
            hint,
        )
    if steps[0].velocity.abs().max() > 0:
        raise CheckFailed(
            f"{where} begins round {r} with an optimizer that is moving",
            "a new optimizer, sgd(), in each round, whose velocity is zero",
            "its state belongs to old weights. Where is sgd() called?"
            if own.optimizers < ran.size.rounds
            else "its velocity comes from elsewhere: only weights are averaged and sent.",
        )
    for i, ((weights, _, gradient), step) in enumerate(zip(asked, steps, strict=True)):
        if i and not same(step.velocity, ran.follows(steps[i - 1])):
            still = not step.velocity.any()
            raise CheckFailed(
                f"{where} makes step {i} of round {r} with another velocity than its step {i - 1} "
                "left" + (": zero" if still else ""),
                "one optimizer for all steps of a round",
                "sgd() makes an optimizer with velocity zero. How often is it called in a round: "
                "inside which loop is the call?"
                if still
                else "the velocity belongs to the optimizer. What has changed it, or which "
                "optimizer has made that step?",
            )
        after = steps[i - 1].after if i else begin
        if not (same(weights, after) and same(step.before, after)):
            still = same(weights, begin)
            raise CheckFailed(
                f"{where} computes gradient {i} of round {r} at other weights than its step "
                f"{i - 1} led to" + (": at those of the round's begin" if still else ""),
                "each gradient at the weights that the step before it led to",
                "optimizer.step changes its tensor in place. Is that the one which data.gradient "
                "gets?",
            )
        if not same(step.gradient, gradient):
            known = [each[2] for each in asked[: i + 1]]
            said, hint = why_gradient(step.gradient, known, len(asked[i][1]))
            raise CheckFailed(
                f"{where} makes step {i} of round {r} by {said}",
                "optimizer.step(weights, gradient) with the gradient as it is",
                hint,
            )


@of_rounds("the server's weights are the mean by examples, as one process has it", points=4)
def check_average(ran: Averaged) -> None:
    """The server's new weights are the mean of the weights with which the clients really ended
    the round, each by its share of the examples, and the server has trained on nothing."""
    _check_tested(ran)
    if own := len(ran.left[0].asked):
        raise CheckFailed(
            f"{ran.size}, the server has computed {number(own, 'gradient')} on its own examples",
            "the clients alone train",
            "the examples of rank 0 are to test with: weights that were trained on them look "
            "better than they are.",
        )
    for client in ran.problem.clients:
        _check_heard(ran, client)
        _check_worked(ran, client)
    counts = ran.problem.clients
    for r in range(ran.size.rounds):
        ends, seen, before = ran.ends(r), ran.left[0].tested[r], ran.before(r)
        moved = before + mean(ran.changes(r), counts)  # the same where all begin with `before`
        if not same(seen, mean(ends, counts)) and not same(seen, moved):
            said, hint = why_average(seen, before, ends, counts, ran.problem.counts[0])
            raise CheckFailed(
                f"{ran.size}, after round {r} the server has {said}",
                "the mean of the clients' weights, each by its share of the examples",
                hint,
            )


def _check_heard(ran: Averaged, client: int) -> None:
    """Check that a client gets a message from the server in each round. Without one it runs
    ahead, and chance decides which updates are averaged together."""
    messages = ran.trace.messages
    heard = int(((messages.src == 0) & (messages.dst == client)).sum())
    if heard < ran.size.rounds:
        raise CheckFailed(
            f"{ran.size}, the server sends client {client} {number(heard, 'message')}",
            f"its weights in each of the {number(ran.size.rounds, 'round')}",
            "a client that does not get the mean goes on from its own weights. What does a round "
            "begin with?",
        )


def _check_worked(ran: Averaged, client: int) -> None:
    """Check that a client answers in each round, after steps: these show which weights it has
    then."""
    made, own = len(ran.answers(client)), ran.left[client]
    if made != ran.size.rounds:
        raise CheckFailed(
            f"{ran.size}, client {client} has computed {number(len(own.asked), 'gradient')}, made "
            f"{number(len(own.steps), 'step')}, and sent {number(made, 'answer')} after new steps",
            f"steps and an answer in each of the {number(ran.size.rounds, 'round')}",
            "a client sends the result of its local work once a round. Is that after all of its "
            "steps?"
            if own.steps
            else "a gradient moves the weights when optimizer.step(weights, gradient) is called.",
        )


@of_rounds("weights go out to all once a round, and one update comes back", points=2)
def check_bytes(ran: Averaged) -> None:
    """By the messages of the Trace: each client gets the bytes of the weights once a round,
    before the server waits for any answer, and sends as many back."""
    weights = NUMBER * ran.problem.net.size
    rounds, messages = ran.size.rounds, ran.trace.messages
    aside = (messages.src != 0) & (messages.dst != 0)
    if aside.any():
        src, dst = (int(column[aside][0]) for column in (messages.src, messages.dst))
        raise CheckFailed(
            f"{ran.size}, client {src} sends to client {dst}",
            "messages between the server and its clients alone",
            "clients do not know each other: who has the sum?",
        )
    for client in ran.problem.clients:
        for src, dst, what in ((0, client, "weights"), (client, 0, "updates")):
            own = (messages.src == src) & (messages.dst == dst)
            seen = int(messages.nbytes[own].sum())
            if not rounds * weights <= seen <= SPARE * rounds * weights:
                raise CheckFailed(
                    f"{ran.size}, rank {src} sends rank {dst} {seen} bytes",
                    f"{rounds * weights}: {number(rounds, 'round')} x {weights} bytes of {what}",
                    _why_bytes(seen / weights, rounds, bool(src)),
                )
    _check_at_once(ran)


def _check_at_once(ran: Averaged) -> None:
    """Check that all have their weights before the first answer of a round is received, if each
    round has one message to each client and one back."""
    messages = [*ran.trace.messages.rows()]
    sent = {k: sorted(m.sent for m in messages if m.dst == k) for k in ran.problem.clients}
    taken = {
        k: sorted(m.received or math.inf for m in messages if m.src == k)
        for k in ran.problem.clients
    }
    if {len(each) for each in (*sent.values(), *taken.values())} != {ran.size.rounds}:
        return
    for r in range(ran.size.rounds):
        first = min(taken, key=lambda k: taken[k][r])
        last = max(sent, key=lambda k: sent[k][r])
        if sent[last][r] > taken[first][r]:
            raise CheckFailed(
                f"{ran.size}, in round {r} client {last} is sent its weights after client {first} "
                "has answered",
                "all have the weights before the server waits for an answer, and work at the same "
                "time",
                "a client without weights does nothing. Which loop asks, and which one waits?",
            )


def _why_bytes(times: float, rounds: int, back: bool) -> str:
    if times >= 2 * rounds:
        return (
            "more than twice the weights are sent in a round. What else is sent? The optimizer's "
            "state stays on its rank."
        )
    if times > rounds:
        return "how often are weights sent that nobody trains with?"
    if back:
        return "each client answers in each round, with all of its weights or their change."
    return "each round begins with the server's weights, on every client. In which is nothing sent?"


# -- who takes part --------------------------------------------------------------------------------


@check(
    "a fraction of the clients, each as likely as any other",
    points=2,
    size=SelectSize,
    sizes=((7, 0.4), (4, 0.5), (7, 0.3), (4, 0.1)),
    run=lambda programs, sizes: at_each(sizes, lambda size: selected(programs[0], size)),
)
def check_select(tried: Selected) -> None:
    """Over many draws: as many different clients as the fraction says, from the given list, all
    about as often, and the same ones again from an rng in the same state."""
    size, draws, repeats = tried
    wanted, names, every = size.wanted, size.names, [each for own in draws for each in own]
    for each in every:
        if not isinstance(each, list):
            raise CheckFailed(
                f"{size}, select returns {each}",
                f"a list of {number(wanted, 'client')}",
                "which line returns the clients that were drawn?",
            )
        if len(each) != wanted or len({*each}) < len(each) or {*each} - {*names}:
            raise CheckFailed(
                f"{size}, select returns {each} of {names}",
                f"{number(wanted, 'client')}, each once, of those that are given",
                _why_chosen(each, size, every),
            )
    if not repeats:
        raise CheckFailed(
            f"{size}, an rng in the same state leads to other clients",
            "the same seed, the same clients",
            "every draw comes from rng: rng.random(), rng.sample(...), rng.shuffle(...). What else "
            "is yours drawn from?",
        )
    _check_fair(size, draws)


def _check_fair(size: SelectSize, draws: Sequence[Sequence[Any]]) -> None:
    wanted, names = size.wanted, size.names
    if wanted == size.clients:
        return
    if all({*each} == {*own[0]} for own in draws for each in own):
        raise CheckFailed(
            f"{size}, select returns the same clients in every round: {draws[0][0]}",
            "others, drawn anew in each round",
            "does the draw continue from the last one, or does it begin again?",
        )
    times = {name: sum(name in each for own in draws for each in own) for name in names}
    share = wanted / size.clients
    expected = share * DRAWS * TIMES
    far = 6 * (expected * (1 - share)) ** 0.5
    odd = max(times, key=lambda name: abs(times[name] - expected))
    if abs(times[odd] - expected) > far:
        raise CheckFailed(
            f"{size}, client {odd} is drawn {times[odd]} times in {DRAWS * TIMES} rounds",
            f"about {expected:.0f} times, as all others",
            _why_unfair(size, times, odd),
        )


def _why_unfair(size: SelectSize, times: Mapping[int, int], odd: int) -> str:
    """Why one client, or several, are drawn more or less often than the others."""
    others = [count for name, count in times.items() if name != odd]
    usual, rounds = sum(others) / len(others), DRAWS * TIMES
    if max(abs(each - usual) for each in others) > 6 * (usual * (1 - usual / rounds)) ** 0.5:
        return "each client should be as likely as any other. What distinguishes one from another?"
    at = {0: "the first", size.clients - 1: "the last"}.get(size.names.index(odd), "one")
    more = "more" if times[odd] > usual else "less"
    return (
        f"client {odd} is {at} of the list, and is drawn {more} often. All others are drawn "
        f"equally often, about {usual:.0f} times each. Which line besides the draw asks for {at}?"
    )


def _why_chosen(each: Sequence[int], size: SelectSize, every: Sequence[Sequence[int]]) -> str:
    """Why a selection is wrong, given all draws."""
    exact = size.fraction * size.clients
    if {*each} - {*size.names}:
        return "the clients' numbers may have gaps: choose only from the list."
    if len({*each}) < len(each):
        return "a client has one update a round: which draw is without replacement?"
    others = [{*own} for own in every if own and isinstance(own, list)]
    if not each and others:
        always = sorted(set.intersection(*others))
        beside = f", and client {always[0]} is in all others" if always else ""
        return (
            f"nobody is drawn in {sum(not own for own in every)} of {len(every)} rounds{beside}. "
            "Which line besides the draw decides that?"
        )
    if not each:
        return (
            f"{size.fraction:g} x {size.clients} is {exact:.3g}, and nobody is drawn, but there "
            "must be at least one. Which line ensures that?"
        )
    if len(each) == size.clients:
        return "these are all that are given. What is `fraction` for?"
    if len(each) in (math.floor(exact), math.ceil(exact)):
        return (
            f"{size.fraction:g} x {size.clients} is {exact:.3g}: round gives the nearest number, "
            "int and ceil always round to one side."
        )
    return (
        f"round({size.fraction:g} x {size.clients}) is {size.wanted}, and there is never less than "
        "one. Does each path through the function draw as many?"
    )


# -- a deadline ------------------------------------------------------------------------------------


@of_deadline(
    "a round is over when all have answered, or at the deadline",
    points=3,
    sizes=((3, 1, "123 12 123"), (4, 1, "124 123 1234"), (2, 0, "12 1 12"), (4, 2, "1234 12 3 14")),
)
def check_deadline(ran: Timed) -> None:
    """By the device's clock: the server goes on when all have answered, or `deadline` seconds
    after the round's first weights were sent."""
    _check_named(ran)
    for each in ran.rounds:
        due = each.begin + ran.size.deadline
        late = [client for client in each.asked if each.came[client] > due]
        over = due if late else max(each.came.values())
        took = 1000 * (each.end - each.begin)
        if each.end > over + SLACK:
            raise CheckFailed(
                f"{ran.size}, round {each.number} takes {took:.0f} ms",
                f"{1000 * (over - each.begin):.0f} ms, until "
                + ("the deadline" if late else "the last one has answered"),
                _why_long(each, due)
                if late
                else "all who were asked have answered by then. What is the server still waiting "
                "for?",
            )
        if each.end < over - SLACK:
            missed = [client for client in each.asked if each.came[client] > each.end]
            raise CheckFailed(
                f"{ran.size}, round {each.number} is over after {took:.0f} ms, and client "
                f"{missed[0]} has not answered",
                f"the server waits until {1000 * (over - each.begin):.0f} ms, as long as an answer "
                "can come in time",
                "an update of an earlier round has arrived meanwhile. Is it mistaken for the "
                "answer that this round waits for?"
                if _late(ran, each)
                else "how many answers does a round wait for, and what ends that loop before the "
                "deadline?",
            )


def _why_long(each: RoundSeen, due: float) -> str:
    if any(due < came <= each.end for came in each.came.values()):
        return (
            "it waits for one that comes after the deadline. The deadline is a moment, the same "
            "for all receives of a round: which one has none, or a later one?"
        )
    return "the deadline counts from the begin of the round, before the first weights are sent."


@of_deadline(
    "the weights are those of who answered, as one process has them",
    points=3,
    sizes=((3, 1, "123 12 123"), (4, 2, "1234 12 34"), (3, 1, "13 12 3 12"), (4, 1, "14 23 14 23")),
)
def check_answered(ran: Timed) -> None:
    """The Trace shows whose update of this round the server had at its end. The new weights are
    the mean of these by their examples, and the next clients get them."""
    _check_named(ran)
    counts = ran.problem.clients
    for each in ran.rounds:
        before, seen = ran.after(each.number - 1), ran.after(each.number)
        for client, got in each.sent.items():
            if not same(got, before):
                raise CheckFailed(
                    f"{ran.size}, in round {each.number} client {client} gets other weights than "
                    "the server has tested",
                    "the new weights go out in each round",
                    "which tensor holds the mean of the last round, and which one is sent?",
                )
        updates = {client: each.updates[client] for client in each.answered}
        right = before + mean(updates, counts) if updates else before
        if not same(seen, right):
            late = _late(ran, each)
            said, hint = why_answered(seen, before, updates, counts, each.asked, late)
            names = listed([str(client) for client in each.answered]) if updates else "nobody"
            raise CheckFailed(
                f"{ran.size}, after round {each.number} the server has {said}",
                f"the mean over those who answered in time, by their examples: {names}",
                hint,
            )


def _late(ran: Timed, now: RoundSeen) -> dict[int, torch.Tensor]:
    """Updates of earlier rounds received in this one."""
    begun = ran.rounds[now.number - 1].end if now.number else -np.inf
    return {
        client: each.updates[client]
        for each in ran.rounds[: now.number]
        for client, taken in each.taken.items()
        if begun < taken <= now.end
    }


def _check_named(ran: Timed) -> None:
    """Check that each message to a client names its round."""
    _check_tested(ran)
    for client in ran.problem.clients:
        own = [each for each in ran.rounds if client in each.sent]
        for each, order in zip(own, ran.left[client].orders, strict=False):
            if order.named != each.number:
                raise CheckFailed(
                    f"{ran.size}, a message to client {client} in round {each.number} begins with "
                    f"{order.named:g}",
                    f"{each.number}, the number of the round, in front of the weights",
                    "the client sends that number back with its update. Rounds count from 0.",
                )
    for each in ran.rounds:
        if not each.asked:
            raise CheckFailed(
                f"{ran.size}, nobody is asked in round {each.number}",
                "choose is called in each round, and the clients that it returns get the weights",
                "where do the clients that choose returns get their weights?",
            )


@of_deadline(
    "nobody hangs, and every update is received",
    points=1,
    sizes=((2, 1, "2 1 12"), (3, 1, "123 12 3"), (3, 2, "123 1 123")),
)
def check_no_hang(ran: Timed) -> None:
    """Also if nobody answers in a round, or one is late in the last: the server asks only
    clients that owe nothing, and leaves no update in transit."""
    _check_tested(ran)
    server = ran.left[0]
    if len(server.free) != ran.size.rounds:
        raise CheckFailed(
            f"{ran.size}, choose is called {number(len(server.free), 'time')}",
            f"once in each of the {number(ran.size.rounds, 'round')}",
            "a round asks the clients that choose returns, of those that owe no update.",
        )
    for each, free in zip(ran.rounds, server.free, strict=True):
        earlier = [other for other in ran.rounds if other.number < each.number]
        owing = {c for other in earlier for c in other.asked if other.taken[c] > each.begin}
        wanted = sorted({*ran.problem.clients} - owing)
        if sorted(free) != wanted:
            raise CheckFailed(
                f"{ran.size}, in round {each.number} choose is given clients {sorted(free)}",
                f"{wanted}, those that owe no update",
                "a client that was asked owes an update until it has been received, even if that "
                "is too late to count.",
            )
    if left := server.unreceived:
        raise CheckFailed(
            f"{ran.size}, the server returns while client {left[0]} still owes an update",
            "it waits for those updates too, and discards them",
            "a send returns when its message has been received. Who is still in one?",
        )
    if not bool(server.tested[-1].isfinite().all()):
        raise CheckFailed(
            f"{ran.size}, the weights are no numbers (NaN) in the end",
            "weights that stay unchanged if nobody answers",
            "what is divided by what, in a round in which nobody answered?",
        )
    if server.faults:
        raise CheckFailed(
            f"{ran.size}, the server {server.faults[0]}",
            "every message is in transit, or received, when the server goes on",
            "comm.send returns when the client has the weights, comm.isend immediately.",
        )


# -- to look at ------------------------------------------------------------------------------------


@dataclass(repr=False)
class RoundsRehearsal(Rehearsal):
    """A rehearsal of rounds: bytes and milliseconds."""

    nbytes: float = 0.0  # of a round
    milliseconds: float = 0.0  # of all rounds


def rehearse(
    server: Program, client: Program, clients: int = 4, rounds: int = 3
) -> RoundsRehearsal:
    """Run the student's server and clients, paced, on handwritten digits: the last client has
    ten of them, each other one ten more than the next. Two epochs, batches of 10."""
    size = Cohort(clients, rounds, epochs=2, batch=10)
    counts = [10 * (clients - i) for i in range(clients)]
    problem = _digits([*torch.arange(sum(counts)).split(counts)], rate=0.1, momentum=0.5)
    try:
        ran = averaged((server, client), size, problem, joined(clients, STEP))
    except CheckFailed as failed:
        return _stopped(RoundsRehearsal, failed, clients)
    trace = _begun(ran)
    right = [passes(each.judge, ran) for each in (check_local, check_average, check_bytes)]
    nbytes, milliseconds = trace.messages.nbytes.sum() / rounds, 1000 * makespan(trace)
    summary = (
        f"{number(clients, 'client')}; {number(rounds, 'round')} in {milliseconds:.0f} ms; "
        f"{nbytes:.0f} bytes a round; the clients do "
        f"{'their local work' if right[0] else 'other work than is asked for'}; the weights are "
        f"{'those' if right[1] else 'not those'} of one process"
    )
    return RoundsRehearsal(trace, summary, all(right), nbytes, milliseconds)


class Picked:
    """The student's select, as a timed server's `choose`."""

    def __init__(self, select: Program, fraction: float):
        self.select, self.fraction, self.rng = select, fraction, random.Random(0)

    def __call__(self, free: list[int]) -> list[int]:
        return self.select(free, self.fraction, self.rng)


def rehearse_deadline(
    timed_server: Program,
    select: Program,
    rounds: int = 4,
    fraction: float = 1.0,
    deadline: float = 0.04,
) -> RoundsRehearsal:
    """Run the student's timed server and select, paced: four clients, whose local epochs take 20
    ms, on the last one 80 ms."""
    asked = " ".join(["1234"] * rounds)
    size = Stragglers(4, 1, asked, deadline, train=0.02, apart=0.0)
    try:
        ran = timed(timed_server, size, Picked(select, fraction))
    except CheckFailed as failed:
        return _stopped(RoundsRehearsal, failed, size.clients)
    judges = (check_answered, check_deadline, check_no_hang)
    same_weights, in_time, clean = (passes(each.judge, ran) for each in judges)
    trace, made = _begun(ran), sum(len(own.orders) for own in ran.left)
    counted = sum(len(each.answered) for each in ran.rounds)
    last, first = ran.rounds[-1], ran.rounds[0]
    milliseconds = 1000 * (last.end - first.begin)
    summary = (
        f"{number(size.clients, 'client')}, the last one slow; {number(rounds, 'round')} in "
        f"{milliseconds:.0f} ms; {number(made, 'update')} made, {counted} of them in the weights; "
        f"the rounds {'end' if in_time else 'do not end'} when they should; the weights are "
        f"{'those' if same_weights else 'not those'} of one process"
    )
    right = same_weights and in_time and clean
    return RoundsRehearsal(trace, summary, right, milliseconds=milliseconds)


@dataclass(repr=False)
class Experiment(Rehearsal):
    """The share of test digits recognised after each round, and the number of rounds to GOAL (NaN:
    never)."""

    accuracy: list[float] = field(default_factory=list)
    rounds: float = math.nan


def experiment(
    server: Program, client: Program, labels: int | None = None, epochs: int = 1, rounds: int = 60
) -> Experiment:
    """Train an MLP on 500 handwritten digits with the student's program and five clients, each
    with a share of all of them, or with so many `labels` only; batches of 10, rate 0.3, no
    momentum."""
    size = Cohort(CLIENTS, rounds, epochs, batch=10)
    wanted = datasets.digits("train")[1][:DIGITS]
    parts = (
        partition.identical(wanted, CLIENTS)
        if labels is None
        else partition.by_label(wanted, CLIENTS, per_client=labels)
    )
    problem = _digits(parts, rate=0.3, momentum=0.0)
    try:
        small = averaged((server, client), Cohort(*COHORTS[0]))
        ran = averaged((server, client), size, problem, in_full=False)
    except CheckFailed as failed:
        return _stopped(Experiment, failed, CLIENTS)
    right = passes(check_local.judge, small) and passes(check_average.judge, small)
    accuracy = [problem.net.accuracy(each, *problem.data(0)) for each in ran.left[0].tested]
    reached = next((r + 1 for r, share in enumerate(accuracy) if share >= GOAL), None)
    after = number(rounds if reached is None else reached, "round")
    summary = (
        f"{CLIENTS} clients with {'all labels' if labels is None else number(labels, 'label')} "
        f"each, {epochs_of(epochs)} a round: {GOAL:.0%} of the test digits are "
        f"{'not read right' if reached is None else 'read right'} after {after}; the weights are "
        f"{'those' if right else 'not those'} of one process"
    )
    return Experiment(ran.trace, summary, right, accuracy, math.nan if reached is None else reached)


def _digits(parts: Sequence[torch.Tensor], rate: float, momentum: float) -> Problem:
    """Each client has the training digits of one part, and the server all test digits."""
    train, test = datasets.digits("train", torch.float64), datasets.digits("test", torch.float64)
    images, labels = (torch.cat(both) for both in zip(train, test, strict=True))
    own = torch.arange(len(train[1]), len(labels))
    rows = dict(enumerate([own, *parts]))
    counts = {rank: len(each) for rank, each in rows.items()}
    return DigitsOf(counts, (64, 32, 10), rate, momentum, rows, images, labels)


def _stopped(kind: type[R], failed: CheckFailed, clients: int) -> R:
    stopped = Rehearsal.stopped(failed, clients + 1)
    return kind(stopped.trace, stopped.summary)


def _begun(ran: Averaged | Timed) -> Trace:
    """The Trace without the barrier at the start."""
    return ran.trace.only(kind={*ran.trace.spans.kind} - {"collective"})
