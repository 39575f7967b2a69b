"""What a check says to a student: what was seen, what was expected, and one hint."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from traceback import walk_tb
from typing import Any

from dlviz.cluster import RunError, show_line
from dlviz.trace import Trace
from dlviz.trace.recorder import is_inside

WIDTH = 88  # columns of a notebook's output
PACKAGE = str(Path(__file__).parents[2])


class CheckFailed(Exception):
    """A failure: what was `seen`, what was `expected`, and a `hint`."""

    def __init__(self, seen: str, expected: str, hint: str):
        super().__init__(seen, expected, hint)
        self.seen = seen
        self.expected = expected
        self.hint = hint

    def __str__(self) -> str:
        return f"Seen:     {self.seen}\nExpected: {self.expected}\nHint:     {self.hint}"

    @property
    def in_short(self) -> str:
        """Without what was expected, for a rehearsal."""
        return f"{self.seen[0].upper()}{self.seen[1:]}\nHint: {self.hint}"


def passes(judge: Callable[[Any], Any], left: Any) -> bool:
    """Whether a program's results pass a judge."""
    try:
        judge(left)
    except CheckFailed:
        return False
    return True


@dataclass
class Rehearsal:
    """A run of the student's program to look at: its Trace (up to a failure), a summary, and
    whether the result is right."""

    trace: Trace
    summary: str
    right: bool = False

    def __repr__(self) -> str:
        return "\n".join(wrapped(self.summary))

    @staticmethod
    def stopped(failed: CheckFailed, ranks: int) -> Rehearsal:
        """The rehearsal of a run that did not finish: what happened until then."""
        error = failed.__cause__
        begun = error.trace if isinstance(error, RunError) else None
        return Rehearsal(Trace(meta={"ranks": ranks}) if begun is None else begun, failed.in_short)


def in_traceback(traceback: str) -> str:
    """The student's line in a traceback: the innermost one outside libraries."""
    frames = re.findall(r'^ +(?:File "([^"]+)"|cell), line (\d+), in .*\n +(.+)', traceback, re.M)
    for file, line, code in reversed(frames):
        if not is_inside(file):
            return f", at {f'{Path(file).name}:' if file else 'cell line '}{line}: {code}"
    return ""


def raised(error: BaseException) -> str:
    """An error of the student's code in this process, and its line."""
    said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    lines = [(f.f_code.co_filename, line) for f, line in walk_tb(error.__traceback__)]
    for file, line in reversed(lines):
        if not is_inside(file):
            return f"{said}, at {shown_line(f'{file}:{line}')}"
    return said


def shown_line(where: str) -> str:
    """`file:line` with that line's text, and the file without its folders."""
    file = where.rpartition(":")[0]
    return show_line(where).replace(file, Path(file).name)


def wrapped(message: str) -> list[str]:
    """A message's lines, wrapped for a page that does not wrap them."""
    lines = []
    for line in message.splitlines():
        first = len(line) - len(line.lstrip())
        after = " " * (10 if re.match(r"(Seen|Expected|Hint):", line) else first + 2)
        lines += textwrap.wrap(line, WIDTH, subsequent_indent=after, break_on_hyphens=False)
    return lines


def number(count: float, what: str) -> str:
    """ "1 rank", "4 microbatches"."""
    plural = f"{what}es" if what.endswith(("ch", "sh")) else f"{what}s"
    return f"{count} {what if count == 1 else plural}"


def listed(items: list[str]) -> str:
    """ "2, 3 and 5"."""
    *most, last = items
    return f"{', '.join(most)} and {last}" if most else last
