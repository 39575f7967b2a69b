"""Run a student's locked worker and parameter server on real ranks, and record the results.

    work(shared, gradient, steps, lr)              on every rank: steps under the lock
    serve(comm, weights, update, pushes, bound)    on rank 0, for the workers 1, 2, ...

The weights are those of a layer that no notebook shows, in float64, on examples that each rank
draws itself. The shared tensor has its numbers only while the lock is held: a program that reads
it without the lock gets NaN on every run. Workers push in an order drawn before the run: in
rounds, or so that one worker pushes only when no other may. The machine's load changes nothing.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Generic, TypeVar

import torch

from dlviz.cluster import Comm, DeadlockError
from dlviz.grading.assignments.parameter_server.hints import why_stuck
from dlviz.grading.assignments.parameter_server.rules import Clocks, Event
from dlviz.grading.harness import attempt as harness
from dlviz.grading.harness.attempt import Left, OwnWork
from dlviz.grading.harness.dealt import drawn
from dlviz.grading.harness.feedback import CheckFailed, listed, number, shown_line
from dlviz.grading.harness.guard import Guard, Watch
from dlviz.grading.harness.sizes import Size
from dlviz.machine import Link, Machine, Topology, classroom
from dlviz.trace import Trace

Program = Callable[..., Any]
S = TypeVar("S")
L = TypeVar("L")
RATE = 0.125  # a power of two: its product with a gradient is exact, however it is written
INPUTS, OUTPUTS, EXAMPLES = 5, 4, 6
FORWARD = 0.005  # s that it takes in a rehearsal; backward takes twice that
GRADIENT, UPDATE, READ = 3 * FORWARD, 0.002, 0.001  # s that these take there
MESSAGE = 0.001  # s that a message takes there
DRAW = random.SystemRandom()
TURN = 1  # the tag of messages between workers
IN_ORDER = {"push": 0, "update": 1, "reply": 2}  # the order of actions at the same time
WRITES = (
    "the weights are changed in place, by -= or copy_; a name that is set to a new tensor does not "
    "change what the ranks share."
)
NO_INT = (
    "bound may be math.inf, which is no int and works in no range. Compare with it directly: 5 - 2 "
    "<= math.inf is true."
)
KNOWN = {  # hints by a phrase of the error of a run that did not finish
    "holds this lock already": "one `with shared.lock()` is inside another: a rank would wait for "
    "itself. Leave the first before the second.",
    "positional argument": "work gets (shared, gradient, steps, lr), serve gets (comm, weights, "
    "update, pushes, bound); update(worker, gradient) and gradient(weights) are called.",
    "requires grad": WRITES,
    "has no attribute": "`with shared.lock():` takes the lock and releases it at the end of its "
    "block: do not call acquire or release. The weights are shared.tensor.",
    "infinity": NO_INT,
    "cannot be interpreted as an integer": NO_INT,
    "there is no worker": "comm.recv(tensor) returns the sender of the push.",
}


STEP = OwnWork(
    "shared.tensor, shared.lock and gradient, in lines of your own",
    "what does a step read and write, and when does it hold the lock?",
)
SERVER = OwnWork(
    "comm.recv, update and comm.send, in lines of your own", "which pull is answered when?"
)


@dataclass(frozen=True)
class Team(Size):
    """A number of ranks that share weights, and the steps of each."""

    legend = "ranks x steps"
    ranks: int
    steps: int

    def __str__(self) -> str:
        return f"on {number(self.ranks, 'rank')} with {number(self.steps, 'step')} each"


@dataclass(frozen=True)
class Service(Size):
    """The number of workers, the pushes of the first (each further one has `more` than the one
    before), how far a worker may be ahead, and which worker pushes only when no other may (0:
    they push in rounds, each worker once)."""

    legend = "workers x bound"
    workers: int
    fewest: int
    bound: float
    last: int = 0
    more: int = 3

    def __str__(self) -> str:
        each = listed([str(count) for count in self.pushes.values()])
        return f"with {number(self.workers, 'worker')} ({each} pushes) and {self.limit}"

    @property
    def limit(self) -> str:
        return "no bound" if self.bound == math.inf else f"bound {self.bound}"

    @property
    def short(self) -> str:
        return f"{self.workers}x{'∞' if self.bound == math.inf else self.bound}"

    @property
    def pushes(self) -> dict[int, int]:
        """The pushes of each worker."""
        return {1 + i: self.fewest + i * self.more for i in range(self.workers)}


def gradient_of(weights: torch.Tensor, examples: torch.Tensor) -> torch.Tensor:
    """The gradient of a layer followed by a tanh, at weights in one row; an example is inputs
    and targets."""
    inputs, targets = examples[:, :INPUTS], examples[:, INPUTS:]
    leaf = weights.detach().clone().requires_grad_()
    with torch.enable_grad():
        outputs = (inputs @ leaf.view(INPUTS, OUTPUTS)).tanh()
        loss = torch.nn.functional.mse_loss(outputs, targets)
    return torch.autograd.grad(loss, leaf)[0]


def start_weights() -> torch.Tensor:
    return drawn(INPUTS * OUTPUTS)


def drawn_examples(steps: int) -> list[torch.Tensor]:
    """A rank's examples of each step."""
    return [drawn(EXAMPLES, INPUTS + OUTPUTS) for _ in range(steps)]


@dataclass
class Worked(Left):
    """Results of one rank: its examples, the weights of each of its gradients, the shared
    weights after each lock hold that changed them and at the end; how often it wrote without the
    lock, and how often it replaced the shared tensor."""

    examples: list[torch.Tensor] = field(default_factory=list)
    asked: list[torch.Tensor] = field(default_factory=list)
    after: list[torch.Tensor] = field(default_factory=list)
    memory: torch.Tensor = field(default_factory=lambda: torch.empty(0))
    unlocked: int = 0
    replaced: int = 0


@dataclass
class Served(Left):
    """Results of one rank: a worker's examples and the weights that it got for each push; the
    server's forbidden actions."""

    examples: list[torch.Tensor] = field(default_factory=list)
    got: list[torch.Tensor] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Ran(Generic[S, L]):
    """A run of the student's program at one size: weights at the start, each rank's results, its
    Trace."""

    size: S
    start: torch.Tensor
    left: list[L]
    trace: Trace
    let_run: Callable[[], Sequence[Event]] = (
        list  # the server's actions when turns ignore the bound
    )


# -- steps under the lock --------------------------------------------------------------------------


def worked(program: Program, size: Team, paced: bool = False) -> Ran[Team, Worked]:
    """Run the student's worker on every rank. Raises CheckFailed, caused by the RunError, if the
    run does not finish."""
    start = start_weights()
    machine = classroom(size.ranks, step=FORWARD) if paced else None
    run = harness.attempt(
        _work, size.ranks, program, size.steps, start, machine=machine,
        where=size, own=STEP, expects="every rank returns from its steps", known=KNOWN,
    )  # fmt: skip
    return Ran(size, start, run.results, run.trace)


def _work(comm: Comm, program: Program, steps: int, start: torch.Tensor) -> Worked:
    left = Worked(drawn_examples(steps))

    def gradient(weights: torch.Tensor) -> torch.Tensor:
        if not isinstance(weights, torch.Tensor):
            raise TypeError(f"gradient({type(weights).__name__}) needs a tensor of weights.")
        step = len(left.asked)
        left.asked.append(weights.detach().clone())
        if step == 0 and comm.machine is None and not memory.held:
            comm.barrier()  # so that all have read before one writes
        with comm.compute("backward", f"gradient {step}", seconds=GRADIENT, step=step):
            return gradient_of(weights, left.examples[step % steps])

    memory, close = guarded(comm, start, left)
    comm.barrier()
    comm.begin()
    watch = Watch()
    with watch.watching():
        program(memory, gradient, steps, RATE)
    left.borrowed.extend(watch.borrowed)
    close()
    return left


class GuardedMemory:
    """What a program gets from `comm.shared`: `tensor`, which is NaN while this rank does not
    hold the lock, and `lock()`. The shared memory itself is not reachable from it."""

    def __init__(self, tensor: torch.Tensor, lock: Callable[[], GuardedHold]):
        self.tensor = tensor
        self.lock = lock
        self.held = False


class GuardedHold:
    """What `lock()` returns."""

    def __init__(self, take: Callable[[], None], give: Callable[..., None]):
        self._take, self._give = take, give

    def __enter__(self) -> None:
        self._take()

    def __exit__(self, *error: Any) -> None:
        self._give(*error)


def guarded(
    comm: Comm, start: torch.Tensor, left: Worked
) -> tuple[GuardedMemory, Callable[[], None]]:
    """A memory that records its changes in `left`, and a function that closes it. A lock hold
    takes the time of its read and of its update."""
    shared, own = comm.shared(start), torch.full_like(start, torch.nan)
    version = own._version  # every write into it is a new one

    def count() -> None:
        left.unlocked += own._version > version
        left.replaced += memory.tensor is not own
        memory.tensor = own

    def lock() -> GuardedHold:
        hold = shared.lock()

        def take() -> None:
            count()
            hold.__enter__()
            memory.held = True
            with comm.compute("data", "read", seconds=READ):
                own.copy_(shared.tensor)

        def give(*error: Any) -> None:
            nonlocal version
            if not torch.equal(own, shared.tensor):
                with comm.compute("update", seconds=UPDATE):
                    shared.tensor.copy_(own)
                left.after.append(own.clone())
            left.replaced += memory.tensor is not own
            memory.tensor = own.fill_(torch.nan)
            version = own._version
            memory.held = False
            hold.__exit__(*error)

        return GuardedHold(take, give)

    def close() -> None:
        count()
        comm.barrier()
        left.memory = shared.tensor.clone()

    memory = GuardedMemory(own, lock)
    return memory, close


# -- the server ------------------------------------------------------------------------------------


def served(
    program: Program, size: Service, slow: float | None = None, ahead: bool = False
) -> Ran[Service, Served]:
    """Run the student's server on rank 0. `slow`: paced, with worker 1 so many times as slow as
    the others; `ahead`: workers take turns as if there were no bound. Raises CheckFailed, caused
    by the RunError if any, if the run does not finish or ready-made code did the work."""
    start, machine = start_weights(), None
    turns = _turns(replace(size, bound=math.inf) if ahead else size) if slow is None else []
    if slow is not None:
        factors = [1.0, slow, *[1.0] * (size.workers - 1)]
        switch = Topology.switch(size.workers + 1, Link(MESSAGE, math.inf))
        machine = Machine(classroom(size.workers + 1).device, switch, FORWARD, tuple(factors))

    def stuck(error: DeadlockError) -> tuple[str, str]:
        done = [] if error.trace is None else events(error.trace)
        server = next((wait for wait in error.waits or [] if wait.rank == 0), None)
        said, hint = why_stuck(Clocks(size.pushes, size.bound), done, server)
        return said + (f", {shown_line(server.where)}" if server else ""), hint

    run = harness.attempt(
        _serve, size.workers + 1, program, size, start, turns, machine=machine,
        where=size, own=SERVER, stuck=stuck, known=KNOWN,
        expects="every push is answered, and the server returns after the last",
    )  # fmt: skip
    return Ran(size, start, run.results, run.trace, partial(_let_run, program, size))


def _let_run(program: Program, size: Service) -> list[Event]:
    """The server's actions when workers push as if there were no bound, until it holds the
    worker whose turn it is."""
    try:
        return events(served(program, size, ahead=True).trace)
    except CheckFailed as failed:
        trace = getattr(failed.__cause__, "trace", None)
        return [] if trace is None else events(trace)


def _serve(
    comm: Comm, program: Program, size: Service, weights: torch.Tensor, turns: Sequence[int]
) -> Served:
    comm.barrier()
    comm.begin()
    if comm.rank:
        return _pushed(comm, size, weights, turns)

    def update(worker: int, gradient: torch.Tensor) -> None:
        if worker not in size.pushes:
            raise ValueError(f"update({worker!r}, ...): there is no worker {worker!r}.")
        with comm.compute("update", f"by worker {worker}", seconds=UPDATE, peer=worker):
            weights.sub_(RATE * gradient)

    guard = Guard(comm)
    with guard.watching():
        program(comm, weights, update, size.pushes, size.bound)
    return Served([], [], guard.faults(), borrowed=[*guard.borrowed], raised=guard.raised)


def _pushed(comm: Comm, size: Service, weights: torch.Tensor, turns: Sequence[int]) -> Served:
    """A given worker: it pushes each gradient and pulls the weights for the next."""
    left, summary, token = Served(drawn_examples(size.pushes[comm.rank])), [], torch.zeros(1)
    around = [comm.rank, *turns, comm.rank]
    own = [(around[i], around[i + 2]) for i, each in enumerate(turns) if each == comm.rank]
    for step, (before, after) in enumerate(own or [(comm.rank,) * 2] * size.pushes[comm.rank]):
        with comm.span("phase", f"step {step}", step=step):
            with comm.compute("backward", f"gradient {step}", seconds=GRADIENT):
                gradient = gradient_of(weights, left.examples[step])
            if before != comm.rank:
                comm.recv(token, before, TURN)
            comm.send(gradient, 0)  # returns when the server has received it
            if after != comm.rank:
                summary.append(comm.isend(token, after, TURN))
            comm.recv(weights, 0)
        left.got.append(weights.clone())
    for request in summary:
        request.wait()
    return left


def _turns(size: Service) -> list[int]:
    """A random order of pushes that the bound allows: in rounds, which every bound allows, or so
    that one worker pushes only when no other may."""
    if not size.last:
        rounds = range(max(size.pushes.values()))
        going = ([w for w, most in size.pushes.items() if r < most] for r in rounds)
        return [worker for each in going for worker in DRAW.sample(each, len(each))]
    clocks, order = Clocks(size.pushes, size.bound), []
    while going := clocks.going:
        free = [each for each in going if each != size.last and clocks.free(each)]
        order.append(DRAW.choice(free or [size.last]))
        clocks.push(order[-1])
    return order


def events(trace: Trace) -> list[Event]:
    """The server's actions, in order."""
    spans, messages = trace.spans, trace.messages
    found = []
    for row in messages.rows():
        if row.dst == 0 and row.received is not None:
            found.append((row.received, "push", row.src))
    for row in spans[spans.rank == 0].rows():
        what = {"update": "update", "send": "reply"}.get(row.kind)
        if what and row.peer is not None:
            found.append((row.start, what, row.peer))
    found.sort(key=lambda each: (each[0], IN_ORDER[each[1]]))
    return [Event(what, worker) for _, what, worker in found]
