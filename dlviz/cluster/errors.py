"""The exceptions of a run; each carries all that is known about the failure."""

from __future__ import annotations

import textwrap
from typing import Any

COLUMNS = 88  # that a notebook shows without breaking words


class RunError(Exception):
    """A run that did not complete.

    `rank` is the rank where it began, `traceback` that rank's traceback as text, `exitcode` its
    exit code (negative: the signal that killed it), `waits` what each rank was waiting for
    (`Wait`s), `cycle` the ranks that wait for each other in a ring, `output` what each rank
    printed, `trace` the Trace up to the failure. None where it does not apply.
    """

    def __init__(
        self,
        message: str,
        *,
        rank: int | None = None,
        traceback: str | None = None,
        exitcode: int | None = None,
        waits: list[Any] | None = None,
        cycle: list[int] | None = None,
        output: list[str] | None = None,
        trace: Any = None,
    ):
        super().__init__(message)
        self.rank = rank
        self.traceback = traceback
        self.exitcode = exitcode
        self.waits = waits
        self.cycle = cycle
        self.output = output
        self.trace = trace

    def _render_traceback_(self) -> list[str]:
        """What a notebook shows: the message, which names the line that matters, broken at spaces:
        Jupyter breaks words."""
        lines = f"{type(self).__name__}: {self}".splitlines()
        return [
            textwrap.fill(
                line,
                COLUMNS,
                subsequent_indent=" " * (len(line) - len(line.lstrip())) + "    ",
                break_long_words=False,
                break_on_hyphens=False,
            )
            for line in lines
        ]


class RankError(RunError):
    """A rank raised an exception or died."""


class DeadlockError(RunError):
    """Some ranks can never go on: each waits for another of them."""


class RunTimeout(RunError):
    """The run took longer than its `timeout`."""


class RankLost(RunError):
    """Raised inside a worker that sends to, receives from or shares a collective with a rank that
    the run has lost (see `launch`, `may_lose`), or waits for others that have stopped because of
    that: `rank` is the lost rank, `how` its end."""

    rank: int

    def __init__(self, rank: int, how: str):
        super().__init__(f"rank {rank} is lost: it {how}.", rank=rank)
        self.how = how

    def __reduce__(self) -> tuple[type[RankLost], tuple[int, str]]:
        return RankLost, (self.rank or 0, self.how)


class RunInterrupted(KeyboardInterrupt):
    """A run that was interrupted: `output` is what each rank had printed, `trace` the Trace up to
    then."""

    def __init__(self, output: list[str], trace: Any):
        super().__init__("the run was interrupted")
        self.output = output
        self.trace = trace

    _render_traceback_ = RunError._render_traceback_
