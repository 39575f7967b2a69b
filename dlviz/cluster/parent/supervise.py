"""Supervisor: starts the ranks of a run, watches over them, and takes in what they leave.

It sits in one loop: it prints what the ranks print, draws their progress, notices a rank that fails
or dies, and looks at who waits for whom. Whatever happens, no process, descriptor or file is left
when it is done.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from multiprocessing.connection import wait as wait_for
from time import perf_counter, perf_counter_ns, sleep
from typing import Any, Self

from dlviz.cluster.control.board import EPOCH, WAITING, WANTS, Board
from dlviz.cluster.control.pipes import IN_VAIN, loss, write_to
from dlviz.cluster.errors import DeadlockError, RankError, RunInterrupted, RunTimeout
from dlviz.cluster.pacing.ledger import bytes_of
from dlviz.cluster.parent import start
from dlviz.cluster.parent.interrupts import Interrupts
from dlviz.cluster.parent.output import Output, Progress
from dlviz.cluster.parent.remote import GRACE, Lost, Remote, children, write_stacks
from dlviz.cluster.rank import Failure, Place, main
from dlviz.cluster.recording import collect, exceptions
from dlviz.cluster.recording.results import PackedResult, unpack
from dlviz.cluster.stuck import verdict
from dlviz.cluster.stuck.waits import RankState, Wait, in_vain
from dlviz.cluster.stuck.watch import TICK, Watchdog
from dlviz.machine import Machine
from dlviz.trace import Trace

SETTLED = 0.2  # s until a process that died is known to be dead
LEAVING = 5.0  # s for ranks to end that leave threads
LINGER = 5.0  # s that threads may go on when all workers have returned
NEWS = 2.0  # s to wait for the death of a rank after another has lost its connection to it


class Supervisor:
    """One run, seen from the parent. A context manager: leaving it ends every process and removes
    every file."""

    def __init__(
        self,
        ranks: int,
        machine: Machine | None,
        device: str,
        timeout: float,
        progress: Progress,
        may_lose: frozenset[int] = frozenset(),
    ):
        self.machine = machine
        self.device = device
        self.timeout = timeout
        self.started = perf_counter()
        self.seed: int | None = None  # of the ranks' generators, where it is one for all
        self.ranks: list[Remote] = []
        self.output = Output(ranks)
        self.progress = progress
        self._size = ranks
        self._may_lose = may_lose
        self._lingers = True  # the run, while threads go on
        self._unsent: list[tuple[int, bytes]] = []  # ranks, and records of losses for them
        self._given_up: set[tuple[int, ...]] = set()  # rank, lost rank, and beginnings of its waits
        self._left = ExitStack()

    def __enter__(self) -> Self:
        ledger = bytes_of(self.machine, self._size)
        try:
            self._interrupts = self._left.enter_context(Interrupts())
            self._folder = self._left.enter_context(start.run_folder())
            self.board = Board(os.path.join(self._folder, "board"), self._size, ledger, create=True)
            self._left.callback(self.board.close)
            self._prepare()
            environ = dict(os.environ)
            with start.starting():
                for number in range(self._size):
                    self._interrupts.check()
                    self.progress.starting(number, self._size)
                    self._start(self._place(number, ledger), environ)
        except BaseException as error:
            self.__exit__(type(error), error, error.__traceback__)
            raise
        self._watch = Watchdog(self.board, self.ranks)
        return self

    def _prepare(self) -> None:
        """Prepare what the ranks need besides folder and board."""

    def _place(self, number: int, ledger: int) -> Place:
        on = self.device, self.machine, self._may_lose
        return Place(self._folder, number, self._size, ledger, *on)

    def _start(self, place: Place, environ: dict[str, str]) -> None:
        try:
            control, its_control = start.context.Pipe()
            output, its_output = start.context.Pipe(duplex=False)
            process = start.context.Process(
                target=main,
                args=(place, its_control, its_output, environ),
                name=f"rank {place.rank}",
                daemon=True,
            )
            self.ranks.append(Remote(place.rank, process, control, output, place.stacks))
            try:
                process.start()
            except (ConnectionError, EOFError):  # the fork server has died; another one will come
                sleep(SETTLED)
                process.start()
        except (OSError, EOFError) as error:
            raise RankError(
                f"rank {place.rank} could not be started ({error}): the system has no room for "
                "another process; use fewer ranks.",
                rank=place.rank,
            ) from None
        its_control.close()
        its_output.close()

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        alive = children()
        for rank in self.ranks:
            rank.kill(alive)
        for rank in self.ranks:
            rank.close()
        self.progress.close()
        self._left.__exit__(kind, error, trace)

    # -- the loop ------------------------------------------------------------------------------
    def run(self, jobs: Mapping[int, bytes]) -> tuple[list[Any], list[str], Trace]:
        """Have the ranks do their jobs; returns results, outputs and Trace, or raises RunError, or
        RunInterrupted."""
        try:
            for number, job in jobs.items():
                self.ranks[number].send(job)
            while any(rank.result is None and rank.lost is None for rank in self.ranks):
                self._turn(TICK)
                self._interrupts.check()
                self._judge()
            self._drain()
            return self._results(), self.output.texts(), self._trace("completed")
        except KeyboardInterrupt:
            raise self._interrupted() from None

    def _turn(self, timeout: float) -> None:
        """Take in what the ranks say and print, waiting for up to `timeout` seconds."""
        sources = self._sources()
        for source in wait_for(list(sources), timeout):
            sources[source]()
        self.progress.show(self.board, self.ranks)

    def _sources(self) -> dict[Any, Callable[[], None]]:
        """What may have news, and what takes them in."""
        sources: dict[Any, Callable[[], None]] = {}
        for rank in self.ranks:
            if not rank.output.closed:
                sources[rank.output] = partial(self._print, rank)
            if not rank.control.closed:
                sources[rank.control] = partial(self._talk, rank)
            if not rank.ended:
                sources[rank.process.sentinel] = partial(self._end, rank)
        return sources

    def _print(self, rank: Remote) -> None:
        self.output.add(rank.number, rank.read())

    def _talk(self, rank: Remote) -> None:
        rank.hear()

    def _end(self, rank: Remote) -> None:
        rank.ended = True

    def _judge(self) -> None:
        """Record which ranks are lost; raise if the run cannot complete."""
        self._count_losses()
        left = [rank for rank in self.ranks if rank.lost is None]
        dead = [rank for rank in left if rank.gone and rank.failure is None]
        if dead:
            raise self._death(dead[0])
        failures = {rank.number: rank.failure for rank in left if rank.failure is not None}
        if failures:
            first, failure = verdict.origin(failures)
            if failure.lost_peer and perf_counter_ns() - failure.when < NEWS * 1e9:
                return  # somebody must have died
            raise self._failure(first, failure)
        states = None if self._unsent else self._watch.look()
        if states is not None and not self._end_waits(states):
            raise self._deadlock(states)
        self._leave_threads()
        if perf_counter() - self.started > self.timeout:
            self._end_late()

    # -- losses --------------------------------------------------------------------------------
    def _count_losses(self) -> None:
        """Give up the ranks that the run may lose and that have failed or died since all had
        joined, or are overdue, and report them to the others, each as soon as its pipe has room."""
        epoch = self.board.get(0, EPOCH)
        for number in self._may_lose if epoch else ():
            rank = self.ranks[number]
            if rank.lost is None and (rank.gone or rank.failure is not None or rank.overdue):
                record = loss(number, rank.lose(epoch).how)
                for cell in (WAITING, WANTS):  # it needs no serving
                    self.board.put(number, cell, 0)
                self._unsent += [(other, record) for other in range(self._size) if other != number]
        self._unsent = [each for each in self._unsent if not write_to(self._folder, *each)]

    def _end_waits(self, states: dict[int, RankState]) -> bool:
        """Have the ranks of a deadlock raise RankLost that wait for one which has stopped because
        of a loss: whether there are any, that do not know so from these waits."""
        found = {
            (rank, lost, *(wait.since for wait in states[rank].waits))
            for rank, lost in in_vain(states).items()
        }
        for rank, lost, *_ in found - self._given_up:
            self._unsent.append((rank, loss(lost, self.lost[lost].how, IN_VAIN)))
        self._given_up |= found
        return bool(self._unsent)

    def _leave_threads(self) -> None:
        """Once all workers have returned, and the last did so a while ago: end without threads that
        still go on."""
        returned = [rank.returned or math.inf for rank in self.ranks if rank.lost is None]
        since = max(returned, default=math.inf)
        if self._lingers and perf_counter() - since > LINGER:
            self._lingers = False
            for rank in self.ranks:
                rank.ask("leave")

    def _end_late(self) -> None:
        """The time is up: leave the threads whose rank has only these to wait for, and lose the
        ranks that are still at work. Raises RunTimeout if the run may not lose all of them."""
        left = [rank for rank in self.ranks if not rank.finished]
        for rank in left:
            rank.ask("leave")
        self._await_answers()
        late = [rank for rank in left if not rank.finished and not rank.leave]
        if perf_counter() - self.started > self.timeout + LEAVING:
            late = left
        if not self.board.get(0, EPOCH) or not self._may_lose.issuperset(r.number for r in late):
            raise self._timeout()
        for rank in late:
            rank.overdue = f"the time of the run, {self.timeout:g} s, was up"

    @property
    def lost(self) -> dict[int, Lost]:
        """The ranks that the run has lost."""
        return {rank.number: rank.lost for rank in self.ranks if rank.lost is not None}

    # -- failures ------------------------------------------------------------------------------
    def _failure(self, rank: int, failure: Failure) -> RankError:
        raised = verdict.failure(self.ranks[rank], failure)
        error = RankError(
            f"{raised}\n\n{failure.traceback}",
            rank=rank,
            traceback=failure.traceback,
            exitcode=failure.exitcode,
            **self._gather(raised),
        )
        error.__cause__ = exceptions.unpack(failure.error)
        return error

    def _death(self, rank: Remote) -> RankError:
        rank.process.join(GRACE)
        death = verdict.death(rank)
        details = self._gather(death)
        stack = verdict.crash(rank)
        message = "\n  ".join([death, *verdict.waits_for_dead(rank, details["waits"] or [])])
        return RankError(
            f"{message}\n\n{stack}" if stack else message,
            rank=rank.number,
            exitcode=rank.exitcode,
            traceback=stack or None,
            **details,
        )

    def _deadlock(self, states: dict[int, RankState]) -> DeadlockError:
        found = verdict.deadlock(states, self._size, set(self.lost))
        details = self._gather(found.sentence, found.waits, found.cycle)
        return DeadlockError(found.message, cycle=found.cycle, **details)

    def _timeout(self) -> RunTimeout:
        details = self._gather(verdict.out_of_time(self.timeout))
        write_stacks([rank for rank in self.ranks if not rank.finished and not rank.gone])
        message, stacks = verdict.timeout(self.timeout, self.ranks)
        return RunTimeout(message, traceback=stacks, **details)

    def _interrupted(self) -> RunInterrupted:
        left = self._gather("the run was interrupted")
        return RunInterrupted(left["output"], left["trace"])

    def _gather(
        self, what: str, waits: list[Wait] | None = None, cycle: list[int] | None = None
    ) -> dict[str, Any]:
        """What every error carries: the waits (those given, or all), the output and the Trace up to
        the failure, which says `what` it was and who waited for whom."""
        for rank in self.ranks:
            rank.ask("state")
            rank.ask("rows")
        self._await_answers()
        self._drain()
        if waits is None:
            waits = [wait for rank in self.ranks if rank.state for wait in rank.state.waits]
        return {
            "waits": waits or None,
            "output": self.output.texts(),
            "trace": self._trace("failed", collect.Failed(what, waits, cycle or [])),
        }

    def _await_answers(self) -> None:
        until = perf_counter() + GRACE
        while perf_counter() < until and any(rank.owes_answer() for rank in self.ranks):
            self._turn(TICK)

    # -- what a run leaves ---------------------------------------------------------------------
    def _drain(self) -> None:
        """Take in what has been printed already, and show what no newline ends."""
        until = perf_counter() + GRACE  # a rank may print for ever
        while perf_counter() < until and wait_for(
            [rank.output for rank in self.ranks if not rank.output.closed], 0
        ):
            self._turn(0)
        self.output.flush()

    def _results(self) -> list[Any]:
        """What the ranks returned. Large tensors are fetched only now."""
        parcels = [rank.result or PackedResult() for rank in self.ranks]
        total, done = sum(parcel.left for parcel in parcels), 0

        def taken(nbytes: int) -> None:
            nonlocal done
            done += nbytes
            self.progress.fetching(done, total)
            self._interrupts.check()

        return [None if rank.lost else self._unpack(rank, taken) for rank in self.ranks]

    def _unpack(self, rank: Remote, taken: Callable[[int], None]) -> Any:
        try:
            return unpack(rank.result or PackedResult(), taken)
        except Exception as error:
            reason = (
                f"rank {rank.number} returned something that cannot be read back here "
                f"({type(error).__name__}: {error})"
            )
            raise RankError(
                f"{reason}: return tensors, numbers, lists or dicts.",
                rank=rank.number,
                **self._gather(reason),
            ) from None

    def _trace(self, outcome: str, failed: collect.Failed | None = None) -> Trace:
        reports = [rank.rows for rank in self.ranks if rank.rows is not None]
        epoch = self.board.get(0, EPOCH)
        return collect.build(reports, self._size, epoch, self._meta(outcome), failed)

    def _meta(self, outcome: str) -> dict[str, Any]:
        meta = {**collect.clock_of(self.machine), "outcome": outcome, "device": self.device}
        if self.seed is not None:
            meta["seed"] = self.seed
        left = {str(rank.number): rank.left_running for rank in self.ranks if rank.left_running}
        if left:
            meta["left_running"] = left
        if self.lost:
            meta["lost"] = {str(rank): each._asdict() for rank, each in self.lost.items()}
        return meta
