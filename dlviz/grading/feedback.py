"""What a check tells a student: what was seen, what was expected, and one hint.

Whatever ended a student's program, in this process or on a rank, is told of in a few lines, with
the line of the student's code.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from pathlib import Path
from traceback import walk_tb

from dlviz.cluster import DeadlockError, RunError, RunTimeout
from dlviz.cluster.waits import show_line
from dlviz.trace import Trace
from dlviz.trace.recorder import is_inside

WIDTH = 88  # columns of what a notebook shows
PACKAGE = str(Path(__file__).parents[1])
NOT_WRITTEN = "this function is still to be written, in place of its raise."


class CheckFailed(AssertionError):
    """A check that was not passed: what was `seen`, what was `expected`, and a `hint`."""

    def __init__(self, seen: str, expected: str, hint: str):
        super().__init__(f"Seen:     {seen}\nExpected: {expected}\nHint:     {hint}")
        self.seen = seen
        self.expected = expected
        self.hint = hint

    def _render_traceback_(self) -> list[str]:
        """What a notebook shows: the message, not the lines of the check."""
        return ["Not yet.", *wrapped(str(self))]


@dataclass
class Rehearsal:
    """A run of the student's functions to look at: its Trace (up to where it failed), what it came
    to."""

    trace: Trace
    told: str

    def __repr__(self) -> str:
        return "\n".join(wrapped(self.told))


def ended_by(error: RunError) -> str:
    """What ended a run, in a few lines."""
    first = str(error).partition("\n\n")[0]
    if isinstance(error, DeadlockError | RunTimeout):
        return first
    return f"{first.splitlines()[0].rstrip('.')}{_in_traceback(error.traceback or '')}"


def _in_traceback(traceback: str) -> str:
    """Where the student's code was, by the traceback's innermost line that is not dlviz's."""
    frames = re.findall(r'^ +(?:File "([^"]+)"|cell), line (\d+), in .*\n +(.+)', traceback, re.M)
    for file, line, code in reversed(frames):
        if not file.startswith(PACKAGE):
            return f", at {f'{Path(file).name}:' if file else 'cell line '}{line}: {code}"
    return ""


def raised(error: BaseException) -> str:
    """What an error of the student's code in this process was, and at which line."""
    said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    lines = [(f.f_code.co_filename, line) for f, line in walk_tb(error.__traceback__)]
    for file, line in reversed(lines):
        if not is_inside(file):
            return f"{said}, at {show_line(f'{file}:{line}').replace(file, Path(file).name)}"
    return said


def wrapped(message: str) -> list[str]:
    """Its lines for a page that does not wrap them itself."""
    lines = []
    for line in message.splitlines():
        first = len(line) - len(line.lstrip())
        after = " " * max(first + 2, 10)
        lines += textwrap.wrap(line, WIDTH, subsequent_indent=after, break_on_hyphens=False)
    return lines
