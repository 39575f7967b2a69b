"""Where the threads of this process are, as faulthandler tells: it reads all of them while none can
go on.

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
FRAME = re.compile(r'  File "(.*)", line (\d+) in (.*)')
ESCAPED = re.compile(r"\\(?:x([0-9a-f]{2})|u([0-9a-f]{4})|U([0-9a-f]{8}))")  # is no ASCII


class StackLine(NamedTuple):
    """Where a call of a function has come to."""

    file: str
    line: int
    function: str


def stacks() -> dict[int, list[StackLine]]:
    """The calls of each thread (its ident), innermost first, a hundred at most."""
    with _unnamed_file() as file:
        faulthandler.dump_traceback(file)
        file.seek(0)
        text = file.read().decode(errors="replace")
    found: dict[int, list[StackLine]] = {}
    calls: list[StackLine] = []
    for line in text.splitlines():
        if thread := THREAD.match(line):
            calls = found[int(thread[1], 16)] = []
        elif frame := FRAME.match(line):
            calls.append(StackLine(ESCAPED.sub(_character, frame[1]), int(frame[2]), frame[3]))
    return found


def _unnamed_file() -> IO[bytes]:
    """In memory, where the system can do that."""
    if hasattr(os, "memfd_create"):
        return open(os.memfd_create("stacks"), "w+b")
    return tempfile.TemporaryFile()


def _character(escaped: re.Match[str]) -> str:
    return chr(int(escaped[1] or escaped[2] or escaped[3], 16))
