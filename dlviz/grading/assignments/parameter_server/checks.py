"""Checks of a student's locked worker and parameter server: what was seen, what was expected, one
hint.

    work(shared, gradient, steps, lr)              a rank's steps on shared weights, under a lock
    serve(comm, weights, update, pushes, bound)    the server of workers that run ahead (run.py)

Each check runs the function on real ranks for some tenths of a second. The Trace gives the order
(of lock holds, of the server's actions); one process repeats the updates in that order and has
to reach the same weights to the last bit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch

from dlviz.grading.assignments.parameter_server.hints import (
    why_ahead,
    why_counted,
    why_held,
    why_memory,
    why_no_update,
    why_weights,
)
from dlviz.grading.assignments.parameter_server.rules import Clocks
from dlviz.grading.assignments.parameter_server.run import (
    RATE,
    Program,
    Ran,
    Served,
    Service,
    Team,
    Worked,
    events,
    gradient_of,
    served,
    worked,
)
from dlviz.grading.harness.check import at_each, check
from dlviz.grading.harness.feedback import CheckFailed, Rehearsal, number, passes
from dlviz.metrics import makespan
from dlviz.trace import Trace

__all__ = [
    "check_bound",
    "check_lock",
    "check_no_hang",
    "check_order",
    "check_parallel",
    "check_pushes",
    "check_weights",
    "rehearse",
    "rehearse_server",
]
Workers = Ran[Team, Worked]
Server = Ran[Service, Served]
INF = math.inf


def on_ranks(programs: Sequence[Program], sizes: Sequence[Team]) -> Mapping[Team, Any]:
    return at_each(sizes, lambda size: worked(programs[0], size))


def on_server(programs: Sequence[Program], sizes: Sequence[Service]) -> Mapping[Service, Any]:
    return at_each(sizes, lambda size: served(programs[0], size))


locked = partial(check, size=Team, run=on_ranks)
of_server = partial(check, size=Service, run=on_server)


# -- steps under the lock --------------------------------------------------------------------------


@locked(
    "no update is lost: the weights are those of one process",
    points=4,
    sizes=((3, 3), (2, 4), (4, 4), (1, 2)),
)
def check_lock(ran: Workers) -> None:
    """One process makes the updates in the order of the lock, each with the gradient at the
    weights that its rank read last: every update gives the same weights, to the last bit."""
    weights, ranks = ran.start, range(ran.size.ranks)
    _check_steps(ran)
    asked, made = ([0] * ran.size.ranks for _ in range(2))
    seen = [weights for _ in ranks]  # what each rank has read last
    due: list[list[torch.Tensor]] = [[] for _ in ranks]  # the gradient that is in no update yet
    made_of: list[list[torch.Tensor]] = [[] for _ in ranks]  # all gradients of each rank
    for what, rank in _in_order(ran):
        own, step = ran.left[rank], asked[rank] - 1
        if what == "hold":
            seen[rank] = weights
        elif what == "gradient":
            _check_copy(ran, rank, own.asked[asked[rank]], seen[rank])
            due[rank] = [gradient_of(seen[rank], own.examples[asked[rank]])]
            made_of[rank] += due[rank]
            asked[rank] += 1
        elif not due[rank]:
            raise CheckFailed(
                f"{ran.size}, rank {rank} has changed the weights without a new gradient",
                "one update for each gradient",
                "in how many holds of the lock does a step change the weights?",
            )
        else:
            gradient, after = due[rank].pop(), own.after[made[rank]]
            moved = weights - RATE * gradient
            if not torch.equal(after, moved):
                said, hint = why_memory(after, weights, own.asked[step], made_of[rank], RATE)
                raise CheckFailed(
                    f"{ran.size}, in step {step} rank {rank} leaves {said}",
                    "the shared weights when it has the lock, less lr times its gradient",
                    hint,
                )
            weights = moved
            made[rank] += 1
    if not all(torch.equal(own.memory, weights) for own in ran.left):
        raise CheckFailed(
            f"{ran.size}, the shared tensor holds other weights at the end",
            "the weights after the last update",
            "what has written to the weights besides the updates under the lock?",
        )


def _in_order(ran: Workers) -> list[tuple[str, int]]:
    """What the ranks did, in order: the begin and end of a lock hold, a gradient, an update."""
    found = []
    for row in ran.trace.spans.rows():
        if row.kind == "lock" and row.name == "hold":
            found += [(row.end, 0, "hold", row.rank), (row.start, 1, "hold", row.rank)]
        elif row.kind == "backward":
            found.append((row.start, 2, "gradient", row.rank))
        elif row.kind == "update":
            found.append((row.start, 3, "update", row.rank))
    return [(what, rank) for *_, what, rank in sorted(found)]


def _check_steps(ran: Workers) -> None:
    """Check that each rank computed its gradients, at weights read under the lock, and made an
    update with each."""
    _check_asked(ran)
    for rank, own in enumerate(ran.left):
        for step, weights in enumerate(own.asked):
            if weights.isnan().any():
                raise CheckFailed(
                    f"{ran.size}, rank {rank} asks for gradient {step} with weights that it has "
                    "not read under the lock",
                    "a copy of the weights, made while the rank holds the lock",
                    "without the lock others may be writing, so here shared.tensor is NaN then. "
                    "Inside which `with` is the copy made, and is it a copy (clone)?",
                )
        if len(own.after) < len(own.asked):
            raise CheckFailed(
                f"{ran.size}, rank {rank} has computed {number(len(own.asked), 'gradient')} and "
                f"made {number(len(own.after), 'update')}",
                "one update for each gradient",
                why_no_update(len(own.after), own.unlocked, own.replaced),
            )


def _check_asked(ran: Workers) -> None:
    for rank, own in enumerate(ran.left):
        if len(own.asked) != ran.size.steps:
            raise CheckFailed(
                f"{ran.size}, rank {rank} has computed {number(len(own.asked), 'gradient')}",
                f"{number(ran.size.steps, 'gradient')}, one a step",
                "gradient(weights) computes on the next examples each time. Where and how often is "
                "it called?",
            )


def _check_copy(ran: Workers, rank: int, given: torch.Tensor, seen: torch.Tensor) -> None:
    if not torch.equal(given, seen):
        raise CheckFailed(
            f"{ran.size}, rank {rank} computes a gradient with other weights than were there when "
            "it last gave up the lock",
            "the weights at that time, with its own last update in them",
            "which updates does the copy lack: is a new one made in each step, and after the "
            "rank's own update?",
        )


@locked(
    "the lock is not held while a gradient is computed",
    points=2,
    sizes=((3, 2), (2, 3), (4, 2)),
)
def check_parallel(ran: Workers) -> None:
    """No rank computes a gradient while it holds the lock, so ranks compute at the same time."""
    if not all(own.asked for own in ran.left):
        _check_asked(ran)
    if torch.equal(ran.left[0].memory, ran.start):
        unlocked = sum(own.unlocked for own in ran.left)
        replaced = sum(own.replaced for own in ran.left)
        raise CheckFailed(
            f"{ran.size}, the weights have not changed",
            "updates of the weights",
            why_no_update(0, unlocked, replaced),
        )
    spans = ran.trace.spans
    holds = spans[(spans.kind == "lock") & (spans.name == "hold")]
    for row in spans[spans.kind == "backward"].rows():
        around = (holds.rank == row.rank) & (holds.start <= row.start) & (holds.end >= row.end)
        if around.any():
            raise CheckFailed(
                f"{ran.size}, rank {row.rank} holds the lock while it computes {row.name}",
                "the lock is held to read and to update, not in between",
                "as long as one rank holds the lock, nobody else can read the weights: how many "
                "ranks compute at a time? What should the lock guard?",
            )


def rehearse(program: Program, ranks: int = 4, steps: int = 3) -> Rehearsal:
    """Run some paced steps of the student's worker."""
    size = Team(ranks, steps)
    try:
        ran = worked(program, size, paced=True)
    except CheckFailed as failed:
        return Rehearsal.stopped(failed, ranks)
    same, free = passes(check_lock.judge, ran), passes(check_parallel.judge, ran)
    updates, trace = sum(len(own.after) for own in ran.left), _begun(ran)
    summary = (
        f"{number(ranks, 'rank')}; {number(updates, 'update')} in {_ms(trace)} ms; the lock is "
        f"{'not held' if free else 'held'} while a gradient is computed; the weights are "
        f"{'those' if same else 'not those'} of one process"
    )
    return Rehearsal(trace, summary, same and free)


# -- the server ------------------------------------------------------------------------------------


@of_server(
    "each push is applied, once",
    points=2,
    sizes=((2, 3, INF, 1), (3, 2, INF, 3), (4, 1, INF, 2)),
)
def check_pushes(ran: Server) -> None:
    """The server makes one update for each push, with its gradient."""
    pushes, done = ran.size.pushes, events(ran.trace)
    for worker, most in pushes.items():
        made = sum(each == ("update", worker) for each in done)
        if made != most:
            raise CheckFailed(
                f"{ran.size}, worker {worker} has pushed {number(most, 'gradient')}, and update "
                f"was called {number(made, 'time')} for it",
                "one update for each push",
                why_counted(made, most, sum(each.what == "update" for each in done)),
            )


@of_server(
    "the answers are the weights of one process",
    points=3,
    sizes=((3, 3, 0), (2, 4, 2), (3, 2, INF), (1, 3, 1)),
)
def check_weights(ran: Server) -> None:
    """One process applies the pushes in order of arrival, each with the gradient at the weights
    that its worker had: every answer holds the same weights, to the last bit."""
    check_pushes.judge(ran)
    workers, versions = ran.size.pushes, [ran.start]
    pushed: list[tuple[int, torch.Tensor]] = []
    has = dict.fromkeys(workers, ran.start)
    steps, own = dict.fromkeys(workers, 0), dict.fromkeys(workers, 0)
    for what, worker in events(ran.trace):
        step = steps[worker]
        if what == "push":
            gradient = gradient_of(has[worker], ran.left[worker].examples[step])
            versions.append(versions[-1] - RATE * gradient)
            pushed.append((worker, gradient))
            own[worker] = len(versions) - 1
        elif what == "reply":
            got = ran.left[worker].got[step]
            if not torch.equal(got, versions[-1]):
                said, hint = why_weights(got, versions, own[worker], pushed, RATE)
                raise CheckFailed(
                    f"{ran.size}, the answer to push {step} of worker {worker} is {said}",
                    f"the weights after {number(len(versions) - 1, 'update')}, all until then",
                    hint,
                )
            has[worker] = got
            steps[worker] += 1


@of_server(
    "a worker goes on while it is no more than the bound ahead of the slowest",
    points=4,
    sizes=((3, 3, 2, 2), (2, 5, 2, 1), (3, 2, 0, 1), (4, 2, 1, 4)),
)
def check_bound(ran: Server) -> None:
    """With a worker that pushes only when no other may: a worker more than the bound ahead is
    not answered, every other one is, before the next push is received."""
    _check_answers(ran)
    clocks, ahead = Clocks(ran.size.pushes, ran.size.bound), []
    for event in events(ran.trace):
        if event.what == "reply" and not clocks.free(event.worker):
            ahead.append((event.worker, clocks.clock[event.worker], clocks.slowest))
        clocks.record(event)
    if ahead:
        worker, clock, slowest = ahead[0]
        raise CheckFailed(
            f"{ran.size}, worker {worker} is answered at clock {clock}, while the slowest is at "
            f"clock {slowest:g}",
            f"worker {worker} is held until the slowest is at clock {clock - ran.size.bound:g}",
            why_ahead(clocks, ran.let_run()),
        )


@of_server(
    "a push is applied and answered when it comes, whoever else has not pushed",
    points=2,
    sizes=((2, 3, INF, 1), (3, 2, INF, 3), (4, 1, INF, 2)),
)
def check_order(ran: Server) -> None:
    """Without a bound, and with a worker that pushes after all others have finished: each push
    is answered before the server receives the next."""
    _check_answers(ran)


@of_server(
    "nobody hangs, and each push has one answer",
    points=1,
    sizes=((2, 4, 2), (3, 1, 0), (3, 2, INF), (1, 3, 0)),
)
def check_no_hang(ran: Server) -> None:
    """The server and all workers return, though some push more than others, in an unknown order."""
    _check_answers(ran)
    if faults := ran.left[0].faults:
        raise CheckFailed(
            f"{ran.size}, the server {faults[0]}",
            "every answer is in transit, or received, when the server goes on",
            "comm.send returns when the worker has the weights, comm.isend immediately.",
        )


def _check_answers(ran: Server) -> None:
    """Check that each push has one answer, in time: a worker that may go on is answered before
    the server receives the next push."""
    clocks = Clocks(ran.size.pushes, ran.size.bound)
    for event in events(ran.trace):
        if event.what == "push" and clocks.unanswered:
            worker = clocks.unanswered[0]
            raise CheckFailed(
                f"{ran.size}, worker {worker} is at clock {clocks.clock[worker]}, the slowest at "
                f"{clocks.slowest:g}, and the server receives a push of worker {event.worker} "
                "first",
                f"worker {worker} is answered as soon as it may go on",
                why_held(clocks),
            )
        if event.what == "reply" and event.worker not in clocks.held:
            raise CheckFailed(
                f"{ran.size}, worker {event.worker} is answered a second time",
                "one answer for each push",
                "a worker that has been answered is no longer held: where is it still listed?",
            )
        clocks.record(event)


def rehearse_server(
    program: Program, workers: int = 3, pushes: int = 6, bound: float = 1, slow: float = 3
) -> Rehearsal:
    """Run the student's server, paced, with workers that make `pushes` each; the first takes
    `slow` times as long for a gradient."""
    size = Service(workers, pushes, bound, more=0)
    try:
        ran = served(program, size, slow=slow)
    except CheckFailed as failed:
        return Rehearsal.stopped(failed, workers + 1)
    same, held = passes(check_weights.judge, ran), passes(check_bound.judge, ran)
    clocks, most, trace = Clocks(size.pushes, bound), 0.0, _begun(ran)
    for event in events(trace):
        if event.what == "reply" and event.worker in clocks.going:
            most = max(most, clocks.lead(event.worker))
        clocks.record(event)
    summary = (
        f"{number(workers, 'worker')}, {size.limit}; {number(workers * pushes, 'push')} in "
        f"{_ms(trace)} ms; who goes on is at most {most:g} ahead; the weights are "
        f"{'those' if same else 'not those'} of one process"
    )
    return Rehearsal(trace, summary, same and held)


def _begun(ran: Workers | Server) -> Trace:
    """The Trace without the barrier at the start."""
    return ran.trace.only(kind={*ran.trace.spans.kind} - {"collective"})


def _ms(trace: Trace) -> str:
    return f"{1000 * makespan(trace):.0f}"
