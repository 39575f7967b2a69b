"""The lines of the program that a Trace's spans came from, as far as they can still be read."""

from __future__ import annotations

import linecache
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlviz.trace.recorder import CELL, is_inside

if TYPE_CHECKING:
    from dlviz.trace import Trace

WHOLE = 120  # lines: of a longer file only those near a used line are shown
NEAR = 4  # lines before and after


def sources(trace: Trace) -> dict[str, dict[str, Any]]:
    """For each file that a span names in `where`: a label, and lines as [number, text, used].

    A notebook's cell is read from the kernel that ran it. A file that cannot be read is left out;
    so are dlviz's own, unless spans name no others.
    """
    used: dict[str, set[int]] = {}
    for where in set(trace.spans.where.tolist()):
        file, _, line = where.rpartition(":")
        if file and line.isdigit():
            used.setdefault(file, set()).add(int(line))
    found, cells = {}, 0
    for file in sorted([file for file in used if not is_inside(file)] or used):
        lines = linecache.getlines(file)
        if not lines or max(used[file]) > len(lines):
            continue
        is_cell = bool(re.search(CELL, file))
        cells += is_cell
        label = "the worker's cell" if is_cell else Path(file).name
        if cells > 1 and is_cell:
            label += f" ({cells})"
        shown = [
            [number, text.rstrip("\n"), number in used[file]]
            for number, text in enumerate(lines, 1)
            if len(lines) <= WHOLE or any(abs(number - one) <= NEAR for one in used[file])
        ]
        found[file] = {"label": label, "lines": shown}
    return found
