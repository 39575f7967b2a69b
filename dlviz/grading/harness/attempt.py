"""A program's run, or why it cannot be judged: it did not finish, ready-made code did the work,
or it hid an error."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dlviz.cluster import DeadlockError, Run, RunError
from dlviz.grading.harness.feedback import CheckFailed
from dlviz.grading.harness.sandbox import ended_by, run_alone, why_ended
from dlviz.machine import Machine


@dataclass(kw_only=True)
class Left:
    """Results of any rank: calls of ready-made code, and errors of its calls, with their lines."""

    borrowed: list[str] = field(default_factory=list)
    raised: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class OwnWork:
    """What the student has to write, and a question for those who let ready-made code do it."""

    lines: str
    asks: str

    def instead_of(self, where: object, called: str) -> CheckFailed:
        hint = f"write yourself what the ready-made code does: {self.asks}"
        if "barrier" in called:
            hint = "it needs no barrier: recv and wait() return when the message has arrived."
        return CheckFailed(f"{where}, ready-made code was called: {called}", self.lines, hint)


def attempt(
    worker: Callable[..., Any],
    ranks: int,
    *args: Any,
    where: object,
    expects: str,
    known: Mapping[str, str] | Callable[[RunError], str] | None = None,
    own: OwnWork | None = None,
    called: Callable[[Run | RunError], Sequence[str]] = lambda run: (),
    stuck: Callable[[DeadlockError], tuple[str, str] | None] = lambda error: None,
    plain: bool = False,
    machine: Machine | None = None,
    times: int = 1,
) -> Run:
    """Run `worker(comm, *args)` on ranks (`run_alone`); `where` names the size in failures.

    Raises CheckFailed, caused by the RunError if any, if the run does not finish, if ready-made
    code did the student's `own` work (recorded by the ranks, or `called` in the run), or if an
    error was hidden. `known`: hints by a phrase of the error, or a function that finds one;
    `stuck`: words and a hint for a deadlock; `plain`: the student's function knows of no ranks.
    """
    try:
        run = run_alone(worker, ranks, *args, machine=machine, times=times)
    except RunError as error:
        if own is not None and (lines := called(error)):
            raise own.instead_of(where, lines[0]) from error
        said = stuck(error) if isinstance(error, DeadlockError) else None
        if said is not None:
            raise CheckFailed(f"{where}, nobody can go on: {said[0]}", expects, said[1]) from error
        why = known(error) if callable(known) else why_ended(error, known)
        raise CheckFailed(f"{where}, {ended_by(error, plain)}", expects, why) from error
    if own is not None:
        _refuse(where, run.results, own, called(run))
    return run


def _refuse(where: object, left: Sequence[Left], own: OwnWork, called: Sequence[str] = ()) -> None:
    """Raise CheckFailed if ready-made code did the work, or an error was hidden."""
    if borrowed := [*called, *(line for each in left for line in each.borrowed)]:
        raise own.instead_of(where, borrowed[0])
    for rank, each in enumerate(left):
        if each.raised:
            raise CheckFailed(
                f"{where}, rank {rank} got {each.raised[0]}, and went on",
                "no call raises an error",
                "an `except` of yours hides this error. Remove the `except`, and fix the cause of "
                "the error.",
            )
