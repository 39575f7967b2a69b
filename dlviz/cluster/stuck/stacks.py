"""Where the threads of this process are, by faulthandler: it reads all of them while none can go
on.

Frames of another thread, from `sys._current_frames`, may not be followed instead. While that thread
goes on, `f_back` can lead into memory that is something else's by then (seen with Python 3.11): a
crash, or an object that is no frame.
"""

from __future__ import annotations

import faulthandler
import os
import re
import tempfile
from typing import IO, NamedTuple

THREAD = re.compile(r"(?:Current t|T)hread 0x([0-9a-f]+)")
CALL = re.compile(r'\s*File "(.+)", line (\d+|\?+) in (.+)')
ESCAPED = re.compile(r"\\(?:x([0-9a-f]{2})|u([0-9a-f]{4})|U([0-9a-f]{8}))")  # is no ASCII


class Called(NamedTuple):
    """Where a call is, line 0 if unknown, and of which function."""

    where: tuple[str, int]  # file, line
    function: str


def stacks() -> dict[int, list[Called]]:
    """The calls of each thread (its ident) that is in Python, innermost first, a hundred at
    most."""
    with _unnamed_file() as file:
        faulthandler.dump_traceback(file)
        file.seek(0)
        return parsed(file.read().decode(errors="replace"))


def parsed(text: str) -> dict[int, list[Called]]:
    """What faulthandler wrote of all threads."""
    found: dict[int, list[Called]] = {}
    ident = 0
    for line in text.splitlines():
        if thread := THREAD.match(line):
            ident = int(thread[1], 16)
        elif call := called(line):
            found.setdefault(ident, []).append(call)
    return found


def called(line: str) -> Called | None:
    """The call in a line that faulthandler wrote; None if it has none."""
    found = CALL.match(line)
    if found is None:
        return None
    file, at, function = found.groups()
    return Called((ESCAPED.sub(_character, file), int(at) if at.isdigit() else 0), function)


def _unnamed_file() -> IO[bytes]:
    """In memory, where the system can do that."""
    if hasattr(os, "memfd_create"):
        return open(os.memfd_create("stacks"), "w+b")
    return tempfile.TemporaryFile()


def _character(escaped: re.Match[str]) -> str:
    return chr(int(escaped[1] or escaped[2] or escaped[3], 16))
