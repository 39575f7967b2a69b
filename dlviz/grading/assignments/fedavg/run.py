"""Run a student's federated averaging on real ranks, and record the results for a check.

    server(comm, weights, counts, data, rounds)                          on rank 0
    client(comm, weights, data, rounds, epochs, batch, sgd)              on ranks 1, 2, ...
    select(clients, fraction, rng)                                       on one rank, often
    timed_server(comm, weights, counts, data, rounds, choose, deadline)  on rank 0

The weights are one row of numbers in float64, of a network that no notebook shows. The timed
server runs with given clients, paced: some are so slow that their updates come after the
deadline, by the device's clock.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch

from dlviz.cluster import Comm, DeadlockError, Run, RunError
from dlviz.grading.assignments.fedavg.hints import why_stuck
from dlviz.grading.assignments.fedavg.model import (
    ClientsRecord,
    LocalStep,
    MomentumSGD,
    Problem,
    RankExamples,
)
from dlviz.grading.harness import attempt as harness
from dlviz.grading.harness.attempt import OwnWork
from dlviz.grading.harness.feedback import PACKAGE, listed, number, shown_line
from dlviz.grading.harness.guard import Guard, line_of
from dlviz.grading.harness.sizes import Size
from dlviz.machine import Link, Machine, Topology, classroom
from dlviz.trace import Trace

Program = Callable[..., Any]
DRAW = random.SystemRandom()
READY_MADE, CALLED = f"{PACKAGE}/federated/", "ready-made code was called: "
MESSAGE = 0.001  # s that a message takes on a paced run
SLOW = 4.0  # times the first client's time that a slow one takes
LONG = 6  # times a check's time limit, for an experiment
DRAWS, TIMES = 300, 4  # seeds of a select, and its calls with each
KNOWN = {  # hints by a phrase of the error of a run that did not finish
    "positional argument": "server gets (comm, weights, counts, data, rounds), client (comm, "
    "weights, data, rounds, epochs, batch, sgd), timed_server (comm, weights, counts, data, "
    "rounds, choose, deadline); sgd() gets nothing, choose a list of clients.",
    "message mismatch": "both ends of a message have the same number of elements of one dtype. "
    "torch.empty and torch.zeros make float32 unless given a dtype; torch.empty_like takes over "
    "the type.",
    "same dtype": "the weights are float64, and something has made them float32: torch.zeros and "
    "torch.empty do, unless given a dtype.",
    "is no rank of": "rank 0 is the server; the clients are the keys of counts.",
    "division by zero": "nobody answered in that round. What are the new weights then?",
    "choose([])": "all clients owe an update, as if nobody had answered in time. deadline=t is a "
    "moment on the run's clock: which one is it here?",
    "choose(": "choose is called once in a round, with the list of clients that owe no update, and "
    "returns those to ask.",
    "NoneType": "comm.recv returns None if the deadline has passed and no message has come.",
    "KeyError: None": "comm.recv returns None if the deadline has passed and no message has come: "
    "that is no client.",
    "needs rows": "randperm(len(data)) is an order of the rows; .split(batch) cuts it.",
}

OWN = OwnWork(
    "comm.send, comm.recv, comm.isend and comm.irecv, in lines of your own",
    "who sends what to whom in a round, and what is it used for?",
)


def epochs_of(count: int) -> str:
    return f"{count} epoch{'s' * (count != 1)}"


@dataclass(frozen=True)
class Cohort(Size):
    """A number of clients, which all answer in each round, and their local work."""

    legend = "clients x rounds x epochs x batch"
    clients: int
    rounds: int
    epochs: int
    batch: int

    @property
    def trivial(self) -> bool:
        return self.clients == 1  # any mean is that client's weights

    def __str__(self) -> str:
        return (
            f"with {number(self.clients, 'client')}, {number(self.rounds, 'round')} of "
            f"{epochs_of(self.epochs)} and batches of {self.batch}"
        )


@dataclass(frozen=True)
class SelectSize(Size):
    """A number of clients, and the fraction to select."""

    legend = "clients x fraction"
    clients: int
    fraction: float

    @property
    def trivial(self) -> bool:
        return self.wanted == self.clients

    def __str__(self) -> str:
        return f"of {number(self.clients, 'client')} a fraction of {self.fraction:g}"

    @property
    def wanted(self) -> int:
        return max(1, round(self.fraction * self.clients))

    @property
    def names(self) -> list[int]:
        """Client numbers with gaps, as if some owed updates."""
        return [3 * i + 2 for i in range(self.clients)]


@dataclass(frozen=True)
class Stragglers(Size):
    """A number of clients of which the last are slow, and whom each round asks, a word a round:
    "123 12" is clients 1, 2 and 3, then 1 and 2. `deadline` and `train`, the first client's
    local epochs, are in seconds; each client takes `apart` of `train` longer than the one before
    it."""

    legend = "clients x slow x rounds"
    clients: int
    slow: int
    asked: str
    deadline: float = 0.03
    train: float = 0.01
    apart: float = 0.3

    def __str__(self) -> str:
        last = [str(self.clients - each) for each in reversed(range(self.slow))]
        summary = f", client{'s' * (self.slow > 1)} {listed(last)} slow," if last else ""
        rounds = listed([" ".join(word) for word in self.asked.split()])
        return f"with {number(self.clients, 'client')}{summary} and rounds that ask {rounds}"

    @property
    def short(self) -> str:
        return f"{self.clients}x{self.slow}x{self.rounds}"

    @property
    def rounds(self) -> int:
        return len(self.asked.split())

    @property
    def script(self) -> list[list[int]]:
        return [[int(each) for each in word] for word in self.asked.split()]

    def machine(self) -> Machine:
        """A machine on which each client has its own speed."""
        fast = [1 + self.apart * i for i in range(self.clients - self.slow)]
        factors = (1.0, *fast, *[SLOW] * self.slow)
        return joined(self.clients, self.train, factors)


def joined(clients: int, step: float, factors: tuple[float, ...] | None = None) -> Machine:
    """A server and clients on a switch, on which all messages take equally long."""
    switch = Topology.switch(clients + 1, Link(MESSAGE, float("inf")))
    return Machine(classroom(clients + 1).device, switch, step, factors)


def problem_of(clients: int) -> Problem:
    """Random examples, more than ten for each client, a different number for each."""
    return Problem({0: 9, **{k: 10 + 7 * k * k % 23 for k in range(1, clients + 1)}})


class FederatedGuard(Guard):
    """Ends a program that calls dlviz's federated learning, or lets other dlviz code
    communicate."""

    def _profile(self, frame: Any, event: str, argument: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(READY_MADE) and code.co_name[0] != "_":
            line = line_of(frame)
            if not line.startswith("<frozen importlib"):  # an import alone is no call
                self.borrowed[f"dlviz.federated's {code.co_name}, {shown_line(line)}"] = None
                self._end()
        super()._profile(frame, event, argument)

    def _whose(self, frame: Any) -> None:
        super()._whose(frame)
        self._end()

    def _end(self) -> None:
        """Raise an error if ready-made code was called, and print it in case the program hides
        the error."""
        if self.borrowed:
            said = f"{CALLED}{next(iter(self.borrowed))}"
            print(said)
            raise RuntimeError(said)

    def leave(self, record: ClientsRecord | TimedRecord) -> None:
        record.borrowed.extend(self.borrowed)
        record.raised.extend(self.raised)
        record.faults.extend(self.faults())


def _called(run: Run | RunError) -> list[str]:
    """Calls of ready-made code that a rank printed before it was ended, and collectives after
    the barrier at the start."""
    summary = re.findall(f"{CALLED}(.+)", "\n".join(run.output or []))
    spans = [] if run.trace is None else run.trace.spans.rows()
    rows = sorted(spans, key=lambda row: row.start)
    rows = [row for row in rows if row.kind == "collective" and row.rank == 0][1:]
    return summary + [f"comm.{row.name}, {shown_line(row.where)}" for row in rows]


# -- all clients answer ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Averaged:
    """A run of the student's server and clients, what each rank left, and its Trace."""

    size: Cohort
    problem: Problem
    left: list[ClientsRecord]
    trace: Trace

    def batches(self, client: int) -> int:
        """Of an epoch."""
        return -(-self.problem.counts[client] // self.size.batch)

    def of_round(self, client: int, what: Sequence[Any], r: int) -> Sequence[Any]:
        """The part of a client's gradients or steps that belongs to a round."""
        each = self.size.epochs * self.batches(client)
        return what[r * each : (r + 1) * each]

    def before(self, r: int) -> torch.Tensor:
        """The server's weights before a round."""
        return self.left[0].tested[r - 1] if r else self.left[0].start

    def answers(self, client: int) -> list[int]:
        """The number of a client's steps at each message that followed new steps."""
        return sorted({*self.left[client].answers} - {0})

    def steps(self, r: int) -> dict[int, Sequence[LocalStep]]:
        """Each client's steps between its previous answer and that of the round."""
        return {
            client: self.left[client].steps[slice(*[0, *self.answers(client)][r : r + 2])]
            for client in self.problem.clients
        }

    def follows(self, step: LocalStep) -> torch.Tensor:
        """The velocity of the optimizer after a step."""
        return self.problem.momentum * step.velocity + step.gradient

    def ends(self, r: int) -> dict[int, torch.Tensor]:
        """The weights with which each client has answered in a round."""
        return {client: steps[-1].after for client, steps in self.steps(r).items()}

    def changes(self, r: int) -> dict[int, torch.Tensor]:
        """By how much each client has changed the weights with which it began a round."""
        return {
            client: steps[-1].after - steps[0].before for client, steps in self.steps(r).items()
        }


def averaged(
    programs: Sequence[Program],
    size: Cohort,
    problem: Problem | None = None,
    machine: Machine | None = None,
    in_full: bool = True,
) -> Averaged:
    """Run the student's server and clients; an experiment, not recorded `in_full`, may take
    longer. Raises CheckFailed, caused by the RunError if any, if the run does not finish or
    ready-made code did the work."""
    problem = problem or problem_of(size.clients)
    run = harness.attempt(
        _average, size.clients + 1, *programs, size, problem, in_full,
        machine=machine, times=1 if in_full else LONG,
        where=size, own=OWN, called=_called, known=KNOWN,
        expects="the server and all clients return after the last round",
    )  # fmt: skip
    return Averaged(size, problem, run.results, run.trace)


def _average(
    comm: Comm, server: Program, client: Program, size: Cohort, problem: Problem, in_full: bool
) -> ClientsRecord:
    record = ClientsRecord(problem.weights(comm.rank), problem.data(comm.rank), in_full=in_full)
    data, weights = RankExamples(comm, problem, record), record.start.clone()
    torch.seed()  # another order of rows on each client and each run
    if comm.rank:
        _record_answers(comm, record)
    elif comm.machine is None:
        _draw_who_answers(comm)
    guard = FederatedGuard(comm)
    comm.barrier()  # all ranks leave it at the same time, by the device's clock too
    with guard.watching() if in_full else nullcontext():
        if comm.rank == 0:
            server(comm, weights, dict(problem.clients), data, size.rounds)
        else:
            sgd = partial(MomentumSGD, problem, record)
            client(comm, weights, data, size.rounds, size.epochs, size.batch, sgd)
    guard.leave(record)
    return record


def _record_answers(comm: Comm, record: ClientsRecord) -> None:
    """Record at each message how many steps the client has made."""

    def sending(call: Program, *args: Any, **kwargs: Any) -> Any:
        record.answers.append(len(record.steps))
        return call(*args, **kwargs)

    comm.send, comm.isend = partial(sending, comm.send), partial(sending, comm.isend)


def _draw_who_answers(comm: Comm) -> None:
    """When the server receives from any source and several clients owe an answer, draw the
    source from them, except the first."""
    owed, recv = _count_owed(comm), comm.recv

    def receive(tensor: Any, src: Any = None, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(src, int):
            may = sorted(k for k, count in owed.items() if count > 0 and (src is None or k in src))
            src = DRAW.choice(may[1:]) if len(may) > 1 else src
        return recv(tensor, src, *args, **kwargs)

    comm.recv = receive


# -- who takes part --------------------------------------------------------------------------------


def selected(program: Program, size: SelectSize) -> tuple[SelectSize, list[list[Any]], bool]:
    """The results of TIMES calls for each of DRAWS seeds, and whether the first seed gives the
    same again."""
    expects = "select returns a list of clients"
    run = harness.attempt(
        _select, 1, program, size, where=size, expects=expects, known=KNOWN, plain=True
    )
    return size, *run.results[0]


def _select(comm: Comm, program: Program, size: SelectSize) -> tuple[list[list[Any]], bool]:
    def draws(seed: int) -> list[Any]:
        rng = random.Random(seed)
        return [_plain(program(size.names, size.fraction, rng)) for _ in range(TIMES)]

    found = [draws(seed) for seed in range(DRAWS)]
    return found, draws(0) == found[0]


def _plain(picked: Any) -> Any:
    """A list of numbers, or the repr of anything else."""
    try:
        return [int(each) for each in picked]
    except (TypeError, ValueError):
        return repr(picked)[:60]


# -- a deadline ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class OrderGot:
    """A message to a given client and its answer: the round that the message named, the weights
    in it, and the update that was sent back."""

    named: float
    weights: torch.Tensor
    update: torch.Tensor


@dataclass
class TimedRecord(ClientsRecord):
    """Results of one rank: a client's orders; the server's lists of free clients, and the
    clients whose updates it never received."""

    orders: list[OrderGot] = field(default_factory=list)
    free: list[list[int]] = field(default_factory=list)
    unreceived: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class RoundSeen:
    """A round of the timed server, by the device's clock: when it began and ended, the weights
    sent, and for each client that was asked the arrival of its update, when the server received
    it (infinite: never), and the update."""

    number: int
    begin: float
    end: float
    sent: dict[int, torch.Tensor]
    came: dict[int, float]
    taken: dict[int, float]
    updates: dict[int, torch.Tensor]

    @property
    def asked(self) -> list[int]:
        return [*self.sent]

    @property
    def answered(self) -> list[int]:
        """The clients whose updates the server received in this round."""
        return [client for client in self.asked if self.taken[client] <= self.end]


@dataclass(frozen=True)
class Timed:
    """A run of the student's timed server, what each rank left, and its Trace."""

    size: Stragglers
    problem: Problem
    left: list[TimedRecord]
    trace: Trace

    def after(self, r: int) -> torch.Tensor:
        """The server's weights after a round; for r = -1, those at the start."""
        return self.left[0].start if r < 0 else self.left[0].tested[r]

    @cached_property
    def rounds(self) -> list[RoundSeen]:
        """The rounds; a message belongs to the round between two tests of the server's in which
        it was sent."""
        spans = self.trace.spans
        tests = (spans.rank == 0) & (spans.name == "test")
        ends = sorted(spans.start[tests])
        begun = [-np.inf, *ends[:-1]]
        rounds = [RoundSeen(i, np.inf, end, {}, {}, {}, {}) for i, end in enumerate(ends)]
        for client in self.problem.clients:
            there, back = (self._between(*pair) for pair in ((0, client), (client, 0)))
            for order, out, reply in zip(self.left[client].orders, there, back, strict=False):
                taken = np.inf if reply.received is None else reply.received
                found = int(np.searchsorted(begun, out.sent, side="right")) - 1
                own = rounds[found]
                rounds[found] = RoundSeen(
                    found,
                    min(own.begin, out.sent),
                    own.end,
                    own.sent | {client: order.weights},
                    own.came | {client: reply.arrived},
                    own.taken | {client: taken},
                    own.updates | {client: order.update},
                )
        return rounds

    def _between(self, src: int, dst: int) -> list[Any]:
        rows = [row for row in self.trace.messages.rows() if (row.src, row.dst) == (src, dst)]
        return sorted(rows, key=lambda row: row.sent)


def timed(program: Program, size: Stragglers, choose: Program | None = None) -> Timed:
    """Run the student's timed server with given clients; `choose` selects those of a round, by
    default those that the size lists. Raises CheckFailed, caused by the RunError if any, if the
    run does not finish."""
    problem = problem_of(size.clients)
    run = harness.attempt(
        _serve, size.clients + 1, program, size, problem, choose, machine=size.machine(),
        where=size, own=OWN, called=_called, stuck=_stuck, known=KNOWN,
        expects="the server returns after the last round",
    )  # fmt: skip
    return Timed(size, problem, run.results, run.trace)


def _stuck(error: DeadlockError) -> tuple[str, str] | None:
    server = next((wait for wait in error.waits or [] if wait.rank == 0), None)
    if server is None:
        return None
    said, hint = why_stuck(server)
    return f"{said}, {shown_line(server.where)}", hint


class Chooser:
    """The `choose` that the student's server gets."""

    def __init__(self, size: Stragglers, choose: Program | None, record: TimedRecord):
        self._script = size.script
        self._choose = choose
        self._free = record.free

    def __call__(self, free: Any) -> list[int]:
        given = [int(each) for each in free]
        if not given:
            raise ValueError("choose([]) has nobody to choose from.")
        if len(self._free) == len(self._script):
            raise ValueError(f"choose(...) was called more than {len(self._script)} times.")
        self._free.append(given)
        if self._choose is not None:
            return self._choose(given)
        wanted = self._script[len(self._free) - 1]
        return [each for each in wanted if each in given] or given[:1]


def _serve(
    comm: Comm, program: Program, size: Stragglers, problem: Problem, choose: Program | None
) -> TimedRecord:
    record = TimedRecord(problem.weights(comm.rank), problem.data(comm.rank))
    data, weights = RankExamples(comm, problem, record), record.start.clone()
    comm.barrier()
    if comm.rank:
        return _phone(comm, problem, record)
    owed = _count_owed(comm)
    guard, chooser = FederatedGuard(comm), Chooser(size, choose, record)
    with guard.watching():
        counts = dict(problem.clients)
        program(comm, weights, counts, data, size.rounds, chooser, size.deadline)
    guard.leave(record)
    message = torch.empty(1 + problem.net.size, dtype=torch.float64)
    for client in problem.clients:
        for _ in range(owed[client]):
            Comm.recv(comm, message, client)
            record.unreceived.append(client)
        Comm.send(comm, message.fill_(-1.0), client)
    return record


def _count_owed(comm: Comm) -> Counter[int]:
    """For each client, how many more messages were sent to it than received from it."""
    owed: Counter[int] = Counter()
    send, isend, recv, irecv = comm.send, comm.isend, comm.recv, comm.irecv

    def sending(call: Program, tensor: Any, dst: int, *args: Any, **kwargs: Any) -> Any:
        done = call(tensor, dst, *args, **kwargs)
        owed[dst] += 1
        return done

    def receiving(call: Program, *args: Any, **kwargs: Any) -> Any:
        done = call(*args, **kwargs)
        src = done if call is recv else kwargs.get("src", args[1])
        owed[src] -= 1
        return done

    comm.send, comm.isend = partial(sending, send), partial(sending, isend)
    comm.recv, comm.irecv = partial(receiving, recv), partial(receiving, irecv)
    return owed


def _phone(comm: Comm, problem: Problem, record: TimedRecord) -> TimedRecord:
    """A given client: for each message a step with all its examples, until the server names a
    negative round."""
    net, (inputs, labels) = problem.net, record.data
    assert comm.machine is not None
    message = torch.empty(1 + net.size, dtype=torch.float64)
    while True:
        comm.recv(message, 0)
        if not (named := float(message[0])) >= 0:
            return record
        got = message[1:].clone()
        training = comm.compute("backward", "local epochs", seconds=comm.machine.step)
        with comm.span("phase", f"round {named:g}"), training:
            update = -problem.rate * net.gradient(got, inputs, labels)
        record.orders.append(OrderGot(named, got, update))
        message[1:] = update
        comm.send(message, 0)
