"""What a run warns of: immediately in a script, and once for a cell in a notebook.

A cell may start many runs, and on a busy machine most of the paced ones are late. Each warning by
itself would bury the cell's output, so it is one sentence after the cell:

    5 of 6 runs were late (up to 230 ms): other programs had 60 % of the processors; their times are
    not reliable. Close other programs and run the cell again.
"""

from __future__ import annotations

import math
import sys
import warnings
from dataclasses import dataclass, field
from typing import Any

from dlviz.trace import Trace

MORE_TIME = "give the machine more time: a larger step, or fewer flops where it has none"
SHARE = 0.05  # of a run's operations: so many may take longer than the machine says
OTHERS = 0.1  # of the processors: what other programs may have before they are the cause
CLOSE, AGAIN = "close other programs and run it again", "run it again"
FEWER = "run it again, or take fewer ranks"


@dataclass
class Cell:
    """The runs of one cell: how many were paced, the late ones' meta, other warnings."""

    paced: int = 0
    late: list[dict[str, Any]] = field(default_factory=list)
    others: list[str] = field(default_factory=list)


_cell = Cell()


def late(meta: dict[str, Any]) -> str:
    """The warning of a paced run that was late; else ""."""
    if overran(meta):
        return (
            f"the run could not keep its pace: the math of {meta['overruns']} of "
            f"{meta['operations']} operations took longer than the machine says, so its times are "
            f"not reliable; {MORE_TIME}, or use fewer ranks."
        )
    worst = meta["lateness"]["worst"]
    if worst <= meta["tolerance"]:
        return ""
    cause, mend = cause_of(meta)
    return (
        f"the run was up to {worst * 1e3:.0f} ms late: {cause}, so its times are not reliable; "
        f"{mend}, or {MORE_TIME}."
    )


def cause_of(meta: dict[str, Any]) -> tuple[str, str]:
    """What made a paced run late whose math did not, and what helps."""
    others, ranks, processors = meta["others"], meta["ranks"], meta["processors"]
    if others is not None and others > OTHERS:
        return f"other programs had {100 * others:.0f} % of the processors", CLOSE
    if ranks > processors:
        return f"{ranks} ranks share {processors} processor{'s' * (processors > 1)}", FEWER
    return "the system woke ranks late", AGAIN


def overran(meta: dict[str, Any]) -> bool:
    """Whether a run's math took longer than its machine says."""
    return meta["overruns"] > SHARE * meta["operations"]


def warn(trace: Trace) -> None:
    """Warn (RuntimeWarning) of a run that was late, of a message that nobody received and of a
    thread that did not end; in a cell of IPython say so after the cell instead, where no filter
    hides such warnings."""
    shell = _shell()
    if shell is None:
        for words in filter(None, (trace.meta.get("warning"), *_remarks(trace))):
            warnings.warn(words, RuntimeWarning, stacklevel=3)
        return
    if _cell == Cell():
        shell.events.register("post_execute", _warn_after_cell)
    _cell.paced += trace.meta["clock"] == "paced"
    if trace.meta.get("warning") and _let_through(trace.meta["warning"]):
        _cell.late.append(trace.meta)
    for words in filter(None, _remarks(trace)):
        _cell.others += [words] * _let_through(words)


def summary(cell: Cell) -> list[str]:
    """The warnings of a cell: a line on the late runs, a line on each other thing."""
    if not cell.late:
        return [*dict.fromkeys(cell.others)]
    one = len(cell.late) == 1
    worst = max(meta["lateness"]["worst"] for meta in cell.late)
    who = f"{len(cell.late)} of {cell.paced} runs {'was' if one else 'were'}"
    if cell.paced == 1:
        who = "The run was"
    others = sorted((m["others"] or 0.0, *cause_of(m)) for m in cell.late if not overran(m))
    causes = {mend: cause for _, cause, mend in others}  # of each mend the worst
    if any(map(overran, cell.late)):
        causes[MORE_TIME] = f"{'its' if one else 'their'} math took longer than the machine says"
    mend = ", or ".join(causes)
    line = (
        f"{who} late (up to {worst * 1e3:.0f} ms): {' and '.join(causes.values())}; "
        f"{'its' if one else 'their'} times are not reliable. {mend[0].upper()}{mend[1:]}."
    )
    return [line, *dict.fromkeys(cell.others)]


def _warn_after_cell() -> None:
    """After a cell: warn of its runs, and forget them."""
    global _cell
    cell, _cell = _cell, Cell()
    _ipython().events.unregister("post_execute", _warn_after_cell)
    for line in summary(cell):
        print(line, file=sys.stderr)


def _shell() -> Any:
    """The IPython that is running a cell; None where there is none, or it runs something else."""
    shell = _ipython()
    return shell if shell is not None and shell.display_trap.is_active else None


def _ipython() -> Any:
    return sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None


def _let_through(words: str) -> bool:
    """Whether the filters in force let such a warning through. Raises it where they say so."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.warn(words, RuntimeWarning, stacklevel=2)
    return bool(caught)


def _remarks(trace: Trace) -> tuple[str, str]:
    return _unreceived(trace), _left_running(trace)


def _left_running(trace: Trace) -> str:
    threads = [
        (n, name) for n, names in trace.meta.get("left_running", {}).items() for name in names
    ]
    if not threads:
        return ""
    rank, name = threads[0]
    more = f" (and {len(threads) - 1} more such)" if len(threads) > 1 else ""
    return (
        f"rank {rank} has its result, and its thread {name!r}{more} was still running when the "
        "run ended: end it in the worker, or make it a daemon."
    )


def _unreceived(trace: Trace) -> str:
    lost = trace.meta.get("lost", {})
    rows = [
        row
        for row in trace.messages.rows()
        if (row.received is None or math.isnan(row.received))
        and not {str(row.src), str(row.dst)} & lost.keys()
    ]
    if not rows:
        return ""
    more = f" (and {len(rows) - 1} more such)" if len(rows) > 1 else ""
    return f"rank {rows[0].src} sent rank {rows[0].dst} a message that it never received{more}"
