"""Remote: what the launching process knows of one rank, and how it talks to it."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pickle import UnpicklingError
from time import perf_counter, perf_counter_ns, sleep
from typing import Any, NamedTuple

from dlviz.cluster import program
from dlviz.cluster.rank import Failure
from dlviz.cluster.recording.log import RankRecord
from dlviz.cluster.recording.results import PackedResult, load
from dlviz.cluster.stuck.waits import RankState

GRACE = 1.0  # s given to a process to end, and to ranks to report what they know of a failure
PATIENCE = 1.0  # s to wait for stacks


class Lost(NamedTuple):
    """A rank that the run has lost: when (s from the run's start), and how, as in "was killed by
    signal 9"."""

    when: float
    how: str


class Remote:
    """One rank, from outside. `process` runs it, `control` is the Connection to it, `output`
    carries what it prints, `stacks` is the file that it writes its stacks to."""

    def __init__(self, number: int, process: Any, control: Any, output: Any, stacks: str):
        self.number = number
        self.process = process
        self.control = control
        self.output = output
        self.stacks = stacks
        self.result: PackedResult | None = None
        self.failure: Failure | None = None
        self.state: RankState | None = None
        self.rows: RankRecord | None = None
        self.lost: Lost | None = None
        self.host = ""  # its name, where the run is on several
        self.overdue = ""  # what should have found it finished
        self.progress: str | None = None  # name of the progress bar that it began last
        self.ended = False  # its process
        self.returned: float | None = None  # perf_counter, when its worker had
        self.leave: bool | None = None  # whether only threads of its own keep it from its end
        self.left_running: list[str] = []  # names of threads that ran when it ended
        self.pending: set[str] = set()  # questions that it has not answered yet

    @property
    def called(self) -> str:
        """The rank, and its host where the run is on several."""
        return f"rank {self.number}{f' on {self.host}' if self.host else ''}"

    @property
    def finished(self) -> bool:
        return any(end is not None for end in (self.result, self.failure, self.lost))

    @property
    def gone(self) -> bool:
        """Whether it will say no more: its process has ended, or has closed its connection."""
        return self.control.closed or (self.ended and not self.control.poll())

    @property
    def exitcode(self) -> int | None:
        return self.process.exitcode

    def send(self, data: bytes) -> None:
        with suppress(OSError):  # it has died: reading from it will show that
            self.control.send_bytes(data)

    def ask(self, question: str) -> None:
        """Ask for its "state", its "rows" or whether it can "leave", None until it has answered."""
        if self.finished or self.gone:
            return
        setattr(self, question, None)
        self.pending.add(question)
        self.send(question.encode())

    def owes_answer(self) -> bool:
        """Whether it has to answer, or has failed and is about to end."""
        owed = {"exited"} if self.finished else self.pending
        return not self.gone and not owed.isdisjoint(self.pending)

    def hear(self) -> None:
        """Take in one message."""
        try:
            what, *rest = load(self.control.recv_bytes())
        except (EOFError, OSError, UnpicklingError):
            self.control.close()
            return
        self.pending.discard(what)
        if self.finished:
            return  # an answer that was in transit: its last message says more
        match what:
            case "program":
                self.send(b"program" + program.answer(*rest))
            case "progress":
                (self.progress,) = rest
            case "returned":
                self.returned = perf_counter()
            case "state":
                (self.state,) = rest
            case "rows":
                (self.rows,) = rest
            case "leave":
                (self.leave,) = rest
            case "done":
                self.returned = self.returned or perf_counter()
                self.result, self.rows, self.state, self.left_running = rest
            case "failed":
                self.failure, self.rows, self.state = rest
                self.pending = {"exited"}

    def read(self) -> bytes:
        """Some of what it has printed; b"" when there will be no more."""
        data = os.read(self.output.fileno(), 1 << 16)
        if not data:
            self.output.close()
        return data

    def lose(self, epoch: int) -> Lost:
        """End what is left of a rank that has failed or died, or is overdue, and say what happened
        to it. `epoch` is perf_counter_ns at the run's start."""
        when, how = perf_counter_ns(), "closed its connection to the launching process"
        if self.failure is not None:
            when, code = self.failure.when, self.failure.exitcode
            how = f"raised {self.failure.summary.splitlines()[0]}"
        elif self.overdue:
            how, code = f"was still at work when {self.overdue}", None
        else:
            self.process.join(GRACE)
            code = self.exitcode
        if code is not None:
            how = f"was killed by signal {-code}" if code < 0 else f"exited with code {code}"
        self.kill(children())
        self.process.join(GRACE)
        self.result, self.pending = None, set()
        if self.failure is None:
            self.state = RankState(finished=True)
        self.lost = Lost(max(when - epoch, 0) * 1e-9, how)
        return self.lost

    def ask_stacks(self) -> None:
        """Have it write its stacks to its file."""
        with suppress(ProcessLookupError):
            os.kill(self.process.pid, signal.SIGUSR1)

    def kill(self, children: dict[int, list[int]]) -> None:
        """End the process and those that it started, in sessions of their own too, which are among
        the `children` of all processes."""
        if self.process.pid is None:
            return
        astray = _descendants(self.process.pid, children)
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.kill()  # it may have no group of its own so soon
        for pid in astray:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)

    def close(self) -> None:
        if self.process.pid is not None:
            self.process.join()
            self.process.close()
        self.control.close()
        self.output.close()


def children() -> dict[int, list[int]]:
    """The processes of this machine by the one whose children they are (Linux; elsewhere {})."""
    found: dict[int, list[int]] = {}
    for name in os.listdir("/proc") if os.path.isdir("/proc/self") else ():
        if name.isdigit():
            with suppress(OSError), open(f"/proc/{name}/stat") as file:
                parent = int(file.read().rpartition(")")[2].split()[1])
                found.setdefault(parent, []).append(int(name))
    return found


def _descendants(root: int, children: dict[int, list[int]]) -> list[int]:
    """The processes below another one: those whose parent has not gone."""
    found, left = [], [root]
    while left:
        left += (below := children.get(left.pop(), []))
        found += below
    return found


def write_stacks(ranks: list[Remote]) -> None:
    """Have ranks write their stacks to their files. The last thing to ask of them: a thread that
    runs while another one writes its stack may crash."""
    for rank in ranks:
        rank.ask_stacks()
    seen: list[int] = []
    quiet, until = 0, perf_counter() + PATIENCE
    while quiet < 3 and perf_counter() < until:
        sleep(0.02)
        sizes = [os.path.getsize(rank.stacks) for rank in ranks if os.path.exists(rank.stacks)]
        quiet = quiet + 1 if len(sizes) == len(ranks) and all(sizes) and sizes == seen else 0
        seen = sizes
