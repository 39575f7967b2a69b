"""A program's run, or why it cannot be judged: it did not come to its end, ready-made code did the
work, or it met an error and went on."""

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
    """What any rank leaves: calls of ready-made code, and errors that it met, with their lines."""

    borrowed: list[str] = field(default_factory=list)
    raised: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class OwnWork:
    """What is the student's own to write, and what to ask of who lets ready-made code do it."""

    lines: str
    asks: str

    def instead_of(self, where: object, called: str) -> CheckFailed:
        hint = f"what the ready-made code does is what you are to write: {self.asks}"
        if "barrier" in called:
            hint = "it needs no barrier: recv and wait() return when the message has come."
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
    """Run `worker(comm, *args)` on ranks (`run_alone`), `where` a check says that it did.

    Raises CheckFailed, caused by the RunError if there is one, where the run does not come to its
    end, and where what is the student's `own` was done by ready-made code, which the ranks noted or
    the run shows as `called`, or an error was hidden. `known` has hints by what stands in the
    message, or finds one; `stuck` says more of a deadlock, with a hint; `plain`: the student's
    function knows of no ranks.
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
    """Raise CheckFailed where ready-made code did the work, or an error was hidden."""
    if borrowed := [*called, *(line for each in left for line in each.borrowed)]:
        raise own.instead_of(where, borrowed[0])
    for rank, each in enumerate(left):
        if each.raised:
            raise CheckFailed(
                f"{where}, rank {rank} met {each.raised[0]}, and went on",
                "no call goes wrong",
                "an `except` of yours hides this error. Take the `except` away, and mend what the "
                "error tells of.",
            )
